package registry

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// guarded serves a manifest for one bearer token and sends everybody else to a realm.
func guarded(token func() string, realm func(r *http.Request) string, extra string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+token() {
			serveManifest(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="test",scope="repository:app:pull"%s`, realm(r), extra))
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func fixed(s string) func(*http.Request) string { return func(*http.Request) string { return s } }

// A token server in trouble is asked again; one that refuses is not.
func TestTokenServerInTrouble(t *testing.T) {
	tests := []struct {
		name  string
		serve func(w http.ResponseWriter, r *http.Request, n int32)
		class func(error) bool
		asked int32
	}{
		{"503 at first", func(w http.ResponseWriter, _ *http.Request, n int32) {
			if n == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			io.WriteString(w, `{"token":"good","access_token":"good"}`)
		}, nil, 2},
		{"429 at first", func(w http.ResponseWriter, _ *http.Request, n int32) {
			if n == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			io.WriteString(w, `{"token":"good","access_token":"good"}`)
		}, nil, 2},
		{"always 500", func(w http.ResponseWriter, _ *http.Request, _ int32) { w.WriteHeader(500) }, unavailable, 6},
		{"403", func(w http.ResponseWriter, _ *http.Request, _ int32) { w.WriteHeader(403) }, errdefs.IsPermissionDenied, 1},
		{"401", func(w http.ResponseWriter, _ *http.Request, _ int32) { w.WriteHeader(401) }, errdefs.IsUnauthorized, 2}, // by POST and by GET
		{"a token that is not taken", func(w http.ResponseWriter, _ *http.Request, _ int32) {
			io.WriteString(w, `{"token":"bad","access_token":"bad"}`)
		}, errdefs.IsUnauthorized, 1},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request, _ int32) { io.WriteString(w, "s3cr3t<html>") },
			func(err error) bool { return err != nil }, 1},
		{"without an end", func(w http.ResponseWriter, _ *http.Request, _ int32) {
			io.WriteString(w, `{"x":"`)
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 64<<10)); err != nil {
					return
				}
			}
		}, func(err error) bool { return err != nil }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var n atomic.Int32
			tokens, asked := serve(t, func(w http.ResponseWriter, r *http.Request) { tt.serve(w, r, n.Add(1)) })
			host, _ := serve(t, guarded(func() string { return "good" }, fixed("http://"+tokens+"/token"), ""))
			_, err := resolve(t, host+"/app:v1", Credentials{Username: "u", Password: "s3cr3t"})
			if tt.class == nil && err != nil || tt.class != nil && !tt.class(err) {
				t.Errorf("Resolve: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("Resolve: %v", err)
			}
			if got := asked.Load(); tt.name != "no JSON" && tt.name != "without an end" && got != tt.asked {
				t.Errorf("asked %d times, want %d", got, tt.asked)
			}
		})
	}
}

// A token that runs out in the middle is replaced by a new one, also where the registry does not
// say that it is the token.
func TestTokenRunsOut(t *testing.T) {
	for _, extra := range []string{`,error="invalid_token"`, ""} {
		var issued atomic.Int32
		current := func() string { return fmt.Sprint("token", issued.Load()) }
		tokens, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			issued.Add(1)
			fmt.Fprintf(w, `{"token":%q,"access_token":%q,"expires_in":3600}`, current(), current())
		})
		host, _ := serve(t, guarded(current, fixed("http://"+tokens), extra))
		client := New(fast(Options{}))
		defer client.Close()
		r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{Username: "u", Password: "p"})
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Resolve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		issued.Add(1) // the registry knows the old one no more
		b, err := r.Fetch(t.Context(), d, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
}

// A token server is asked for the right to pull, also where the registry's challenge does not name
// it.
func TestScopeOfAToken(t *testing.T) {
	var scopes []string
	tokens, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		scopes = append(scopes, r.FormValue("scope"))
		if scopes[0] == "repository:some/app:pull" {
			io.WriteString(w, `{"token":"good","access_token":"good"}`)
		}
	})
	host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer good" {
			serveManifest(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s",service="test"`, tokens))
		w.WriteHeader(http.StatusUnauthorized)
	})
	if _, err := resolve(t, host+"/some/app:v1", Credentials{}); err != nil {
		t.Errorf("Resolve: %v; the token server was asked for %q", err, scopes)
	}
}

// A registry may have names without end, each of which asks for a token.
func TestRedirectsToServersWithoutEnd(t *testing.T) {
	var targets []string
	for range 3 * maxRedirects {
		target, _ := serve(t, (&tokenServer{}).handler)
		targets = append(targets, target)
	}
	var asked atomic.Int32
	host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := targets[int(asked.Add(1)-1)%len(targets)]
		http.Redirect(w, r, "http://"+to+r.URL.Path, http.StatusTemporaryRedirect)
	})
	r, err := New(fast(Options{})).Repository(t.Context(), host+"/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Resolve(t.Context()); !errdefs.IsUnauthorized(err) {
		t.Errorf("Resolve: %v", err)
	}
	if n := asked.Load(); n > maxRedirects+1 {
		t.Errorf("%d servers were asked; want up to %d", n, maxRedirects+1)
	}
}

// A registry without TLS, which anybody on the way can answer for, has the node's credentials for
// another one sent without TLS only where the node's own configuration says so of that one.
func TestRedirectWithoutTLS(t *testing.T) {
	dir := writeTree(t, map[string]string{"config.json": `{"auths":{"private.example":{"username":"u","password":"p"}}}`})
	for _, tt := range []struct {
		scheme   string
		insecure []string
		sends    bool
	}{{"http", nil, false}, {"http", []string{"private.example"}, true}, {"https", nil, true}} {
		client := New(Options{CredentialsFile: filepath.Join(dir, "config.json"), Insecure: tt.insecure})
		r, err := client.Repository(t.Context(), "127.0.0.1:1/app:v1", Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		who, err := r.asker(t.Context(), r.endpoints[0], &url.URL{Scheme: tt.scheme, Host: "private.example"}, call{})
		if err != nil || who == nil {
			t.Fatalf("%+v: %v, %v", tt, who, err)
		}
		if sends := who.auth.login.Secret != ""; sends != tt.sends {
			t.Errorf("%+v: credentials are sent: %t", tt, sends)
		}
	}
}

// A server that a registry redirects to, and that asks for a token, is asked without the pull's
// credentials, or with those that the node has for it.
func TestRedirectToAServerWithTokens(t *testing.T) {
	data, blob := blobOf(3000)
	for name, tt := range map[string]struct {
		node   bool
		access Access
	}{"anonymous": {false, ByPull}, "with the node's credentials": {true, ByNode}} {
		s := &tokenServer{}
		good := "anonymous"
		if tt.node {
			good = "good"
		}
		target, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" || r.Header.Get("Authorization") != "Bearer "+good {
				s.handler(w, r)
				return
			}
			if strings.Contains(r.URL.Path, "/blobs/") {
				ranged(w, r, data)
				return
			}
			serveManifest(w, r)
		})
		front := &tokenServer{}
		host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if tt.node || r.Header.Get("Authorization") == "Bearer good" {
				http.Redirect(w, r, "http://"+target+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			front.handler(w, r)
		})
		o := fast(Options{})
		if tt.node {
			o.CredentialsFile = filepath.Join(writeTree(t, map[string]string{
				"config.json": fmt.Sprintf(`{"auths":{%q:{"username":"u","password":"p"}}}`, target),
			}), "config.json")
		}
		client := New(o)
		r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{IdentityToken: "identity"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Resolve(t.Context()); err != nil {
			t.Errorf("%s: Resolve: %v; seen %q", name, err, s.seen)
			continue
		}
		b, err := r.Fetch(t.Context(), blob, 0)
		if err != nil {
			t.Errorf("%s: Fetch: %v", name, err)
			continue
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != string(data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		b.Close()
		client.Close()
		for _, seen := range s.seen {
			if strings.Contains(seen, "identity") || !tt.node && strings.Contains(seen, "Bearer good") {
				t.Errorf("%s: the other server was shown %q", name, seen)
			}
		}
		if n := strings.Count(strings.Join(s.seen, "\n"), "token "); n != 1 {
			t.Errorf("%s: %d tokens were asked for: %q", name, n, s.seen)
		}
		if got := r.Access(); got != tt.access {
			t.Errorf("%s: access %d", name, got)
		}
	}
}

// One that refuses the token is asked once.
func TestRedirectToAServerThatRefuses(t *testing.T) {
	s := &tokenServer{}
	target, requests := serve(t, s.handler)
	host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+target+r.URL.Path, http.StatusTemporaryRedirect)
	})
	_, err := resolve(t, host+"/app:v1", Credentials{Username: "u", Password: "p"})
	if !errdefs.IsUnauthorized(err) || !strings.Contains(err.Error(), target) {
		t.Errorf("Resolve: %v", err)
	}
	if n := requests.Load(); n > 3 || strings.Contains(strings.Join(s.seen, " "), "u/p") {
		t.Errorf("%d requests: %q", n, s.seen)
	}
}

// Credentials for a registry with TLS are not sent to a token server without, nor where that
// redirects to.
func TestCredentialsStayWithTheTokenServer(t *testing.T) {
	a := newAuthority(t)
	var leaked atomic.Int32
	thief, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Method == http.MethodPost {
			leaked.Add(1)
		}
		io.WriteString(w, `{"token":"good","access_token":"good"}`)
	})
	good := func() string { return "good" }
	toThief := serveTLS(t, a, false, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+thief, http.StatusTemporaryRedirect)
	})
	for name, realm := range map[string]string{"realm without TLS": "http://" + thief, "redirect": "https://" + toThief + "/token"} {
		host := serveTLS(t, a, false, guarded(good, fixed(realm), ""))
		dir := writeTree(t, map[string]string{strings.ReplaceAll(host, ":", "_") + "_/ca.crt": a.pem()})
		client := New(fast(Options{HostsDir: dir}))
		for _, c := range []Credentials{{Username: "u", Password: "p"}, {IdentityToken: "i"}} {
			r, err := client.Repository(t.Context(), host+"/app:v1", c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Resolve(t.Context()); err == nil {
				t.Errorf("%s: it succeeded", name)
			}
		}
		client.Close()
	}
	if n := leaked.Load(); n > 0 {
		t.Errorf("credentials were sent %d times", n)
	}
}

// Blobs that are elsewhere are fetched there without credentials, at every byte where they break
// off anew.
func TestRedirectedBlobs(t *testing.T) {
	data, desc := blobOf(3000)
	var leaked atomic.Int32
	store, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Query().Get("sig") != "s" {
			leaked.Add(1)
		}
		ranged(&cut{w, 1000}, r, data)
	})
	for name, c := range map[string]Credentials{"password": {Username: "u", Password: "p"}, "token": {RegistryToken: "good"}} {
		s := &tokenServer{basic: c.Username != ""}
		host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("Authorization") != "" {
				http.Redirect(w, r, "http://"+store+"/x?sig=s", http.StatusTemporaryRedirect)
				return
			}
			s.handler(w, r)
		})
		client := New(fast(Options{}))
		r, err := client.Repository(t.Context(), host+"/app:v1", c)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Fetch(t.Context(), desc, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != string(data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		b.Close()
		client.Close()
	}
	if n := leaked.Load(); n > 0 {
		t.Errorf("%d requests with credentials", n)
	}
}

func TestRedirectsThatAreNotFollowed(t *testing.T) {
	a := newAuthority(t)
	plain, _ := serve(t, serveManifest)
	tests := []struct {
		name, to, ref string
		tls           bool
		text          string
	}{
		{"in a circle", "", ":v1", false, "redirects more than 5 times"},
		{"to a file", "file:///etc/passwd", ":v1", false, `to a "file" address`},
		{"a tag from TLS to none", "http://" + plain + "/", ":v1", true, "without TLS"},
		{"a digest from TLS to none", "http://" + plain + "/", "@" + manifestDigest.String(), true, ""},
		{"nowhere", "-", ":v1", false, "redirects nowhere"},
	}
	for _, tt := range tests {
		h := func(w http.ResponseWriter, r *http.Request) {
			to := tt.to
			switch to {
			case "":
				to = r.URL.String()
			case "-":
				w.WriteHeader(http.StatusFound)
				return
			}
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
		o := fast(Options{})
		var host string
		if tt.tls {
			host = serveTLS(t, a, false, h)
			o.HostsDir = writeTree(t, map[string]string{strings.ReplaceAll(host, ":", "_") + "_/ca.crt": a.pem()})
		} else {
			host, _ = serve(t, h)
		}
		client := New(o)
		r, err := client.Repository(t.Context(), host+"/app"+tt.ref, Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Resolve(t.Context())
		if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.text)
		}
		client.Close()
	}
}

// Registries that do not answer a HEAD request fully, and manifests without an end.
func TestResolveByGet(t *testing.T) {
	tests := []struct {
		name  string
		serve http.HandlerFunc
		text  string
	}{
		{"no digest", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest+"; charset=utf-8")
			io.WriteString(w, manifest)
		}, ""},
		{"no HEAD", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			serveManifest(w, r)
		}, ""},
		{"no length", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Docker-Content-Digest", manifestDigest.String())
			w.(http.Flusher).Flush()
			if r.Method == http.MethodGet {
				io.WriteString(w, manifest)
			}
		}, ""},
		{"a digest that is none", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Docker-Content-Digest", "sha256:../../x")
			io.WriteString(w, manifest)
		}, ""},
		{"without an end", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			for r.Method == http.MethodGet {
				if _, err := io.WriteString(w, strings.Repeat(" ", 64<<10)); err != nil {
					return
				}
			}
		}, "larger than 8388608 bytes"},
	}
	for _, tt := range tests {
		host, _ := serve(t, tt.serve)
		client := New(fast(Options{}))
		r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Resolve(t.Context())
		if tt.text != "" {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil || d.Digest != manifestDigest || d.Size != int64(len(manifest)) || d.MediaType != ocispec.MediaTypeImageManifest {
			t.Errorf("%s: %+v, %v", tt.name, d, err)
			continue
		}
		b, err := r.Fetch(t.Context(), d, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != manifest {
			t.Errorf("%s: read %q, %v", tt.name, got, err)
		}
		b.Close()
		client.Close()
	}
}

// Nothing that is logged at any level, and no error, holds a secret.
func TestNothingTellsSecrets(t *testing.T) {
	var logged strings.Builder
	s := &tokenServer{}
	host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		// A registry that repeats what it is told.
		if a := r.Header.Get("Authorization"); a != "" && a != "Bearer good" {
			w.Header().Set("X-Echo", a)
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":%q}]}`, a)
			return
		}
		s.handler(w, r)
	})
	mirror, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) })
	client := New(fast(Options{
		Logger:  slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Mirrors: map[string][]hosts.Mirror{host: {{Scheme: "http", Host: mirror}}},
	}))
	defer client.Close()
	for _, c := range []Credentials{
		{Username: "u", Password: "s3cr3t"}, {IdentityToken: "s3cr3t"}, {RegistryToken: "s3cr3t"}, {Auth: "dTpzM2NyM3Q="},
	} {
		r, err := client.Repository(t.Context(), host+"/app:v1", c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Resolve(t.Context())
		if err == nil || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "dTpzM2NyM3Q") {
			t.Errorf("Resolve: %v", err)
		}
	}
	if logged.Len() == 0 || strings.Contains(logged.String(), "s3cr3t") || strings.Contains(logged.String(), "dTpzM2NyM3Q") {
		t.Errorf("logged:\n%s", &logged)
	}
}

// Who answers for the registry's name and port without TLS does not say where its credentials are
// sent.
func TestChallengeAfterARedirectOutOfTLS(t *testing.T) {
	client := New(fast(Options{}))
	defer client.Close()
	r, err := client.Repository(t.Context(), "registry.test:5000/app@"+manifestDigest.String(), Credentials{Username: "u", Password: "s3cr3t"})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	e := r.endpoints[0]
	for _, c := range []*http.Client{e.here.asks, e.here.stores, e.elsewhere.asks, e.elsewhere.stores, e.tokens} {
		c.Transport = roundTrip(func(req *http.Request) (*http.Response, error) {
			if a := req.Header.Get("Authorization"); a != "" {
				shown = append(shown, req.URL.String()+" "+a)
			}
			resp := &http.Response{
				StatusCode: http.StatusUnauthorized, Request: req, Body: http.NoBody,
				Header: http.Header{"Www-Authenticate": {`Bearer realm="https://thief.test/token",service="registry"`}},
			}
			if req.URL.Scheme == "https" {
				resp.StatusCode, resp.Header = http.StatusTemporaryRedirect, http.Header{"Location": {"http://registry.test:5000/else"}}
			}
			return resp, nil
		})
	}
	if _, err := r.Resolve(t.Context()); !errdefs.IsUnauthorized(err) {
		t.Errorf("Resolve: %v", err)
	}
	if !strings.HasPrefix(e.Host, "registry.test") || e.Scheme != "https" {
		t.Fatalf("the endpoint is %s://%s", e.Scheme, e.Host)
	}
	if len(shown) > 0 {
		t.Errorf("credentials were shown to %q", shown)
	}
}
