package registry

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const manifest = `{"schemaVersion":2}`

var manifestDigest = digest.FromString(manifest)

// serveManifest answers for one manifest, whatever the name.
func serveManifest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
	w.Header().Set("Docker-Content-Digest", manifestDigest.String())
	w.Header().Set("Content-Length", fmt.Sprint(len(manifest)))
	if r.Method == http.MethodGet {
		io.WriteString(w, manifest)
	}
}

// serve starts a server and returns its host and a count of its requests.
func serve(t *testing.T, h http.HandlerFunc) (host string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), requests
}

// fast makes pauses take no time.
func fast(o Options) Options {
	o.Sleep = func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }
	return o
}

func resolve(t *testing.T, reference string, c Credentials) (ocispec.Descriptor, error) {
	t.Helper()
	client := New(fast(Options{}))
	defer client.Close()
	r, err := client.Repository(t.Context(), reference, c)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return r.Resolve(t.Context())
}

func TestRedact(t *testing.T) {
	tests := []struct{ in, want string }{
		{`Get "https://s3.io/b?X-Amz-Signature=abc&x=1": EOF`, `Get "https://s3.io/b": EOF`},
		{"fetch http://u:pw@h:1/p#f: no", "fetch http://h:1/p: no"},
		{"see https://h/p?q=1, or not", "see https://h/p, or not"},
		{"token s3cr3t refused", "token *** refused"},
		{"one\ntwo\r\nthree", "one; two; three"},
		{"https://%zz?x=y", "(address)"},
	}
	for _, tt := range tests {
		if got := redact(tt.in, []string{"s3cr3t"}); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// tokenServer is a registry with a token server that knows what it is given.
type tokenServer struct {
	mu    sync.Mutex
	seen  []string
	basic bool // registry asks for a password instead of a token
}

func (s *tokenServer) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, what)
}

func (s *tokenServer) handler(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		user, password, _ := r.BasicAuth()
		if r.Method == http.MethodPost {
			if err := r.ParseForm(); err != nil {
				http.Error(w, "", http.StatusBadRequest)
				return
			}
			user, password = r.Form.Get("username"), r.Form.Get("password")+r.Form.Get("refresh_token")
		}
		s.note(fmt.Sprintf("token %s/%s", user, password))
		switch {
		case user == "u" && password == "p", user == "" && password == "identity":
			io.WriteString(w, `{"access_token":"good","token":"good"}`)
		case user == "" && password == "":
			io.WriteString(w, `{"access_token":"anonymous","token":"anonymous"}`)
		default:
			http.Error(w, password, http.StatusUnauthorized)
		}
		return
	}
	auth := r.Header.Get("Authorization")
	s.note("manifest " + auth)
	good := "Basic " + base64.StdEncoding.EncodeToString([]byte("u:p"))
	if auth == "Bearer good" && !s.basic || auth == good && s.basic {
		serveManifest(w, r)
		return
	}
	challenge := fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, r.Host)
	if s.basic {
		challenge = `Basic realm="test"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	w.WriteHeader(http.StatusUnauthorized)
}

func TestAuthorization(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("u:p\x00"))
	tests := []struct {
		name     string
		basic    bool
		c        Credentials
		ok       bool
		requests int32
	}{
		{"password for a token", false, Credentials{Username: "u", Password: "p"}, true, 3},
		{"auth for a token", false, Credentials{Auth: auth}, true, 3},
		{"identity token", false, Credentials{IdentityToken: "identity"}, true, 3},
		{"registry token", false, Credentials{RegistryToken: "good"}, true, 1},
		{"password", true, Credentials{Username: "u", Password: "p"}, true, 2},
		{"auth", true, Credentials{Auth: auth}, true, 2},
		{"wrong password for a token", false, Credentials{Username: "u", Password: "s3cr3t"}, false, 3},
		{"wrong identity token", false, Credentials{IdentityToken: "s3cr3t"}, false, 3},
		{"wrong registry token", false, Credentials{RegistryToken: "s3cr3t"}, false, 1},
		{"wrong password", true, Credentials{Username: "u", Password: "s3cr3t"}, false, 2},
		{"wrong auth", true, Credentials{Auth: base64.StdEncoding.EncodeToString([]byte("u:s3cr3t"))}, false, 2},
		{"none for a token", false, Credentials{}, false, 3},
		{"none", true, Credentials{}, false, 1},
		{"for another server", true, Credentials{Username: "u", Password: "p", ServerAddress: "other.io"}, false, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &tokenServer{basic: tt.basic}
			host, requests := serve(t, s.handler)
			d, err := resolve(t, host+"/app:v1", tt.c)
			if tt.ok {
				if err != nil || d.Digest != manifestDigest {
					t.Errorf("Resolve: %v, %v; saw %q", d.Digest, err, s.seen)
				}
			} else {
				if !errdefs.IsUnauthorized(err) {
					t.Errorf("Resolve: %v, want ErrUnauthenticated", err)
				}
				if err != nil && (strings.Contains(err.Error(), "s3cr3t") || strings.HasPrefix(err.Error(), UnavailablePrefix)) {
					t.Errorf("Resolve: %v", err)
				}
			}
			if n := requests.Load(); n > tt.requests+1 { // POST and GET for a token
				t.Errorf("%d requests, want about %d: %q", n, tt.requests, s.seen)
			}
		})
	}
}

func TestBadThenGoodCredentials(t *testing.T) {
	s := &tokenServer{}
	host, _ := serve(t, s.handler)
	client := New(fast(Options{}))
	for _, password := range []string{"bad", "p"} {
		r, err := client.Repository(t.Context(), host+"/app:v1", Credentials{Username: "u", Password: password})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Resolve(t.Context()); (err == nil) != (password == "p") {
			t.Errorf("password %s: %v", password, err)
		}
	}
}

func TestRedirectDoesNotCarryCredentials(t *testing.T) {
	var leaked []string
	var mu sync.Mutex
	elsewhere, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if a := r.Header.Get("Authorization"); a != "" {
			leaked = append(leaked, a)
		}
		serveManifest(w, r)
	})
	for _, c := range []Credentials{{Username: "u", Password: "p"}, {RegistryToken: "good"}} {
		s := &tokenServer{}
		host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer good" {
				http.Redirect(w, r, "http://"+elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			s.handler(w, r)
		})
		if _, err := resolve(t, host+"/app:v1", c); err != nil {
			t.Error(err)
		}
	}
	if len(leaked) > 0 {
		t.Errorf("another host saw %q", leaked)
	}
}

func TestErrors(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			io.WriteString(w, body)
		}
	}
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Close()
	tests := []struct {
		name        string
		handler     http.HandlerFunc
		host        string
		reference   string // "app:v1"
		class       func(error) bool
		unavailable bool
		text        string
	}{
		{name: "not found", handler: status(404, ""), class: errdefs.IsNotFound,
			text: "resolve: the registry has no such repository or tag (answered 404 Not Found)"},
		{name: "no such digest", reference: "app@sha256:" + strings.Repeat("0", 64), handler: status(404, ""), class: errdefs.IsNotFound,
			text: "resolve: the registry has no such repository or digest (answered 404 Not Found)"},
		{name: "forbidden", handler: status(403, `{"errors":[{"code":"DENIED","message":"not for you"}]}`), class: errdefs.IsPermissionDenied, text: "not for you"},
		{name: "forbidden to nobody", handler: status(403, ""), class: errdefs.IsPermissionDenied,
			text: "resolve: the registry answered 403 Forbidden: it may not be pulled without credentials, or with these"},
		{name: "unauthorized", class: errdefs.IsUnauthorized, handler: func(w http.ResponseWriter, r *http.Request) {
			(&tokenServer{}).handler(w, r)
		}, text: "resolve: the registry has no such repository, or wants credentials, and none are known for it"},
		{name: "password", class: errdefs.IsUnauthorized, handler: func(w http.ResponseWriter, r *http.Request) {
			(&tokenServer{basic: true}).handler(w, r)
		}, text: "resolve: the registry has no such repository, or wants credentials, and none are known for it"},
		{name: "no token", class: errdefs.IsPermissionDenied, handler: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/token" {
				status(403, `{"errors":[{"code":"DENIED","message":"no such project"}]}`)(w, r)
				return
			}
			(&tokenServer{}).handler(w, r)
		}, text: "resolve: the token server answered 403 Forbidden (denied: no such project): it may not be pulled without credentials, or with these"},
		{name: "too many", handler: status(429, ""), class: errdefs.IsResourceExhausted},
		{name: "server error", handler: status(500, ""), unavailable: true, text: "500 Internal Server Error"},
		{name: "bad gateway", handler: status(502, ""), unavailable: true},
		{name: "unavailable", handler: status(503, ""), unavailable: true},
		{name: "refused", host: refused.Addr().String(), unavailable: true, text: "connection refused"},
		{name: "no such host", host: "registry.invalid:5000", unavailable: true},
		{name: "broken connection", handler: func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				c.Close()
			}
		}, unavailable: true},
		{name: "precondition", handler: status(412, `{"errors":[{"code":"PROJECTPOLICYVIOLATION","message":"it has 3 vulnerabilities"}]}`), text: "it has 3 vulnerabilities"},
		{name: "a text", handler: func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "the license ran out\n"+strings.Repeat("x", 1000), http.StatusPaymentRequired)
		}, text: "resolve: the registry answered 402 Payment Required (the license ran out; " + strings.Repeat("x", 180) + ")"},
		{name: "a page", handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			status(402, "<html>")(w, r)
		}, text: "resolve: the registry answered 402 Payment Required"},
		{name: "TLS", host: serveTLS(t, newAuthority(t), false, serveManifest), text: "(Client sent an HTTP request to an HTTPS server.)"},
		{name: "teapot", handler: status(418, ""), text: "418"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host := tt.host
			if tt.handler != nil {
				host, _ = serve(t, tt.handler)
			}
			_, err := resolve(t, host+"/"+cmp.Or(tt.reference, "app:v1"), Credentials{})
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("Resolve: %T %v, want an Error", err, err)
			}
			if e.Unavailable() != tt.unavailable || strings.HasPrefix(err.Error(), "RegistryUnavailable: ") != tt.unavailable {
				t.Errorf("Resolve: %v", err)
			}
			if tt.class != nil && !tt.class(err) {
				t.Errorf("class of %v is wrong", err)
			}
			if tt.unavailable && errors.Unwrap(err) != nil {
				t.Errorf("%v has a class: %v", err, errors.Unwrap(err))
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Resolve: %v; want %q in it", err, tt.text)
			}
			described := Describe("pull", fmt.Errorf("more: %w", err))
			if strings.HasPrefix(described.Error(), "RegistryUnavailable: pull: more: ") != tt.unavailable {
				t.Errorf("Describe: %v", described)
			}
		})
	}
}

func TestCancelIsNotUnavailable(t *testing.T) {
	block := make(chan struct{})
	host, _ := serve(t, func(http.ResponseWriter, *http.Request) { <-block })
	t.Cleanup(func() { close(block) }) // before the server closes
	r, err := New(Options{}).Repository(t.Context(), host+"/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = r.Resolve(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || strings.HasPrefix(err.Error(), UnavailablePrefix) {
		t.Errorf("Resolve: %v", err)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
}

func TestFetch(t *testing.T) {
	content := strings.Repeat("0123456789", 1000)
	stall := make(chan struct{})
	var paths []string
	host, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		if strings.HasSuffix(r.URL.Path, digest.FromString("stalls").String()) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "12345")
			w.(http.Flusher).Flush()
			<-stall
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	})
	t.Cleanup(func() { close(stall) })
	r, err := New(fast(Options{StallTimeout: 500 * time.Millisecond})).Repository(t.Context(), host+"/app:v1", Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	desc := ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromString(content), Size: int64(len(content)),
		URLs: []string{(&url.URL{Scheme: "http", Host: host, Path: "/elsewhere"}).String()},
	}
	b, err := r.Fetch(t.Context(), desc, 9990)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got, err := io.ReadAll(b); err != nil || string(got) != "0123456789" {
		t.Errorf("read %q, %v", got, err)
	}
	if slices.Contains(paths, "/elsewhere") {
		t.Error("the descriptor's own address was asked")
	}

	desc = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromString("stalls"), Size: 1000}
	s, err := r.Fetch(t.Context(), desc, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := io.ReadAll(s)
	var e *Error
	if string(got) != "12345" || !errors.As(err, &e) || !e.Unavailable() || !strings.Contains(err.Error(), "stalled") {
		t.Errorf("read %q, %v; want a stalled transfer", got, err)
	}
}

func TestRepositoryRefusesBadNames(t *testing.T) {
	c := New(Options{})
	for _, ref := range []string{"", "app", "host/App:v1", "host/app:-"} {
		if _, err := c.Repository(t.Context(), ref, Credentials{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}
