package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/linear"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip3"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// bench is a server of a component: of tests/oci's http.wasm, or of testdata/service.wasm.
type bench struct {
	instances *Instances
	*testing.T
	url    string
	server *Server
	memory *linear.Pool
	served chan error
	access *lines
	failed *lines // what Handler.Log was told

	crowded atomic.Bool // there were many connections
}

// lines are what was written, for several goroutines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func serve(t *testing.T, o Options, limits wasihttp.Limits, each uint64) *bench {
	t.Helper()
	return serveFile(t, "../../../tests/oci/testdata/http.wasm", o, limits, each)
}

func serveFile(t *testing.T, name string, o Options, limits wasihttp.Limits, each uint64) *bench {
	t.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lowered, err := lower.Lower(file)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, memory: linear.New(linear.Options{Seats: DefaultConcurrency, Each: each}), served: make(chan error, 1), access: &lines{}, failed: &lines{}}
	ctx := experimental.WithMemoryAllocator(context.Background(), b.memory)
	r := wasitest.Runtime(ctx)
	t.Cleanup(func() { r.Close(ctx) })
	compiled, err := r.CompileModule(ctx, lowered.Module)
	if err != nil {
		t.Fatal(err)
	}
	var imports []canonical.Import
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.ParseImport(module, name))
	}
	if err := canonical.Provide(ctx, r, imports, wasip2.World(), wasihttp.World(), wasip3.World(), wasihttp.Service(), async.World()); err != nil {
		t.Fatal(err)
	}
	host, err := wasip2.New(wasip2.Config{Stdin: -1, Stdout: -1, Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	c := &Component{Context: ctx, Runtime: r, Compiled: compiled, Host: host}
	first, err := c.Instantiate()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.url = "http://" + l.Addr().String()
	b.instances = NewInstances(c, first, o)
	b.server = NewServer(l.(*net.TCPListener), &wasihttp.Handler{Instances: b.instances, Limits: limits,
		Log: func(_ *http.Request, err error) { fmt.Fprintln(b.failed, err) }}, b.access, func() {}, func() { b.crowded.Store(true) })
	go func() { b.served <- b.server.Serve() }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		b.server.Drain()
		if err := <-b.served; err != nil {
			t.Error(err)
		}
		b.instances.Close()
		if n := b.memory.Used(); n != 0 {
			t.Errorf("%d bytes of memory are in use at the end", n)
		}
	})
	return b
}

// get returns the status and the body of a response.
func (b *bench) get(path string) string {
	b.Helper()
	r, err := http.Get(b.url + path)
	if errors.Is(err, io.EOF) {
		return "broken off"
	}
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "broken off"
	}
	return strings.TrimSpace(fmt.Sprint(r.StatusCode, " ", string(body)))
}

func (b *bench) want(path, want string) {
	b.Helper()
	if got := b.get(path); got != want {
		b.Errorf("%s: got %q, want %q", path, got, want)
	}
}

func TestAnswers(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	b.want("/hello", "200 hello")
	b.want("/other?x=%0a", "404")
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for range 3 {
		r, err := http.Post(b.url+"/echo", "text/plain", bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, content) || r.Trailer.Get("X-End") != "yes" || r.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%d bytes, trailer %v, header %v, %v", len(got), r.Trailer, r.Header, err)
		}
	}
	if log := b.access.all(); !strings.Contains(log, "GET /hello 200 6 ") || !strings.Contains(log, "GET /other 404 0 ") || !strings.Contains(log, "POST /echo 200 1048576 ") {
		t.Errorf("access log %q", log)
	}
}

// TestUnreadBodies never become requests, though the access log stands between the handler and
// net/http.
func TestUnreadBodies(t *testing.T) {
	for name, b := range map[string]*bench{"0.2": serve(t, Options{}, wasihttp.Limits{}, 0), "0.3": serveService(t, Options{}, wasihttp.Limits{})} {
		for _, head := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprintf(conn, "POST /hello HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", head)
			answers := bufio.NewReader(conn)
			r, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(r.Body); string(text) != "hello\n" || err != nil {
				t.Errorf("%s, %s: got %q, %v", name, head, text, err)
			}
			io.WriteString(conn, "GET /hello?smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
			if more, _ := io.ReadAll(answers); len(more) > 0 {
				t.Errorf("%s, %s: the body is taken for a request: %q", name, head, more)
			}
		}
	}
}

// TestEchoStreams has a part of the response before the request has ended, of WASI 0.3 though the
// guest has.
func TestEchoStreams(t *testing.T) {
	for name, b := range map[string]*bench{"0.2": serve(t, Options{}, wasihttp.Limits{}, 0), "0.3": serveService(t, Options{}, wasihttp.Limits{})} {
		body, send := io.Pipe()
		go io.WriteString(send, "first\n")
		r, err := http.Post(b.url+"/echo", "text/plain", body)
		if err != nil {
			t.Fatal(name, err)
		}
		defer r.Body.Close()
		read := bufio.NewReader(r.Body)
		if line, err := read.ReadString('\n'); line != "first\n" {
			t.Fatalf("%s: got %q, %v", name, line, err)
		}
		go func() { io.WriteString(send, "second\n"); send.Close() }()
		if rest, err := io.ReadAll(read); string(rest) != "second\n" || err != nil {
			t.Errorf("%s: got %q, %v", name, rest, err)
		}
	}
}

// TestFailures are those of their requests alone.
func TestFailures(t *testing.T) {
	const failed = "500 Internal Server Error"
	for _, o := range []Options{{}, {Kept: true}} {
		b := serve(t, o, wasihttp.Limits{}, 0)
		for path, want := range map[string]string{
			"/nothing": failed, "/error": failed, "/trap": failed, "/exit": failed, "/late": "broken off",
		} {
			b.want(path, want)
			b.want("/hello", "200 hello")
		}
	}
}

func TestStateOfInstances(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	for range 3 {
		b.want("/count", "200 1")
	}
	b = serve(t, Options{Kept: true}, wasihttp.Limits{}, 0)
	b.want("/count", "200 1")
	b.want("/count", "200 2")
	b.get("/trap")
	b.want("/count", "200 1")
}

// TestInstanceIsMadeAhead while nothing is asked: it has its memory, and it is a fresh one.
func TestInstanceIsMadeAhead(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	for range 3 {
		b.want("/count", "200 1")
		for end := time.Now().Add(10 * time.Second); !b.ahead(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("at rest there is no instance for the next request")
			}
		}
	}
	b.memory.SetCeiling(1)
	b.want("/count", "200 1")
	b.want("/count", "503 Service Unavailable")
}

// TestRequestWaitsForInstanceThatIsMade ahead: no second one takes memory beside it.
func TestRequestWaitsForInstanceThatIsMade(t *testing.T) {
	b := serve(t, Options{Concurrency: 1}, wasihttp.Limits{}, 0)
	one := b.memory.Used()
	var released sync.WaitGroup
	for range 1000 {
		g, err := b.instances.Take(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if used := b.memory.Used(); used != one {
			t.Errorf("one request has %d bytes of memory, an instance starts with %d", used, one)
		}
		released.Go(func() { g.Release(nil) }) // which makes the next one, once it has given its seat away
	}
	released.Wait()
}

// ahead says whether nothing is asked and the next request has its instance.
func (b *bench) ahead() bool {
	b.instances.mu.Lock()
	defer b.instances.mu.Unlock()
	return b.instances.lent == 0 && b.instances.spare != nil
}

func TestDeadline(t *testing.T) {
	b := serve(t, Options{Kept: true}, wasihttp.Limits{Time: 100 * time.Millisecond}, 0)
	for range 3 {
		wasitest.Took(t, 100*time.Millisecond, func() { b.want("/sleep", "504 Gateway Timeout") })
		b.want("/count", "200 1")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 40<<16)
	for range 3 {
		b.want("/grow", "200 40")
	}
}

// TestQueueIsBounded refuses what would wait behind too many.
func TestQueueIsBounded(t *testing.T) {
	b := serve(t, Options{Concurrency: 1, Queue: 1}, wasihttp.Limits{Time: time.Second}, 0)
	answers := make(chan string, 8)
	for range 8 {
		go func() { answers <- b.get("/sleep") }()
	}
	counts := map[string]int{}
	for range 8 {
		answer, _, _ := strings.Cut(<-answers, " ")
		counts[answer]++
	}
	// The second one waits behind the first, whose time is over when its own is.
	if counts["503"] < 6 || counts["504"] < 1 || counts["503"]+counts["504"] != 8 {
		t.Errorf("answers %v", counts)
	}
}

// TestMemoryIsWaitedFor where other instances have all of it, and an instance that has none by
// itself is an error.
func TestMemoryIsWaitedFor(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	b.memory.SetCeiling(6 << 16) // room for three
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { b.want("/hello", "200 hello") })
	}
	all.Wait()
	b.memory.SetCeiling(1)
	if answer := b.get("/hello"); answer == "200 hello" { // of the instance that was made ahead
		b.want("/hello", "503 Service Unavailable")
	} else if answer != "503 Service Unavailable" {
		t.Errorf("without memory the answer is %q", answer)
	}
	for range 8 {
		all.Go(func() { b.want("/hello", "503 Service Unavailable") })
	}
	all.Wait()
	b.memory.SetCeiling(0)
	b.want("/hello", "200 hello")
}

// TestWaitingForMemoryEnds with the time of the request.
func TestWaitingForMemoryEnds(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	b.memory.SetCeiling(2 << 16) // room for one
	g, err := b.instances.Take(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Release(nil)
	if _, err := b.instances.Take(t.Context(), time.Now().Add(10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestManyAtOnce shares few instances.
func TestManyAtOnce(t *testing.T) {
	b := serve(t, Options{Concurrency: 8}, wasihttp.Limits{}, 0)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if got := b.get("/count"); got != "200 1" {
				t.Errorf("got %q", got)
			}
		})
	}
	all.Wait()
}

// TestCrowd tells of many connections that are open, with the next request.
func TestCrowd(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	b.want("/hello", "200 hello")
	if b.crowded.Load() {
		t.Error("one connection is a crowd")
	}
	for range crowd {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	b.want("/hello", "200 hello") // over one that was accepted after all others
	if !b.crowded.Load() {
		t.Error("many connections are no crowd")
	}
}

// TestDrain answers what has arrived, and nothing else.
func TestDrain(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	body, send := io.Pipe()
	done := make(chan string)
	go func() {
		r, err := http.Post(b.url+"/echo", "text/plain", body)
		if err != nil {
			done <- err.Error()
			return
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		done <- fmt.Sprint(string(text), " ", err)
	}()
	io.WriteString(send, "before ")
	for b.server.isBusy() == 0 {
		time.Sleep(time.Millisecond)
	}
	b.server.Drain()
	b.server.Drain()
	for {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			break
		}
		c.Close()
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-b.served:
		t.Fatalf("it has ended with a request under way: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	io.WriteString(send, "after")
	send.Close()
	if got := <-done; got != "before after <nil>" {
		t.Errorf("got %q", got)
	}
	err := <-b.served
	b.served <- err // for the end of the test
	if err != nil {
		t.Error(err)
	}
}

// isBusy is how many requests are under way.
func (s *Server) isBusy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy
}

// TestListenerDrains hands out what has arrived when it was told to drain.
func TestListenerDrains(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := newListener(inner.(*net.TCPListener), 2)
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.places) != 1 {
		t.Errorf("%d places are taken", len(l.places))
	}
	l.drain()
	second, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	third := make(chan error)
	go func() { c, err := l.Accept(); _ = c; third <- err }()
	select {
	case err := <-third:
		t.Errorf("a third connection with two places: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	first.Close()
	first.Close()
	if err := <-third; err != nil {
		t.Error(err)
	}
	second.Close()
	if _, err := l.Accept(); err != errDrained {
		t.Errorf("error %v", err)
	}
}

// TestHTTP2 without TLS.
func TestHTTP2(t *testing.T) {
	b := serve(t, Options{}, wasihttp.Limits{}, 0)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	r, err := client.Get(b.url + "/hello")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); string(text) != "hello\n" || err != nil || r.ProtoMajor != 2 {
		t.Errorf("%q by %s, %v", text, r.Proto, err)
	}
}

// TestNoHandler is an error of the module.
func TestNoHandler(t *testing.T) {
	ctx := context.Background()
	r := wasitest.Runtime(ctx)
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, wasitest.Component(nil, 1))
	if err != nil {
		t.Fatal(err)
	}
	host, err := wasip2.New(wasip2.Config{Stdin: -1, Stdout: -1, Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	c := &Component{Context: ctx, Runtime: r, Compiled: compiled, Host: host}
	if _, err := c.Instantiate(); err != ErrNoHandler {
		t.Errorf("error %v", err)
	}
}

// BenchmarkInstantiate makes an instance, as each request has one, and closes it.
func BenchmarkInstantiate(b *testing.B) {
	file, err := os.ReadFile("../../../tests/oci/testdata/http.wasm")
	if err != nil {
		b.Fatal(err)
	}
	lowered, err := lower.Lower(file)
	if err != nil {
		b.Fatal(err)
	}
	ctx := experimental.WithMemoryAllocator(context.Background(), linear.New(linear.Options{Seats: 1}))
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, lowered.Module)
	if err != nil {
		b.Fatal(err)
	}
	var imports []canonical.Import
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.ParseImport(module, name))
	}
	if err := canonical.Provide(ctx, r, imports, wasip2.World(), wasihttp.World()); err != nil {
		b.Fatal(err)
	}
	host, err := wasip2.New(wasip2.Config{Stdin: -1, Stdout: -1, Stderr: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer host.Close()
	c := &Component{Context: ctx, Runtime: r, Compiled: compiled, Host: host}
	for b.Loop() {
		i, err := c.Instantiate()
		if err != nil {
			b.Fatal(err)
		}
		i.Close()
	}
}

// TestCrowdOfStreams: many requests at a time over few connections take memory as well. With HTTP/2
// one connection has up to 250, and 1100 may be under way or wait.
func TestCrowdOfStreams(t *testing.T) {
	b := serve(t, Options{Concurrency: 1}, wasihttp.Limits{}, 0)
	g, err := b.instances.Take(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	const most = 240
	var all sync.WaitGroup
	for range most {
		all.Go(func() {
			if r, err := client.Get(b.url + "/hello"); err == nil {
				r.Body.Close()
			}
		})
	}
	for b.instances.waiting.Load() < most {
		time.Sleep(time.Millisecond)
	}
	if !b.crowded.Load() {
		t.Errorf("%d requests under way over %d connections are no crowd", most, len(b.server.listener.places)-1)
	}
	g.Release(nil)
	all.Wait()
}

// pipes is a listener of pipes, which hold what is written until it is read.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return &conn{Conn: c, born: time.Now(), free: func() {}}, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// greeter answers "hello", and says when it has.
type greeter chan struct{}

func (g greeter) Wait() {}

func (g greeter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	defer func() { g <- struct{}{} }()
	io.WriteString(w, "hello")
}

// The line of a request is written when its response was sent, and tells what of it was.
func TestAccessLogTellsWhatWasSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g, access, conns := make(greeter), &lines{}, make(pipes)
	s := NewServer(l.(*net.TCPListener), g, access, func() {}, func() {})
	defer s.quiet.Stop()
	go s.http.Serve(conns)
	defer s.http.Close()
	defer close(conns)
	ask := func(method string) net.Conn {
		t.Helper()
		client, server := net.Pipe()
		conns <- server
		if _, err := io.WriteString(client, method+" /hello HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-g
		time.Sleep(20 * time.Millisecond)
		return client
	}
	logged := func(want string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !strings.HasSuffix(access.all(), "\n"); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no line is written")
			}
		}
		if got := access.all(); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("logged %q, want %q", got, want)
		}
		access.mu.Lock()
		defer access.mu.Unlock()
		access.text.Reset()
	}
	client := ask("GET")
	if got := access.all(); got != "" {
		t.Errorf("before anything was sent: %q", got)
	}
	r, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(r.Body); err != nil || string(body) != "hello" {
		t.Errorf("%q, %v", body, err)
	}
	logged("GET /hello 200 5 ")
	client.Close()
	ask("PUT").Close()
	logged("PUT /hello 0 0 ")
}

// pipelined handles requests of which one connection has always the next, and counts them.
type pipelined struct {
	ask       func()       // sends a request of another connection
	n, before atomic.Int64 // how many were handled, and how many when that was sent
	passed    chan int64   // how many were handled until that one was
}

func (p *pipelined) Wait() {}

func (p *pipelined) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/other" {
		p.passed <- p.n.Load() - p.before.Load()
		return
	}
	if n := p.n.Add(1); n == 50 {
		p.before.Store(n)
		p.ask()
	}
}

// A connection whose next request is there already has its turn behind those whose requests have
// arrived.
func TestConnectionsHaveTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one keeps it busy
	for range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var conns [2]net.Conn
		for i := range conns {
			if conns[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
				t.Fatal(err)
			}
			defer conns[i].Close()
		}
		send := func(to net.Conn, path string, times int) {
			if _, err := io.WriteString(to, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n", times)); err != nil {
				t.Error(err)
			}
		}
		p := &pipelined{passed: make(chan int64, 2)}
		p.ask = func() { send(conns[1], "/other", 1) }
		s := NewServer(l.(*net.TCPListener), p, nil, func() {}, func() {})
		served := make(chan error)
		go func() { served <- s.Serve() }()
		send(conns[1], "/other", 1) // it is accepted
		<-p.passed
		send(conns[0], "/one", 2000)
		if passed := <-p.passed; passed > 20 {
			t.Errorf("%d requests of one connection were answered before the one that had arrived", passed)
		}
		go io.Copy(io.Discard, conns[0])
		s.Drain()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
