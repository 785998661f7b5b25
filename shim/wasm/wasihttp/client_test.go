package wasihttp

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// client is a guest whose Client sees a directory as "/".
func client(t testing.TB, root string, config ClientConfig) *guest {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	config.Root = fd
	c := newCaller(t)
	c.client = NewClient(config)
	t.Cleanup(c.client.Close)
	g := c.guest()
	t.Cleanup(g.close)
	return g
}

// request makes an outgoing-request of a URL.
func (g *guest) request(method, url string, headers ...string) uint64 {
	r := g.do(types+"[constructor]outgoing-request", g.fields(headers...))
	scheme, rest, _ := strings.Cut(url, "://")
	host, path, slash := strings.Cut(rest, "/")
	set := func(part string, some bool, params ...uint64) {
		if some && g.do(types+"[method]outgoing-request.set-"+part, append([]uint64{r}, params...)...) != 0 {
			panic(fmt.Errorf("%s of %q is refused", part, url))
		}
	}
	at, n := g.put(method)
	set("method", true, 9, at, n)
	at, n = g.put(scheme)
	set("scheme", scheme != "", 1, 2, at, n)
	at, n = g.put(host)
	set("authority", host != "", 1, at, n)
	at, n = g.put("/" + path)
	set("path-with-query", slash, 1, at, n)
	return r
}

// send sends a request, and returns the future, or 0 and the error-code.
func (g *guest) send(r uint64, options ...uint64) (uint64, string) {
	params := []uint64{r, 0, 0, out}
	if len(options) > 0 {
		params[1], params[2] = 1, options[0]
	}
	g.do("http/outgoing-handler#handle", params...)
	if g.u8(out) == 1 {
		return 0, Case(g.u8(out + 8)).String()
	}
	return uint64(g.u32(out + 8)), ""
}

// receive waits for a response, or its error-code.
func (g *guest) receive(future uint64) (uint64, string) {
	g.await(types+"[method]future-incoming-response.subscribe", future)
	g.do(types+"[method]future-incoming-response.get", future, out)
	switch {
	case g.u8(out) != 1 || g.u8(out+8) != 0:
		return 0, "not there"
	case g.u8(out+16) == 1:
		code := Case(g.u8(out + 24)).String()
		if g.u8(out+24) == uint8(InternalError) {
			code += " " + g.text(out+36)
		}
		return 0, code
	}
	return uint64(g.u32(out + 24)), ""
}

// fetch is a whole request with a body, and what came of it.
func (g *guest) fetch(r uint64, body string, options ...uint64) string {
	var writer uint64
	if body != "" {
		writer = g.own(types+"[method]outgoing-request.body", r)
	}
	future, err := g.send(r, options...)
	if err != "" {
		return "handle: " + err
	}
	if body != "" {
		stream := g.own(types+"[method]outgoing-body.write", writer)
		g.write(stream, body)
		g.finish(writer, stream, "x-after", "trailer")
	}
	response, err := g.receive(future)
	if err != "" {
		return err
	}
	status := g.do(types+"[method]incoming-response.status", response)
	headers := g.entries(g.do(types+"[method]incoming-response.headers", response))
	in := g.own(types+"[method]incoming-response.consume", response)
	stream := g.own(types+"[method]incoming-body.stream", in)
	text, end := g.readAll(stream)
	g.do("io/streams#[resource-drop]input-stream", stream)
	trailers := g.trailers(in)
	for i := 0; i < len(headers); {
		if strings.HasPrefix(headers[i], "date: ") {
			headers = append(headers[:i], headers[i+1:]...)
			continue
		}
		i++
	}
	return fmt.Sprint(status, headers, text, " ", end, trailers)
}

// upstream is a server that says what it has got.
func upstream(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
		return
	case "/half":
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "half")
		return
	case "/never":
		<-r.Context().Done()
		return
	case "/pause":
		w.WriteHeader(200)
		io.WriteString(w, "one")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	body, err := io.ReadAll(r.Body)
	w.Header()["Content-Type"] = nil
	w.Header().Set("Trailer", "X-Last")
	fmt.Fprint(w, r.Method, " ", r.RequestURI, " ", r.Host, " ", len(r.Header), r.Header["A"], r.ContentLength, " ", len(body), err, r.Trailer)
	w.Header().Set("X-Last", "end")
}

func TestRequestsAreSent(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(upstream))
	defer s.Close()
	host := s.Listener.Addr().String()
	g := client(t, t.TempDir(), ClientConfig{})
	const tail = " closed[x-last: end]"
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/a//b?c=%20d&e", "", "200 [trailer: X-Last]GET /a//b?c=%20d&e " + host + " 1 [1 2] 0 0 <nil> map[]" + tail},
		{"GET", "//a", "", "200 [trailer: X-Last]GET //a " + host + " 1 [1 2] 0 0 <nil> map[]" + tail},
		{"BREW", "", "", "200 [trailer: X-Last]BREW / " + host + " 1 [1 2] 0 0 <nil> map[]" + tail},
		{"POST", "/", strings.Repeat("x", 300000), "200 [trailer: X-Last]POST / " + host + " 1 [1 2] -1 300000 <nil> map[X-After:[trailer]]" + tail},
		{"GET", "/redirect", "", `302 [content-length: 33 content-type: text/html; charset=utf-8 location: /elsewhere]<a href="/elsewhere">Found</a>.` + "\n\n closed[]"},
		{"GET", "/half", "", "200 [content-length: 10 content-type: text/plain; charset=utf-8]half HTTP-response-incomplete[HTTP-response-incomplete]"},
	} {
		if got := g.fetch(g.request(c.method, s.URL+c.path, "a", "1", "A", "2"), c.body); got != c.want {
			t.Errorf("%s %s\ngot  %q\nwant %q", c.method, c.path, got, c.want)
		}
	}
	if got := g.fetch(g.request("PUT", s.URL, "content-length", "3"), "abc"); !strings.Contains(got, " 3 3 <nil> map[]") {
		t.Error(got)
	}
	if got := g.fetch(g.request("PUT", s.URL, "content-length", "4"), "abc"); got != "HTTP-protocol-error" {
		t.Error(got)
	}
}

func TestRequestsThatFail(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(upstream))
	defer s.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	garbage, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		for {
			conn, err := garbage.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1000))
			io.WriteString(conn, "220 this is mail\r\n")
			conn.Close()
		}
	}()
	root := t.TempDir()
	os.Mkdir(filepath.Join(root, "etc"), 0o755)
	os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 upstream\n"), 0o644)
	os.WriteFile(filepath.Join(root, "etc/resolv.conf"), []byte("nameserver 127.0.0.1:1\n"), 0o644)
	g := client(t, root, ClientConfig{})
	options := func(name string, timeout time.Duration) uint64 {
		o := g.do(types + "[constructor]request-options")
		g.do(types+"[method]request-options.set-"+name+"-timeout", o, 1, uint64(timeout))
		return o
	}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for _, c := range []struct {
		url     string
		options uint64
		want    string
	}{
		{"http://upstream:" + port + "/x", 0, "200"},
		{"http://nowhere.invalid:" + port + "/", 0, "DNS-"},
		{"http://" + closed.Addr().String() + "/", 0, "connection-refused"},
		{"http://" + garbage.Addr().String() + "/", 0, "HTTP-protocol-error"},
		{"https://" + garbage.Addr().String() + "/", 0, "TLS-protocol-error"},
		{"ftp://upstream/", 0, "handle: HTTP-protocol-error"},
		{"http:///", 0, "handle: HTTP-request-URI-invalid"},
		{s.URL + "/never", options("first-byte", 50*time.Millisecond), "connection-read-timeout"},
		{s.URL + "/pause", options("between-bytes", 50*time.Millisecond), "200 [content-type: text/plain; charset=utf-8]one connection-read-timeout[connection-read-timeout]"},
		{s.URL + "/x", options("connect", 1), "connection-timeout"},
	} {
		var given []uint64
		if c.options != 0 {
			given = append(given, c.options)
		}
		if got := g.fetch(g.request("GET", c.url), "", given...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.url, got, c.want)
		}
	}
	denied := newGuest(t)
	if got := denied.fetch(denied.request("GET", s.URL), ""); got != "handle: HTTP-request-denied" {
		t.Error(got)
	}
}

// TestRequestsAreBounded in number, and given up when nobody waits for them any more.
func TestRequestsAreBounded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(upstream))
	defer s.Close()
	g := client(t, t.TempDir(), ClientConfig{})
	var futures []uint64
	for {
		f, err := g.send(g.request("GET", s.URL+"/never"))
		if err != "" {
			if err != "connection-limit-reached" || len(futures) != maxRequests {
				t.Errorf("after %d: %s", len(futures), err)
			}
			break
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		g.do(types+"[resource-drop]future-incoming-response", f)
	}
	if got := g.fetch(g.request("GET", s.URL), ""); !strings.HasPrefix(got, "200") {
		t.Error(got)
	}
}

// TestAuthorities are those of the guest's files.
func TestAuthorities(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(upstream))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are to fail
	s.StartTLS()
	defer s.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	file := func(path string) string {
		root := t.TempDir()
		os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755)
		os.WriteFile(filepath.Join(root, path), certificate, 0o644)
		return root
	}
	for name, c := range map[string]struct {
		root   string
		config ClientConfig
		want   string
	}{
		"none":               {t.TempDir(), ClientConfig{}, "TLS-certificate-error"},
		"the guest's":        {file("etc/ssl/certs/ca-certificates.crt"), ClientConfig{}, "200"},
		"named by the guest": {file("my/roots.pem"), ClientConfig{CertFile: "/my/roots.pem"}, "200"},
		"named, not there":   {file("etc/ssl/certs/ca-certificates.crt"), ClientConfig{CertFile: "/my/roots.pem"}, "TLS-certificate-error"},
	} {
		g := client(t, c.root, c.config)
		if got := g.fetch(g.request("GET", s.URL), ""); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestHeadsThatAreRefused come from upstreams: the request fails, and its connection is closed.
func TestHeadsThatAreRefused(t *testing.T) {
	closed := make(chan error)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, _ := w.(http.Hijacker).Hijack()
		if r.URL.Path == "/101" {
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		} else {
			rw.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n")
			for n := range 2000 {
				fmt.Fprintf(rw, r.URL.Path[1:]+"\r\n", n)
			}
			rw.WriteString("\r\n")
		}
		rw.Flush()
		_, err := io.Copy(io.Discard, conn)
		conn.Close()
		closed <- err
	}))
	defer s.Close()
	g := client(t, t.TempDir(), ClientConfig{})
	for path, want := range map[string]string{
		"/101": "HTTP-protocol-error", "/a%25d:": "HTTP-response-header-section-size", "/trailer:%25d": "HTTP-response-header-section-size",
	} {
		if got := g.fetch(g.request("GET", s.URL+path), ""); got != want {
			t.Errorf("%s: %s", path, got)
		}
		select {
		case <-closed:
		case <-time.After(patience):
			t.Fatalf("%s: the connection is open", path)
		}
	}
}

// TestAsManyRequestsAsThereMayBe are prepared before the first is sent, with bodies, and answered
// with heads that are as large as they may be, of which a guest keeps all.
func TestAsManyRequestsAsThereMayBe(t *testing.T) {
	head := many(1725)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), head)
	}))
	defer s.Close()
	g := client(t, t.TempDir(), ClientConfig{})
	var requests, futures []uint64
	for range maxRequests {
		r := g.request("POST", s.URL)
		g.say(g.own(types+"[method]outgoing-request.body", r), strings.Repeat("b", pipe.Size))
		requests = append(requests, r)
	}
	for _, r := range requests {
		f, code := g.send(r)
		if code != "" {
			t.Fatal(code)
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		r, code := g.receive(f)
		if code != "" {
			t.Fatal(code)
		}
		g.do(types+"[method]incoming-response.headers", r)
		g.own(types+"[method]incoming-body.stream", g.own(types+"[method]incoming-response.consume", r))
	}
}
