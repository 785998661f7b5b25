package registry

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// A mirror is asked first, below its prefix and without the registry's credentials; what it has not
// or cannot give, the next one is asked for, and the registry last.
func TestMirrors(t *testing.T) {
	const secret = "s3cr3t"
	var asked []string
	note := func(name string, next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, name+" "+r.URL.Path)
			if _, password, _ := r.BasicAuth(); name != "registry" && password != "" {
				t.Errorf("%s was sent the registry's credentials", name)
			}
			next(w, r)
		}
	}
	needsLogin := func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != secret {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		serveManifest(w, r)
	}
	down := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

	registry, _ := serve(t, note("registry", needsLogin))
	for _, c := range []struct {
		name   string
		mirror http.HandlerFunc
		want   string
	}{
		{"has it", serveManifest, "mirror /v2/cache/app/manifests/v1"},
		{"has it not", http.NotFound, "mirror /v2/cache/app/manifests/v1,registry /v2/app/manifests/v1"},
		{"is down", down, "mirror /v2/cache/app/manifests/v1,registry /v2/app/manifests/v1"},
		{"wants a login", needsLogin, "mirror /v2/cache/app/manifests/v1,registry /v2/app/manifests/v1"},
	} {
		mirror, _ := serve(t, note("mirror", c.mirror))
		client := New(Options{Mirrors: map[string][]hosts.Mirror{registry: {{Scheme: "http", Host: mirror, Prefix: "cache"}}}})
		asked = nil
		r, err := client.Repository(t.Context(), registry+"/app:v1", Credentials{Username: "u", Password: secret})
		if err != nil {
			t.Fatal(err)
		}
		if desc, err := r.Resolve(t.Context()); err != nil || desc.Digest != manifestDigest {
			t.Errorf("%s: %v, %v", c.name, desc.Digest, err)
		}
		if got := strings.Join(compact(asked), ","); got != c.want {
			t.Errorf("%s: asked %s, want %s", c.name, got, c.want)
		}
		client.Close()
	}
}

// compact takes repetitions away: retries and answers to challenges.
func compact(list []string) []string {
	var out []string
	for _, s := range list {
		if len(out) == 0 || out[len(out)-1] != s {
			out = append(out, s)
		}
	}
	return out
}
