package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// pushed is a registry that takes uploads, by the distribution specification. front may answer a
// request in its place, and then returns true.
type pushed struct {
	front func(w http.ResponseWriter, r *http.Request) bool
	least string // OCI-Chunk-Min-Length
	most  int64  // bytes of a request, else 413

	mu       sync.Mutex
	blobs    map[string]string // "repository digest" → content
	stored   map[string]string // "repository reference" → manifest
	sessions map[string][]byte
	seen     []string // "METHOD path" with what matters of the query
	secrets  []string // Authorization headers
}

func newPushed(t *testing.T) (p *pushed, host string) {
	p = &pushed{blobs: map[string]string{}, stored: map[string]string{}, sessions: map[string][]byte{}}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return p, strings.TrimPrefix(srv.URL, "http://")
}

func (p *pushed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	query := ""
	for _, k := range []string{"mount", "digest"} {
		if r.URL.Query().Get(k) != "" {
			query += " " + k
		}
	}
	path := r.URL.Path
	if strings.Contains(path, "/uploads/") {
		path = path[:strings.Index(path, "/uploads/")] + "/uploads/"
	}
	p.seen = append(p.seen, r.Method+" "+path+query)
	p.secrets = append(p.secrets, r.Header.Get("Authorization"))
	front := p.front
	p.mu.Unlock()
	if front != nil && front(w, r) {
		return
	}
	data, err := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		return
	}
	if p.most > 0 && int64(len(data)) > p.most {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	repo, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/blobs/")
	switch {
	case strings.Contains(r.URL.Path, "/manifests/"):
		p.manifest(w, r, data)
	case r.Method == http.MethodHead:
		content, ok := p.blobs[repo+" "+rest]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	case r.Method == http.MethodPost:
		mount, from := r.URL.Query().Get("mount"), r.URL.Query().Get("from")
		if content, ok := p.blobs[from+" "+mount]; ok {
			p.blobs[repo+" "+mount] = content
			w.WriteHeader(http.StatusCreated)
			return
		}
		id := fmt.Sprint("session", len(p.sessions))
		p.sessions[id] = []byte{}
		w.Header().Set("OCI-Chunk-Min-Length", p.least)
		p.located(w, repo, id)
		w.WriteHeader(http.StatusAccepted)
	default:
		p.session(w, r, repo, strings.TrimPrefix(rest, "uploads/"), data)
	}
}

// located names a session, by a path or by a whole address in turns.
func (p *pushed) located(w http.ResponseWriter, repo, id string) {
	w.Header().Set("Location", "/v2/"+repo+"/blobs/uploads/"+id+"?state=a%2Fb")
}

func (p *pushed) session(w http.ResponseWriter, r *http.Request, repo, id string, data []byte) {
	have, ok := p.sessions[id]
	if !ok || r.URL.Query().Get("state") != "a/b" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodDelete:
		delete(p.sessions, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet:
		p.located(w, repo, id)
		if len(have) > 0 {
			w.Header().Set("Range", fmt.Sprintf("0-%d", len(have)-1))
		}
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPatch:
		if want := fmt.Sprintf("%d-%d", len(have), len(have)+len(data)-1); r.Header.Get("Content-Range") != want {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		p.sessions[id] = append(have, data...)
		p.located(w, repo, id)
		w.Header().Set("Range", fmt.Sprintf("0-%d", len(p.sessions[id])-1))
		w.WriteHeader(http.StatusAccepted)
	case http.MethodPut:
		content := append(have, data...)
		want := r.URL.Query().Get("digest")
		if digest.FromBytes(content).String() != want {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"errors":[{"code":"DIGEST_INVALID","message":"not that"}]}`)
			return
		}
		delete(p.sessions, id)
		p.blobs[repo+" "+want] = string(content)
		w.Header().Set("Docker-Content-Digest", want)
		w.WriteHeader(http.StatusCreated)
	}
}

func (p *pushed) manifest(w http.ResponseWriter, r *http.Request, data []byte) {
	key := strings.Replace(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/", " ", 1)
	switch r.Method {
	case http.MethodHead:
		content, ok := p.stored[key]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	case http.MethodPut:
		p.stored[key] = string(data)
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
		w.WriteHeader(http.StatusCreated)
	}
}

// asked are the requests since the last call.
func (p *pushed) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

func (p *pushed) setFront(f func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front = f
}

// blobToPush is a blob to push, and the sum of what was told to be sent.
func blobToPush(content string) (Blob, *int64) {
	sent := new(int64)
	return Blob{
		Desc: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromString(content), Size: int64(len(content))},
		Open: func(offset int64) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(content[offset:])), nil
		},
		Sent: func(n int64) { *sent += n },
	}, sent
}

func (p *pushed) repository(t *testing.T, host string, o Options, c Credentials) *Repository {
	t.Helper()
	client := New(fast(o))
	t.Cleanup(client.Close)
	r, err := client.Repository(t.Context(), host+"/app:v1", c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPushBlob(t *testing.T) {
	content := strings.Repeat("0123456789", 300_000) // 3 MB
	for name, tt := range map[string]struct {
		o     Options
		least string
		most  int64
		asked []string
	}{
		"in one request":     {asked: []string{"POST", "PUT digest"}},
		"in chunks":          {o: Options{Chunk: 1 << 20}, asked: []string{"POST", "PATCH", "PATCH", "PATCH", "PUT digest"}},
		"in the least chunk": {o: Options{Chunk: 1 << 20}, least: "2000000", asked: []string{"POST", "PATCH", "PATCH", "PUT digest"}},
		"least is all":       {o: Options{Chunk: 1 << 20}, least: "9000000000", asked: []string{"POST", "PATCH", "PUT digest"}},
		"too large a request": {most: 1 << 20, asked: []string{"POST", "PUT digest", "DELETE", "POST",
			"PATCH", "PATCH", "PATCH", "PATCH", "PATCH", "PATCH", "PUT digest"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, host := newPushed(t)
			p.least, p.most = tt.least, tt.most
			b, sent := blobToPush(content)
			r := p.repository(t, host, tt.o, Credentials{})
			if has, err := r.HasBlob(t.Context(), b.Desc); has || err != nil {
				t.Fatal(has, err)
			}
			p.asked()
			mounted, err := r.PushBlob(t.Context(), b)
			if err != nil || mounted || *sent != b.Desc.Size || p.blobs["app "+b.Desc.Digest.String()] != content {
				t.Fatalf("mounted %v, %v, sent %d", mounted, err, *sent)
			}
			var got []string
			for _, one := range p.asked() {
				got = append(got, strings.ReplaceAll(one, " /v2/app/blobs/uploads/", ""))
			}
			if !slices.Equal(got, tt.asked) {
				t.Errorf("asked %q, want %q", got, tt.asked)
			}
			if has, err := r.HasBlob(t.Context(), b.Desc); !has || err != nil {
				t.Error(has, err)
			}
			if len(p.sessions) > 0 {
				t.Errorf("%d sessions are left", len(p.sessions))
			}
		})
	}
}

func TestPushEmptyBlob(t *testing.T) {
	p, host := newPushed(t)
	b, _ := blobToPush("")
	if _, err := p.repository(t, host, Options{}, Credentials{}).PushBlob(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.blobs["app "+b.Desc.Digest.String()]; !ok {
		t.Error("it is not there")
	}
}

func TestMount(t *testing.T) {
	p, host := newPushed(t)
	b, sent := blobToPush("content")
	p.blobs["other "+b.Desc.Digest.String()] = "content"
	r := p.repository(t, host, Options{}, Credentials{})
	if ok, err := r.Mount(t.Context(), b.Desc, "nowhere"); ok || err != nil || len(p.sessions) > 0 {
		t.Errorf("from where it is not: %v, %v, %d sessions", ok, err, len(p.sessions))
	}
	p.asked()
	b.From = "other"
	if mounted, err := r.PushBlob(t.Context(), b); err != nil || !mounted || *sent != b.Desc.Size {
		t.Errorf("mounted %v, %v, sent %d", mounted, err, *sent)
	}
	if got := p.asked(); !slices.Equal(got, []string{"POST /v2/app/blobs/uploads/ mount"}) {
		t.Errorf("asked %q", got)
	}
	// A registry that does not mount opens a session, or refuses: either way the blob comes.
	b, _ = blobToPush("another")
	b.From = "other"
	if mounted, err := r.PushBlob(t.Context(), b); err != nil || mounted {
		t.Errorf("mounted %v, %v", mounted, err)
	}
	p.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("mount") != "" {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	b, _ = blobToPush("a third")
	b.From = "other"
	if mounted, err := r.PushBlob(t.Context(), b); err != nil || mounted || p.blobs["app "+b.Desc.Digest.String()] != "a third" {
		t.Errorf("mounted %v, %v", mounted, err)
	}
}

func TestPushManifest(t *testing.T) {
	p, host := newPushed(t)
	r := p.repository(t, host, Options{}, Credentials{})
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: manifestDigest, Size: int64(len(manifest))}
	if has, err := r.HasManifest(t.Context(), desc); has || err != nil {
		t.Fatal(has, err)
	}
	if err := errors.Join(r.PushManifest(t.Context(), desc, []byte(manifest), ""), r.PushManifest(t.Context(), desc, []byte(manifest), r.Tag())); err != nil {
		t.Fatal(err)
	}
	if p.stored["app v1"] != manifest || p.stored["app "+manifestDigest.String()] != manifest {
		t.Errorf("stored %q", p.stored)
	}
	if has, err := r.HasManifest(t.Context(), desc); !has || err != nil {
		t.Error(has, err)
	}
}

// What breaks off is continued where the registry has chunks, and made anew otherwise.
func TestPushOverABadLink(t *testing.T) {
	content := strings.Repeat("0123456789", 300_000)
	for name, tt := range map[string]struct {
		o      Options
		breaks func(n int, r *http.Request) bool // ends the connection
		half   bool                              // the registry has got half of it
		gone   bool                              // and forgets the session
	}{
		"PUT":               {breaks: func(n int, r *http.Request) bool { return r.Method == http.MethodPut && n < 3 }},
		"PATCH":             {o: Options{Chunk: 1 << 20}, breaks: func(n int, r *http.Request) bool { return r.Method == http.MethodPatch && n < 3 }},
		"PATCH, half of it": {o: Options{Chunk: 1 << 20}, half: true, breaks: func(n int, r *http.Request) bool { return r.Method == http.MethodPatch && n < 3 }},
		"session is gone":   {o: Options{Chunk: 1 << 20}, gone: true, breaks: func(n int, r *http.Request) bool { return r.Method == http.MethodPatch && n == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			p, host := newPushed(t)
			n := 0
			p.front = func(w http.ResponseWriter, r *http.Request) bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				if r.Method == http.MethodPut || r.Method == http.MethodPatch {
					n++
				}
				if !tt.breaks(n, r) {
					return false
				}
				if tt.half {
					data := make([]byte, 1000)
					io.ReadFull(r.Body, data)
					id := strings.TrimPrefix(r.URL.Path, "/v2/app/blobs/uploads/")
					p.sessions[id] = append(p.sessions[id], data...)
				}
				if tt.gone {
					clear(p.sessions)
				}
				if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
					c.Close()
				}
				return true
			}
			b, sent := blobToPush(content)
			if _, err := p.repository(t, host, tt.o, Credentials{}).PushBlob(t.Context(), b); err != nil {
				t.Fatalf("%v; asked %q", err, p.asked())
			}
			if *sent != b.Desc.Size || p.blobs["app "+b.Desc.Digest.String()] != content {
				t.Errorf("sent %d", *sent)
			}
		})
	}
	// The upload is done and its answer is lost: it is not sent again.
	p, host := newPushed(t)
	b, _ := blobToPush(content)
	p.front = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		io.Copy(io.Discard, r.Body)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.blobs["app "+b.Desc.Digest.String()] = content
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	if _, err := p.repository(t, host, Options{}, Credentials{}).PushBlob(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	puts := slices.DeleteFunc(p.asked(), func(s string) bool { return !strings.HasPrefix(s, "PUT") })
	if len(puts) != 1 {
		t.Errorf("sent %d times", len(puts))
	}
}

func TestHostileRegistryAtAPush(t *testing.T) {
	content := strings.Repeat("x", 2<<20)
	answer := func(method string, code int, headers ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method || strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			io.Copy(io.Discard, r.Body)
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
			return true
		}
	}
	endless := func(method string, code int, pause time.Duration) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method {
				return false
			}
			w.Header().Set("Location", r.URL.Path+"x")
			w.WriteHeader(code)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "   "); err != nil {
					return true
				}
				w.(http.Flusher).Flush()
				time.Sleep(pause)
			}
			return true
		}
	}
	for name, tt := range map[string]struct {
		front func(http.ResponseWriter, *http.Request) bool
		class func(error) bool
		text  string
	}{
		"no location":              {answer("POST", 202), errdefs.IsFailedPrecondition, "an address of 0 bytes"},
		"a long location":          {answer("POST", 202, "Location", "/"+strings.Repeat("x", 9<<10)), errdefs.IsFailedPrecondition, "an address of 9217 bytes"},
		"headers without an end":   {answer("POST", 202, "X", strings.Repeat("x", 300<<10)), nil, "server response headers exceeded"},
		"no address":               {answer("POST", 202, "Location", "http://[::1"), errdefs.IsFailedPrecondition, "what is no address"},
		"a secret in it":           {answer("POST", 202, "Location", "http://u:p@127.0.0.1/x"), errdefs.IsFailedPrecondition, "what is no address"},
		"another scheme":           {answer("POST", 202, "Location", "file:///etc/passwd"), errdefs.IsFailedPrecondition, "no address"},
		"a file":                   {answer("POST", 202, "Location", "ftp://h/x"), errdefs.IsFailedPrecondition, `a "ftp" address`},
		"done before it started":   {answer("POST", 201), errdefs.IsFailedPrecondition, "201 Created where an upload is to start"},
		"another digest":           {answer("PUT", 201, "Docker-Content-Digest", digest.FromString("y").String()), errdefs.IsDataLoss, "has stored"},
		"not done":                 {answer("PUT", 202), errdefs.IsFailedPrecondition, "at the end of an upload"},
		"a redirect of an upload":  {answer("PUT", 302, "Location", "/elsewhere"), errdefs.IsFailedPrecondition, "would lose its content"},
		"redirects without end":    {answer("POST", 307, "Location", "/v2/app/blobs/uploads/"), errdefs.IsFailedPrecondition, "redirects more than"},
		"bytes that were not sent": {answer("PATCH", 202, "Location", "/x", "Range", "0-9999999999"), errdefs.IsDataLoss, "were sent"},
		"bytes that go back":       {answer("PATCH", 202, "Location", "/x", "Range", "0-0"), nil, ""},
		"an error without end":     {endless("POST", 400, 0), nil, "400"},
		"a slow error":             {endless("PUT", 400, 10*time.Millisecond), nil, "400"},
		"refused":                  {answer("POST", 403), errdefs.IsPermissionDenied, "these credentials may not push there"},
		"always in trouble":        {answer("PUT", 500), unavailable, "asked 6 times"},
		"takes nothing": {func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				time.Sleep(time.Second) // an unread body hides that the client has gone
			}
			return r.Method == http.MethodPut
		}, unavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, host := newPushed(t)
			p.front = tt.front
			o := Options{StallTimeout: 300 * time.Millisecond, StoreTimeout: 300 * time.Millisecond}
			if strings.Contains(name, "bytes") {
				o.Chunk = 1 << 20
			}
			b, _ := blobToPush(content)
			begin := time.Now()
			_, err := p.repository(t, host, o, Credentials{Username: "u", Password: "s3cr3t"}).PushBlob(t.Context(), b)
			if tt.class != nil && !tt.class(err) || !strings.Contains(fmt.Sprint(err), tt.text) || err == nil && tt.text != "" {
				t.Errorf("%v", err)
			}
			if d := time.Since(begin); d > 20*time.Second {
				t.Errorf("it took %s", d)
			}
			if n := len(p.asked()); n > 60 {
				t.Errorf("%d requests", n)
			}
		})
	}
	// A manifest that is answered with another digest.
	p, host := newPushed(t)
	p.front = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
		w.WriteHeader(http.StatusCreated)
		return true
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: manifestDigest, Size: int64(len(manifest))}
	if err := p.repository(t, host, Options{}, Credentials{}).PushManifest(t.Context(), desc, []byte(manifest), "v1"); !errdefs.IsDataLoss(err) {
		t.Errorf("another digest: %v", err)
	}
}

// An upload whose address is another server's, by Location or by redirect, takes no credentials
// there.
func TestPushElsewhereCarriesNoCredentials(t *testing.T) {
	for _, way := range []string{"location", "redirect"} {
		for name, chunk := range map[string]int64{"one": 0, "chunks": 4} {
			elsewhere, there := newPushed(t)
			p, host := newPushed(t)
			p.front = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.Header.Get("Authorization") == "":
					w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
					w.WriteHeader(http.StatusUnauthorized)
				case r.Method == http.MethodPost && way == "redirect":
					http.Redirect(w, r, "http://"+there+r.URL.String(), http.StatusTemporaryRedirect)
				case r.Method == http.MethodPost:
					elsewhere.mu.Lock()
					elsewhere.sessions["s"] = []byte{}
					elsewhere.mu.Unlock()
					w.Header().Set("Location", "http://"+there+"/v2/app/blobs/uploads/s?state=a%2Fb")
					w.WriteHeader(http.StatusAccepted)
				default:
					return false
				}
				return true
			}
			b, _ := blobToPush("0123456789")
			r := p.repository(t, host, Options{Chunk: chunk}, Credentials{Username: "u", Password: "p"})
			if _, err := r.PushBlob(t.Context(), b); err != nil {
				t.Fatalf("%s, %s: %v", way, name, err)
			}
			if elsewhere.blobs["app "+b.Desc.Digest.String()] == "" || slices.ContainsFunc(elsewhere.secrets, func(s string) bool { return s != "" }) {
				t.Errorf("%s, %s: the other server has %d blobs and saw %q", way, name, len(elsewhere.blobs), elsewhere.secrets)
			}
			if !slices.ContainsFunc(p.secrets, func(s string) bool { return s != "" }) {
				t.Errorf("%s, %s: the registry saw no credentials", way, name)
			}
		}
	}
}

// A token is asked for with the right to push, and to pull from where a blob is mounted.
func TestPushAsksForItsToken(t *testing.T) {
	p, host := newPushed(t)
	var mu sync.Mutex
	var scopes []string
	tokens, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		scope := strings.Join(r.Form["scope"], " ")
		scopes = append(scopes, scope)
		token := "pull"
		if strings.Contains(scope, "repository:app:pull,push") {
			token = "push"
		}
		fmt.Fprintf(w, `{"token":%q,"access_token":%q}`, token, token)
	})
	p.front = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer push" {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test",scope="repository:app:pull"`, tokens))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	r := p.repository(t, host, Options{}, Credentials{Username: "u", Password: "p"})
	b, _ := blobToPush("content")
	b.From = "other"
	if has, err := r.HasBlob(t.Context(), b.Desc); has || err != nil {
		t.Fatal(has, err)
	}
	if _, err := r.PushBlob(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(scopes, func(s string) bool { return strings.Contains(s, "repository:other:pull") }) {
		t.Errorf("scopes %q", scopes)
	}
	// Without credentials that may: the class says so, and the text no secret.
	p.setFront(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	_, err := p.repository(t, host, Options{}, Credentials{Username: "u", Password: "s3cr3t"}).PushBlob(t.Context(), b)
	if !errdefs.IsUnauthorized(err) || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("refused: %v", err)
	}
}

// Of the node's credentials, the first that may push is taken; a mirror is never asked.
func TestPushChoosesCredentialsAndNoMirror(t *testing.T) {
	p, host := newPushed(t)
	mirror, asked := serve(t, serveManifest)
	p.front = func(w http.ResponseWriter, r *http.Request) bool {
		if user, _, _ := r.BasicAuth(); user == "second" || user == "first" && r.Method == http.MethodHead {
			return false
		} else if user != "" {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	dir := writeTree(t, map[string]string{
		"config.json": fmt.Sprintf(`{"auths":{%q:{"username":"first","password":"x"},%q:{"username":"second","password":"x"}}}`, host+"/app", host),
		"certs.d/" + strings.ReplaceAll(host, ":", "_") + "_/hosts.toml": fmt.Sprintf("server = \"http://%s\"\n[host.\"http://%s\"]\n", host, mirror),
		"default/_default/hosts.toml":                                    fmt.Sprintf("server = \"http://%s\"\n", mirror),
	})
	r := p.repository(t, host, Options{CredentialsFile: dir + "/config.json", HostsDir: dir + "/certs.d"}, Credentials{})
	if err := r.PreparePush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, _ := blobToPush("content")
	if has, err := r.HasBlob(t.Context(), b.Desc); has || err != nil {
		t.Fatal(has, err)
	}
	if _, err := r.PushBlob(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := r.PushManifest(t.Context(), ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: manifestDigest, Size: int64(len(manifest))}, []byte(manifest), "v1"); err != nil {
		t.Fatal(err)
	}
	r = p.repository(t, host, Options{HostsDir: dir + "/default"}, Credentials{})
	if err := r.PreparePush(t.Context()); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "mirror") {
		t.Errorf("only a server for all: %v", err)
	}
	if asked.Load() > 0 {
		t.Errorf("the mirror was asked %d times", asked.Load())
	}
}

// The end of the caller's context ends a push at once, and says so.
func TestPushIsInterrupted(t *testing.T) {
	p, host := newPushed(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.front = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		io.ReadFull(r.Body, make([]byte, 1000))
		cancel()
		time.Sleep(time.Second)
		return true
	}
	b, _ := blobToPush(string(bytes.Repeat([]byte("x"), 8<<20)))
	if _, err := p.repository(t, host, Options{}, Credentials{}).PushBlob(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// A registry may take its time to store a blob or a manifest: it is not sent again, and who asks
// for something else is not made to wait. It is bounded too.
func TestPushToASlowStore(t *testing.T) {
	p, host := newPushed(t)
	var mu sync.Mutex
	puts := 0
	p.front = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			mu.Lock()
			puts++
			mu.Unlock()
			data, err := io.ReadAll(r.Body)
			if err != nil {
				return true
			}
			r.Body = io.NopCloser(bytes.NewReader(data))
			time.Sleep(600 * time.Millisecond)
		}
		return false
	}
	for name, chunk := range map[string]int64{"in one request": 0, "in chunks": 1 << 20} {
		b, _ := blobToPush(strings.Repeat(name, 1<<18))
		o := Options{StallTimeout: 200 * time.Millisecond, StoreTimeout: time.Minute, Chunk: chunk}
		if _, err := p.repository(t, host, o, Credentials{}).PushBlob(t.Context(), b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: manifestDigest, Size: int64(len(manifest))}
	o := Options{StallTimeout: 200 * time.Millisecond, StoreTimeout: time.Minute}
	if err := p.repository(t, host, o, Credentials{}).PushManifest(t.Context(), desc, []byte(manifest), "v1"); err != nil {
		t.Error(err)
	}
	if puts != 3 {
		t.Errorf("%d requests stored 3 things", puts)
	}
	b, _ := blobToPush("for ever")
	o.StoreTimeout, o.Retries = 200*time.Millisecond, -1
	if _, err := p.repository(t, host, o, Credentials{}).PushBlob(t.Context(), b); !unavailable(err) {
		t.Errorf("without an answer: %v", err)
	}
}

// An upload that goes back and forth, and one of which each chunk is taken in the smallest pieces,
// end.
func TestPushThatDoesNotAdvance(t *testing.T) {
	for name, have := range map[string]func(n int, sent int64) (code int, end int64){
		"forth and back": func(n int, sent int64) (int, int64) {
			if n%2 == 0 {
				return http.StatusServiceUnavailable, 0
			}
			return http.StatusAccepted, sent
		},
		"byte by byte": func(n int, _ int64) (int, int64) { return http.StatusAccepted, int64(n) },
	} {
		t.Run(name, func(t *testing.T) {
			p, host := newPushed(t)
			n := 0
			p.front = func(w http.ResponseWriter, r *http.Request) bool {
				sent, _ := io.Copy(io.Discard, r.Body)
				p.mu.Lock()
				defer p.mu.Unlock()
				w.Header().Set("Location", "/v2/app/blobs/uploads/x")
				switch r.Method {
				case http.MethodPost:
					w.WriteHeader(http.StatusAccepted)
				case http.MethodGet:
					w.WriteHeader(http.StatusNoContent)
				case http.MethodPatch:
					n++
					code, end := have(n, sent)
					w.Header().Set("Range", fmt.Sprintf("0-%d", end-1))
					w.WriteHeader(code)
				default:
					return false
				}
				return true
			}
			b, _ := blobToPush(strings.Repeat("x", 3<<20))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := p.repository(t, host, Options{Chunk: 1 << 20}, Credentials{}).PushBlob(ctx, b)
			if err == nil || ctx.Err() != nil {
				t.Errorf("%v", err)
			}
			if n := len(p.asked()); n > 200 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
