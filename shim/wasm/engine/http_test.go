package engine

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// httpBench is a component that answers requests, in a pod.
type httpBench struct {
	*bench
	t   *testing.T
	pod *pod
	url string
}

func newHTTPBench(t *testing.T, facts annotation.HTTP, port uint16) *httpBench {
	t.Helper()
	return benchOf(t, "http", facts, port)
}

func benchOf(t *testing.T, guest string, facts annotation.HTTP, port uint16) *httpBench {
	t.Helper()
	p := newPod(t)
	b := newBench(t, guest)
	b.inPod(p)
	b.bundle.Facts.HTTP = facts
	return &httpBench{bench: b, t: t, pod: p, url: fmt.Sprintf("http://127.0.0.1:%d", port)}
}

// client makes connections in the pod.
func (b *httpBench) client() *http.Client {
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		b.pod.do(func() { c, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, network, address) })
		return c, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: patience}
}

func (b *httpBench) get(path string) string {
	b.t.Helper()
	r, err := b.client().Get(b.url + path)
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

func (b *httpBench) want(path, want string) {
	b.t.Helper()
	if got := b.get(path); got != want {
		b.t.Errorf("%s: got %q, want %q", path, got, want)
	}
}

// A component that answers requests is ready when it was started, fails single requests, has fresh
// state in each, logs them, and ends a stop with those that are under way.
func TestComponentAnswersHTTP(t *testing.T) {
	for _, w := range walks {
		t.Run(w.name, func(t *testing.T) {
			b := newHTTPBench(t, annotation.HTTP{}, 80)
			b.engine = shared.engineWith(t, w.skip)
			b.bundle.Facts.Listeners = []annotation.Listener{{Name: "web", Port: 80}, {Name: "more", Port: 81}}
			c := b.create()
			if got := b.get("/hello"); !strings.Contains(got, "refused") {
				t.Errorf("before its start: %q", got)
			}
			start(t, c.Init())
			b.want("/hello", "200 hello")
			b.want("/trap", "500 Internal Server Error")
			b.want("/nothing", "500 Internal Server Error")
			b.want("/count", "200 1")
			b.want("/count", "200 1")
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { b.want("/count", "200 1") })
			}
			all.Wait()

			body, send := io.Pipe()
			echoed := make(chan string)
			go func() {
				r, err := b.client().Post(b.url+"/echo", "text/plain", body)
				if err != nil {
					echoed <- err.Error()
					return
				}
				defer r.Body.Close()
				text, err := io.ReadAll(r.Body)
				echoed <- fmt.Sprint(string(text), r.Trailer, err)
			}()
			io.WriteString(send, "before ")
			time.Sleep(100 * time.Millisecond)
			signal(t, c.Init(), unix.SIGTERM)
			time.Sleep(100 * time.Millisecond)
			stillRuns(t, c.Init())
			if got := b.get("/hello"); !strings.Contains(got, "refused") {
				t.Errorf("after a stop: %q", got)
			}
			io.WriteString(send, "after")
			send.Close()
			if got := <-echoed; got != "before aftermap[X-End:[yes]] <nil>" {
				t.Errorf("a request under way at a stop: %q", got)
			}
			if exit := ended(t, c.Init()); exit.Code != 0 {
				t.Errorf("exit %+v", exit)
			}
			if log := b.stdout.all(); !strings.Contains(log, "GET /hello 200 6 ") || !strings.Contains(log, "GET /trap 500 ") || !strings.Contains(log, "POST /echo 200 12 ") {
				t.Errorf("access log %q", log)
			}
			if log := b.stderr.all(); !strings.Contains(log, "sunaba: answer GET /trap: wasm error: unreachable") || !strings.Contains(log, "sunaba: answer GET /nothing: ") {
				t.Errorf("log %q", log)
			}
		})
	}
}

// A service of WASI 0.3 is served as one of 0.2 is.
func TestServiceAnswersHTTP(t *testing.T) {
	for _, w := range walks {
		t.Run(w.name, func(t *testing.T) {
			b := benchOf(t, "service", annotation.HTTP{}, 8080)
			b.engine = shared.engineWith(t, w.skip)
			c := b.create()
			start(t, c.Init())
			b.want("/trap", "500 Internal Server Error")
			b.want("/nothing", "500 Internal Server Error")
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { b.want("/count", "200 1ello") })
			}
			all.Wait()
			body, send := io.Pipe()
			echoed := make(chan string)
			go func() {
				r, err := b.client().Post(b.url+"/echo", "text/plain", body)
				if err != nil {
					echoed <- err.Error()
					return
				}
				defer r.Body.Close()
				text, err := io.ReadAll(r.Body)
				echoed <- fmt.Sprint(string(text), err)
			}()
			io.WriteString(send, "before ")
			time.Sleep(100 * time.Millisecond)
			signal(t, c.Init(), unix.SIGTERM)
			time.Sleep(100 * time.Millisecond)
			stillRuns(t, c.Init()) // though the guest has returned
			io.WriteString(send, "after")
			send.Close()
			if got := <-echoed; got != "before after<nil>" {
				t.Errorf("a request under way at a stop: %q", got)
			}
			if exit := ended(t, c.Init()); exit.Code != 0 {
				t.Errorf("exit %+v", exit)
			}
			if log := b.stdout.all(); !strings.Contains(log, "GET /trap 500 ") || !strings.Contains(log, "POST /echo 200 12 ") {
				t.Errorf("access log %q", log)
			}
			if log := b.stderr.all(); !strings.Contains(log, "sunaba: answer GET /trap: wasm error: unreachable") || !strings.Contains(log, "sunaba: answer GET /nothing: ") {
				t.Errorf("log %q", log)
			}
		})
	}
}

// A time limit, and one instance for all requests, are as of 0.2 too.
func TestLimitsOfService(t *testing.T) {
	b := benchOf(t, "service", annotation.HTTP{Kept: true, Timeout: 200 * time.Millisecond}, 8080)
	start(t, b.create().Init())
	b.want("/count", "200 1ello")
	b.want("/count", "200 2ello")
	b.want("/sleep", "504 Gateway Timeout")
	b.want("/count", "200 1ello")
}

// Without a port that its container names a component answers on 8080, or where its annotation
// says.
func TestPortsOfHTTP(t *testing.T) {
	for _, c := range []struct {
		facts     annotation.HTTP
		listeners []annotation.Listener
		port      uint16
	}{
		{annotation.HTTP{}, nil, 8080},
		{annotation.HTTP{Port: 99}, []annotation.Listener{{Name: "web", Port: 80}}, 99},
	} {
		b := newHTTPBench(t, c.facts, c.port)
		b.bundle.Facts.Listeners = c.listeners
		start(t, b.create().Init())
		b.want("/hello", "200 hello")
	}
}

// A port that is taken is an error of the start, also one that a module could do without.
func TestPortOfHTTPThatIsTaken(t *testing.T) {
	b := newHTTPBench(t, annotation.HTTP{NoAccessLog: true}, 80)
	b.bundle.Facts.Listeners = []annotation.Listener{{Name: "web", Port: 80, Optional: true}}
	first := b.create()
	second := newBench(t, "http")
	second.inPod(b.pod)
	second.bundle.Facts.Listeners = b.bundle.Facts.Listeners
	created := second.create()
	start(t, first.Init())
	if err := created.Init().Start(t.Context()); !errdefs.IsFailedPrecondition(err) || !strings.Contains(fmt.Sprint(err), "port 80 (web)") {
		t.Errorf("start of the second one: %v", err)
	}
	b.want("/hello", "200 hello")
	signal(t, first.Init(), unix.SIGTERM)
	if exit := ended(t, first.Init()); exit.Code != 0 || b.stdout.all() != "" {
		t.Errorf("exit %+v, log %q", exit, b.stdout.all())
	}
}

// Limits of a request: its time, whether it sleeps or computes, and its memory beside the
// container's.
func TestLimitsOfHTTP(t *testing.T) {
	b := newHTTPBench(t, annotation.HTTP{Kept: true, Timeout: 200 * time.Millisecond, Memory: 40 << 16}, 8080)
	c := b.create()
	start(t, c.Init())
	b.want("/count", "200 1")
	b.want("/count", "200 2")
	b.want("/grow", "200 40")
	b.want("/sleep", "504 Gateway Timeout")
	b.want("/count", "200 1")
	b.get("/spin")
	if exit := ended(t, c.Init()); exit.Code != 134 || !strings.Contains(exit.Message, "continued to compute") {
		t.Errorf("a guest that computes for ever: %+v", exit)
	}
}

// All instances together keep to the container's limit, and one that has ended gives back what it
// had.
func TestMemoryOfHTTP(t *testing.T) {
	limit := int64(8 << 20)
	b := newHTTPBench(t, annotation.HTTP{}, 8080)
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	c := b.create()
	start(t, c.Init())
	for range 20 {
		b.want("/grow", "200 128") // the guest gets all of it
	}
	b.want("/hello", "200 hello")
	larger := 2 * limit
	if err := c.Update(t.Context(), &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &larger}}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); b.get("/grow") != "200 256"; {
		if time.Now().After(deadline) {
			t.Fatal("the new limit does not count")
		}
	}
}

// A component that only answers requests is no command: what runs it so says that.
func TestFurtherProcessOfHTTP(t *testing.T) {
	b := newHTTPBench(t, annotation.HTTP{}, 8080)
	c := b.create()
	start(t, c.Init())
	exit, _, stderr := runFurther(t, c, &specs.Process{Args: []string{"/app.wasm"}, Cwd: "/"})
	if exit.Code != 126 || !strings.Contains(stderr, "no command") {
		t.Errorf("exit %+v, %q", exit, stderr)
	}
	b.want("/hello", "200 hello")
}

// A component sends requests in the network of its pod.
func TestHTTPFromAComponent(t *testing.T) {
	b := newHTTPBench(t, annotation.HTTP{}, 8080)
	start(t, b.create().Init())
	b.want("/fetch", "200 1006") // connection-refused
	l := b.pod.listen(t, "127.0.0.1:8099")
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/from" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	for range 3 {
		b.want("/fetch", "200 418")
	}
}

// What its container's limit has no room for is an error of Create.
func TestHTTPThatDoesNotFit(t *testing.T) {
	limit := int64(64 << 10)
	b := newHTTPBench(t, annotation.HTTP{}, 8080)
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	b.pipes(false)
	_, err := b.engine.Create(t.Context(), b.bundle, b.io, shim.Options{})
	b.release()
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(fmt.Sprint(err), "the container's limit is") {
		t.Errorf("got %v", err)
	}
}
