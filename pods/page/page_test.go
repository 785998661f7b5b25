package page

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// rig is a server whose reads are counted.
type rig struct {
	*Server
	url   string
	reads atomic.Int32
	name  atomic.Value // of the node
}

func start(t *testing.T, o Options, read func(context.Context) State) *rig {
	t.Helper()
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	o.Logger = slog.New(slog.DiscardHandler)
	if o.state == 0 {
		o.state = 10 * time.Millisecond
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: s, url: "http://" + s.Addr().String()}
	r.name.Store("till-4")
	if read == nil {
		read = func(context.Context) State { return State{Node: Node{Name: r.name.Load().(string)}} }
	}
	s.Start(func(ctx context.Context) State {
		r.reads.Add(1)
		return read(ctx)
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// ask makes a request; the caller need not close the body.
func (r *rig) ask(t *testing.T, method, path string, change func(*http.Request)) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// message reads the next event of a stream.
func message(t *testing.T, b *bufio.Reader) (kind, data string) {
	t.Helper()
	for {
		line, err := b.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "event":
			kind = value
		case "data":
			data = value
		case "":
			if kind != "" {
				return kind, data
			}
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func (r *rig) viewers() int {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return len(r.hub.viewers)
}

func TestFiles(t *testing.T) {
	r := start(t, Options{}, nil)
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml; charset=utf-8",
		"/else": "text/plain; charset=utf-8", "/page.html": "text/plain; charset=utf-8",
	} {
		resp := r.ask(t, http.MethodGet, path, nil)
		body, err := io.ReadAll(resp.Body)
		if err != nil || len(body) == 0 || resp.Header.Get("Content-Type") != kind {
			t.Errorf("%s: %v, %d bytes of %q", path, err, len(body), resp.Header.Get("Content-Type"))
		}
		if want := path == "/else" || path == "/page.html"; (resp.StatusCode == http.StatusNotFound) != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
		h := resp.Header
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy lacks %s: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", path, h)
		}
		if tag := h.Get("ETag"); tag != "" {
			again := r.ask(t, http.MethodGet, path, func(q *http.Request) { q.Header.Set("If-None-Match", tag) })
			if again.StatusCode != http.StatusNotModified {
				t.Errorf("%s again: %s", path, again.Status)
			}
		}
		if head := r.ask(t, http.MethodHead, path, nil); head.StatusCode != resp.StatusCode || head.ContentLength != resp.ContentLength {
			t.Errorf("HEAD %s: %s, %d bytes", path, head.Status, head.ContentLength)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch} {
		if resp := r.ask(t, method, "/", nil); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
	if n := r.reads.Load(); n != 0 {
		t.Errorf("%d reads for files", n)
	}
}

// What the page shows comes from strangers: nothing in its script parses markup or text as code.
func TestScriptParsesNothing(t *testing.T) {
	for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser", "createContextualFragment", "javascript:"} {
		if strings.Contains(string(pageJS), word) {
			t.Errorf("page.js has %q", word)
		}
	}
	for _, word := range []string{"<style", "style=", "onclick", "onload", "http:", "https:", "//"} {
		if strings.Contains(string(pageHTML), word) {
			t.Errorf("page.html has %q", word)
		}
	}
}

func TestHosts(t *testing.T) {
	local := start(t, Options{}, nil)
	all := start(t, Options{Address: "0.0.0.0:0"}, nil)
	_, port, err := net.SplitHostPort(all.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	all.url = "http://127.0.0.1:" + port
	for _, c := range []struct {
		host       string
		local, all bool
	}{
		{"localhost", true, true}, {"localhost:9180", true, true}, {"127.0.0.1", true, true}, {"127.0.0.53:1", true, true}, {"[::1]:80", true, true},
		{"10.0.0.5:9180", false, true}, {"[fd00::5]", false, true}, {"attacker.example", false, false}, {"attacker.example:9180", false, false},
		{"localhost.attacker.example", false, false}, {"127.0.0.1.attacker.example", false, false},
	} {
		for r, want := range map[*rig]bool{local: c.local, all: c.all} {
			for _, path := range []string{"/", "/events"} {
				resp := r.ask(t, http.MethodHead, path, func(q *http.Request) { q.Host = c.host })
				if got := resp.StatusCode == http.StatusOK; got != want {
					t.Errorf("%s%s for host %q: %s", r.url, path, c.host, resp.Status)
				}
			}
		}
	}
	if n := local.reads.Load() + all.reads.Load(); n != 0 {
		t.Errorf("%d reads for heads", n)
	}
}

func TestOneAddress(t *testing.T) {
	// Another one of loopback stands for one that is not: what is compared are addresses.
	s := &Server{listener: fixed{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 9180}}}
	h := s.named(http.NotFoundHandler())
	for host, want := range map[string]int{"10.0.0.5:9180": 404, "localhost:1": 404, "10.0.0.6:9180": 403, "node.example": 403} {
		w := &recorder{}
		h.ServeHTTP(w, &http.Request{Host: host})
		if w.code != want {
			t.Errorf("host %s: %d, want %d", host, w.code, want)
		}
	}
}

type fixed struct{ addr net.Addr }

func (f fixed) Addr() net.Addr          { return f.addr }
func (fixed) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (fixed) Close() error              { return nil }

type recorder struct {
	header http.Header
	code   int
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(code int)        { r.code = code }

func TestStream(t *testing.T) {
	r := start(t, Options{beat: 30 * time.Millisecond}, nil)
	resp := r.ask(t, http.MethodGet, "/events", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "same-origin") })
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream; charset=utf-8" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("headers %v", resp.Header)
	}
	b := bufio.NewReader(resp.Body)
	if line, err := b.ReadString('\n'); err != nil || line != "retry: 2000\n" {
		t.Errorf("first line %q, %v", line, err)
	}
	named := func(want string) {
		t.Helper()
		beats := 0
		for {
			kind, data := message(t, b)
			if kind == "alive" { // nothing has changed meanwhile
				beats++
				continue
			}
			var got struct {
				Now   int64
				State State
			}
			if err := json.Unmarshal([]byte(data), &got); err != nil || kind != "state" || got.Now == 0 || got.State.Node.Name != want || got.State.Pods == nil {
				t.Fatalf("%s %s, %v", kind, data, err)
			}
			return
		}
	}
	named("till-4")
	if kind, _ := message(t, b); kind != "alive" {
		t.Errorf("%s without a change", kind)
	}
	r.name.Store("till-5")
	named("till-5")
	// One that comes later gets the state at once.
	late := bufio.NewReader(r.ask(t, http.MethodGet, "/events", nil).Body)
	if kind, data := message(t, late); kind != "state" || !strings.Contains(data, "till-5") {
		t.Errorf("%s %s", kind, data)
	}
	if resp := r.ask(t, http.MethodGet, "/events", func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") }); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the stream for a page of another site: %s", resp.Status)
	}
}

// A figure that JSON cannot have breaks no stream.
func TestNotANumber(t *testing.T) {
	r := start(t, Options{}, func(context.Context) State { return State{Pods: []Pod{{Use: &Use{Cores: math.NaN()}}}} })
	if kind, data := message(t, bufio.NewReader(r.ask(t, http.MethodGet, "/events", nil).Body)); kind != "state" || !strings.Contains(data, "encode the state") || !strings.Contains(data, `"pods":[]`) {
		t.Errorf("%s %s", kind, data)
	}
}

// Nothing is read while nobody looks, and once for all who do.
func TestReadsOnlyForViewers(t *testing.T) {
	r := start(t, Options{state: 20 * time.Millisecond}, nil)
	time.Sleep(100 * time.Millisecond)
	if n := r.reads.Load(); n != 0 {
		t.Fatalf("%d reads before anybody looked", n)
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		for range 8 {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			message(t, bufio.NewReader(resp.Body))
		}
		before, from := r.reads.Load(), time.Now()
		eventually(t, "three more reads", func() bool { return r.reads.Load() >= before+3 })
		if passed := time.Since(from); float64(r.reads.Load()-before) > passed.Seconds()/0.02+2 {
			t.Errorf("%d reads within %v: more than one sampler", r.reads.Load()-before, passed)
		}
		cancel()
		eventually(t, "the places of clients that left are free", func() bool { return r.viewers() == 0 })
		eventually(t, "the sampler ends", func() bool {
			r.hub.mu.Lock()
			defer r.hub.mu.Unlock()
			return !r.hub.reads && r.hub.newest == nil
		})
		before = r.reads.Load()
		time.Sleep(100 * time.Millisecond)
		if n := r.reads.Load() - before; n != 0 {
			t.Errorf("%d reads after the last one left", n)
		}
	}
}

func TestTooManyViewers(t *testing.T) {
	r := start(t, Options{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range mostViewers {
		resp := r.ask(t, http.MethodGet, "/events", func(q *http.Request) { *q = *q.WithContext(ctx) })
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		message(t, bufio.NewReader(resp.Body))
	}
	resp := r.ask(t, http.MethodGet, "/events", nil)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %s, %v", resp.Status, resp.Header)
	}
	if resp := r.ask(t, http.MethodGet, "/", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("the page meanwhile: %s", resp.Status)
	}
	cancel()
	eventually(t, "a place is free again", func() bool { return r.viewers() == 0 })
	if resp := r.ask(t, http.MethodGet, "/events", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("after all have left: %s", resp.Status)
	}
}

// One that does not read loses its place, and the others see every state.
func TestSlowViewer(t *testing.T) {
	big := strings.Repeat("x", mostText)
	var n atomic.Int64
	r := start(t, Options{write: 200 * time.Millisecond}, func(context.Context) State {
		s := State{Node: Node{Name: time.Unix(n.Add(1), 0).String()}}
		for range mostEvents {
			s.Events = append(s.Events, Event{Message: big, Reason: big, Object: big})
		}
		return s
	})
	conn, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the slow one has its place", func() bool { return r.viewers() == 1 })
	quick := bufio.NewReader(r.ask(t, http.MethodGet, "/events", nil).Body)
	eventually(t, "the slow one loses its place", func() bool {
		message(t, quick)
		return r.viewers() == 1
	})
	message(t, quick)
}

func TestCloseEndsStreams(t *testing.T) {
	r := start(t, Options{}, nil)
	resp := r.ask(t, http.MethodGet, "/events", nil)
	b := bufio.NewReader(resp.Body)
	message(t, b)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, b); err == nil {
		t.Log("the stream ended in order")
	}
	before := r.reads.Load()
	time.Sleep(50 * time.Millisecond)
	if r.reads.Load() != before || r.viewers() != 0 {
		t.Errorf("%d reads and %d viewers after the end", r.reads.Load()-before, r.viewers())
	}
	if err := r.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

// A server that is closed before it served lets go of its address; one for no address does nothing.
func TestCloseBeforeStart(t *testing.T) {
	s, err := Listen(Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	address := s.Addr().String()
	if _, err := Listen(Options{Address: address}); err == nil || !strings.Contains(err.Error(), "page.address") {
		t.Errorf("an address that is taken: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Listen(Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	none, err := Listen(Options{})
	if err != nil || none != nil {
		t.Errorf("%v, %v", none, err)
	}
	none.Start(nil)
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	for address, want := range map[string]string{
		"": "", "127.0.0.1:9180": "", "[::1]:0": "", "localhost:80": "", "0.0.0.0:65535": "",
		"9180": `"9180" is not "HOST:PORT"`, "127.0.0.1": `is not "HOST:PORT"`, ":9180": `host "" is not an IP address`, "node.example:80": `host "node.example" is not`,
		"127.0.0.1:65536": `port "65536" is not a number`, "127.0.0.1:http": `port "http"`,
	} {
		err := Config{Address: address}.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), "page.address ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
	for address, want := range map[string]string{"": "", "localhost:1": "", "127.0.0.1:1": "127.0.0.1", "[::1]:1": "::1"} {
		if got := (Config{Address: address}).Host(); got != want {
			t.Errorf("host of %q: %q", address, got)
		}
	}
}
