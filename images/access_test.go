package images

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// private makes everything but the repositories "open…" need a user with the password
// "s3cr3t-USER".
func private(w http.ResponseWriter, req *http.Request) bool {
	user, password, _ := req.BasicAuth()
	if strings.HasPrefix(req.URL.Path, "/v2/open") || user != "" && password == "s3cr3t-"+user {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

func userAuth(user string) registry.Credentials {
	return registry.Credentials{Username: user, Password: "s3cr3t-" + user}
}

// Who may use an image that is present, by what pods of which namespaces have pulled. Every case
// holds after a restart too.
func TestPermit(t *testing.T) {
	type pull struct {
		repo, user, namespace string
	}
	own := []pull{{"mine", "u", "a"}}
	tests := []struct {
		name   string
		pulls  []pull
		repo   string
		ns     string
		policy Verification
		may    bool
	}{
		{"never: anybody", own, "mine", "b", VerifyNever, true},
		{"unset: anybody", own, "mine", "b", "", true},
		{"the one who pulled", own, "mine", "a", VerifyPrivate, true},
		{"another namespace", own, "mine", "b", VerifyPrivate, false},
		{"no namespace", own, "mine", "", VerifyPrivate, false},
		{"the same credentials for the same image", []pull{{"mine", "u", "a"}, {"mine", "u", "b"}}, "mine", "b", VerifyPrivate, true},
		{"other credentials for the same image", []pull{{"mine", "u", "a"}, {"mine", "v", "b"}}, "mine", "b", VerifyPrivate, true},
		{"the same credentials for another image", []pull{{"mine", "u", "a"}, {"other", "u", "b"}}, "mine", "b", VerifyPrivate, true},
		{"other credentials for another image", []pull{{"mine", "u", "a"}, {"other", "v", "b"}}, "mine", "b", VerifyPrivate, false},
		{"an image that needs none", []pull{{"open", "", "a"}}, "open", "b", VerifyPrivate, true},
		{"credentials that nobody asked for", []pull{{"open", "u", "a"}}, "open", "b", VerifyPrivate, true},
		{"always: an image that needs none", []pull{{"open", "", "a"}}, "open", "b", VerifyAlways, false},
		{"always: the one who pulled", []pull{{"open", "", "a"}}, "open", "a", VerifyAlways, true},
		{"an operator's pull is no pod's", []pull{{"mine", "u", ""}}, "mine", "b", VerifyPrivate, false},
	}
	r := newTestRegistry(t)
	for _, repo := range []string{"mine", "other", "open"} {
		r.image(repo, "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: repo, content: "1"}))
	}
	r.setFront(private)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestService(t)
			s.Close()
			s.options.Verification = tt.policy
			s.open()
			for _, p := range tt.pulls {
				req := PullRequest{Ref: r.host + "/" + p.repo + ":v1", Namespace: p.namespace}
				if p.user != "" {
					req.Auth = userAuth(p.user)
				}
				if _, err := s.Pull(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			for _, when := range []string{"now", "after a restart"} {
				err := s.Permit(s.mustFind(r.host+"/"+tt.repo+":v1", ""), tt.ns)
				if (err == nil) != tt.may || err != nil && !errdefs.IsPermissionDenied(err) {
					t.Errorf("%s: %v", when, err)
				}
				if err != nil && !strings.Contains(err.Error(), "imagePullPolicy") {
					t.Errorf("%s: %v does not say what to do", when, err)
				}
				s.close()
				s.open()
			}
			data, err := os.ReadFile(filepath.Join(s.root, "records.db"))
			if err != nil || strings.Contains(string(data), "s3cr3t") {
				t.Errorf("the records hold a password, or cannot be read: %v", err)
			}
		})
	}
}

func TestPermitAfterRemoval(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("mine", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.setFront(private)
	ref := r.host + "/mine:v1"
	if _, err := s.Pull(t.Context(), PullRequest{Ref: ref, Auth: userAuth("u"), Namespace: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if st := s.disk.DB.State(); len(st.Grants) != 0 || len(st.Holders) != 0 {
		t.Errorf("left: %v, %v", st.Grants, st.Holders)
	}
	if _, err := Open(Options{Root: t.TempDir(), Handlers: testHandlers(t), Verification: "sometimes"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("unknown verification: %v", err)
	}
}

// A present image is not given to who has no right to it: the registry is asked with what came with
// the pull.
func TestPullOfAPresentPrivateImageNeedsCredentials(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("mine", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.setFront(private)
	req := PullRequest{Ref: r.host + "/mine:v1", Auth: userAuth("u")}
	if _, err := s.Pull(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]registry.Credentials{
		"none": {}, "wrong": {Username: "u", Password: "x"}, "for another server": {Username: "u", Password: "s3cr3t-u", ServerAddress: "other.io"},
	} {
		req.Auth = c
		if _, err := s.Pull(t.Context(), req); !errdefs.IsUnauthorized(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.asked()
	req.Auth = userAuth("u")
	if _, err := s.Pull(t.Context(), req); err != nil {
		t.Error(err)
	}
	equal(t, "requests for a present image", r.asked(), []string{"HEAD /v2/mine/manifests/v1", "HEAD /v2/mine/manifests/v1"})
}

func TestServed(t *testing.T) {
	r, m, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
	l := gzipLayer(t, file{name: "a", content: "1"})
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, l)
	// The mirror has the layer and nothing else.
	layer := m.blob("app", l.mediaType, l.compressed)
	s.close()
	s.options.Registry.Mirrors = map[string][]hosts.Mirror{r.host: {{Scheme: "http", Host: m.host}}}
	s.open()
	img := s.mustPull(r.host+"/app:v1", "")
	if got := img.Served[m.host]; len(got) != 1 || got[0] != layer.Digest {
		t.Errorf("the mirror served %v", got)
	}
	if got := img.Served[r.host]; len(got) != 2 { // manifest and configuration
		t.Errorf("the registry served %v", got)
	}
}
