package registry

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func FuzzHosts(f *testing.F) {
	for _, s := range []string{
		"", "server = \"https://r.io\"\n[host.\"https://m\"]\ncapabilities = [\"pull\"]\nca = [\"a\", \"b\"]\nclient = [[\"c\", \"k\"]]\n",
		"[host]\n\"a\" = {skip_verify = true}\n", "[host.a.header]\nx = [\"1\"]\n", "[[host]]\n", "host.\"a\".ca = 1\n", "a.b = 1\n[host.\"\"]",
		"[host.\"http://[::1]:1/v2/../x\"]\noverride_path = true\n", "[host.a]\n[host.a]\n", "\x00", "[host.\"a\" . 'b']\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts, err := parseHosts("/d/hosts.toml", data)
		if err != nil {
			return
		}
		for i, h := range hosts {
			if h.host == "" && i < len(hosts)-1 {
				t.Errorf("host %d of %d is empty", i, len(hosts))
			}
			if h.host == "" {
				continue
			}
			u := url.URL{Scheme: h.scheme, Host: h.host, Path: h.path + "/x"}
			if h.scheme != "http" && h.scheme != "https" || !strings.HasPrefix(h.path, "/") || strings.Contains(h.path, "/../") {
				t.Errorf("%q", u.String())
			}
		}
	})
}

func FuzzDockerConfig(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"auths":{"r.io":{"auth":"dTpw"}}}`, `{"auths":{"*.io/a":{"username":"u","password":"p"},"[":{}}}`,
		`{"auths":{"r.io":{"auth":"!"}},"credHelpers":{"x":"../y"}}`, `{"auths":[]}`, `{"auths":{"https://r.io/v1/":{"identitytoken":"t"}}}`, "",
	} {
		f.Add([]byte(s), "r.io/a/b")
	}
	c := New(Options{})
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, data []byte, repository string) {
		d, err := parseDockerConfig(data)
		if err != nil {
			return
		}
		d.CredsStore, d.CredHelpers = "", nil // programs are not run for what a fuzzer says
		k := &keychain{config: d, logger: c.options.Logger}
		if n := len(k.logins(t.Context(), repository)); n > len(d.Auths) {
			t.Errorf("%d logins from %d entries", n, len(d.Auths))
		}
	})
}

// A registry's challenge, whatever it says, makes us send credentials to the realm that it names or nowhere, and never
// leads to an endless talk.
func FuzzChallenge(f *testing.F) {
	for _, s := range []string{
		"", "Basic", `Basic realm="x"`, `Bearer realm="http://h/token",service="s",scope="repository:a:pull"`, `Bearer realm="`, "Bearer realm=",
		`Bearer realm=":"`, `Negotiate`, `Bearer realm="file:///etc/passwd"`, `Bearer realm="http://h",error="invalid_token"`, "Digest x=,,,=", `Bearer scope="\"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, challenge string) {
		requests := 0
		e := &endpoint{hostConfig: hostConfig{scheme: "http", host: "registry.test", pull: true, resolve: true, primary: true, path: "/v2"}}
		rt := roundTrip(func(req *http.Request) (*http.Response, error) {
			requests++
			w := httptest.NewRecorder()
			if req.URL.Host == e.host && req.Header.Get("Authorization") != "" && req.URL.Scheme != "http" {
				t.Errorf("sent to %s", req.URL)
			}
			w.Header()["Www-Authenticate"] = []string{challenge}
			w.WriteHeader(http.StatusUnauthorized)
			resp := w.Result()
			resp.Request = req
			return resp, nil
		})
		e.client, e.elsewhere, e.tokens = &http.Client{Transport: rt}, &http.Client{Transport: rt}, &http.Client{Transport: rt}
		e.auth = newAuthorizer(e, login{user: "u", secret: "s3cr3t"})
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
