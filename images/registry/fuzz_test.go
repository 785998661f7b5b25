package registry

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/images/registry/credentials"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// A registry's challenge, whatever it says, makes us send credentials to the realm that it names or
// nowhere, and never leads to an endless talk.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{
		"", "Basic", `Basic realm="x"`, `Bearer realm="http://h/token",service="s",scope="repository:a:pull"`, `Bearer realm="`, "Bearer realm=",
		`Bearer realm=":"`, `Negotiate`, `Bearer realm="file:///etc/passwd"`, `Bearer realm="http://h",error="invalid_token"`, "Digest x=,,,=", `Bearer scope="\"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, challenge string) {
		requests := 0
		e := &endpoint{Config: hosts.Config{Scheme: "http", Host: "registry.test", Pull: true, Resolve: true, Primary: true, Path: "/v2"}}
		rt := roundTrip(func(req *http.Request) (*http.Response, error) {
			requests++
			w := httptest.NewRecorder()
			if req.URL.Host == e.Host && req.Header.Get("Authorization") != "" && req.URL.Scheme != "http" {
				t.Errorf("sent to %s", req.URL)
			}
			w.Header()["Www-Authenticate"] = []string{challenge}
			w.WriteHeader(http.StatusUnauthorized)
			resp := w.Result()
			resp.Request = req
			return resp, nil
		})
		through := &http.Client{Transport: rt}
		e.here, e.elsewhere, e.tokens = clients{through, through}, clients{through, through}, through
		e.auth = newAuthorizer(e, credentials.Login{User: "u", Secret: "s3cr3t"})
		c := New(fast(Options{Retries: -1}))
		defer c.Close()
		r := &Repository{client: c, ref: "registry.test/a:v1", domain: "registry.test", path: "a", tag: "v1", endpoints: []*endpoint{e}, secrets: []string{"s3cr3t"}}
		_, err := r.Resolve(t.Context())
		if err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("Resolve: %v", err)
		}
		if requests > 6 {
			t.Errorf("%d requests", requests)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func FuzzContentRange(f *testing.F) {
	data, desc := blobOf(100)
	f.Add("bytes 10-99/100", 206)
	f.Add("bytes 10-99/*", 206)
	f.Add("bytes -1-99/100", 206)
	f.Add("bytes 10-5/100", 206)
	f.Add("", 206)
	f.Add("", 200)
	f.Fuzz(func(t *testing.T, header string, code int) {
		if code < 100 || code > 999 {
			return
		}
		s := &stream{desc: desc, pos: 10, end: desc.Size, ranges: true}
		resp := &http.Response{StatusCode: code, Header: http.Header{"Content-Range": {header}}, ContentLength: int64(len(data))}
		skip, err := s.place(resp)
		if err == nil && (skip < 0 || skip > s.pos) {
			t.Errorf("skips %d", skip)
		}
	})
}
