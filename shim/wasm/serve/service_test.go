package serve

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// serveService serves testdata/service.wasm, which is service.wat by wasm-tools 1.262.0: parse,
// then strip -a. wasmtime serves it by -W component-model-async -W
// component-model-more-async-builtins -S p3, with --max-instance-reuse-count 1 for an instance for
// each request.
func serveService(t *testing.T, o Options, limits wasihttp.Limits) *bench {
	t.Helper()
	return serveFile(t, "testdata/service.wasm", o, limits, 0)
}

// post returns what comes of a request with this body and a trailer.
func (b *bench) post(path string, body []byte) (text []byte, trailer string) {
	b.Helper()
	r, err := http.NewRequest("POST", b.url+path, struct{ io.Reader }{bytes.NewReader(body)})
	if err != nil {
		b.Fatal(err)
	}
	r.Trailer = http.Header{"X-T": {"end"}}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		b.Error(err)
	}
	return text, response.Trailer.Get("X-T") + response.Trailer.Get("X-End")
}

func TestServiceAnswers(t *testing.T) {
	b := serveService(t, Options{}, wasihttp.Limits{})
	for range 3 {
		b.want("/count", "200 1ello")
	}
	b.want("/open", "200 hello")
	b.want("/restless", "200 hello") // it traps when all was sent
	if text, trailer := b.post("/hello", nil); string(text) != "hello\n" || trailer != "yes" {
		t.Errorf("hello: %q, trailer %q", text, trailer)
	}
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if text, _ := b.post("/unread", body); string(text) != "hello\n" {
		t.Errorf("a body that is not read: %q", text)
	}
	for _, path := range []string{"/echo", "/pass", "/give"} {
		for _, sent := range [][]byte{nil, []byte("short"), body} {
			if text, trailer := b.post(path, sent); !bytes.Equal(text, sent) || trailer != "end" {
				t.Errorf("%s of %d bytes: %d bytes, trailer %q", path, len(sent), len(text), trailer)
			}
		}
	}
	if big := b.get("/big"); len(big) != len("200 ")+4<<20 {
		t.Errorf("big: %d bytes", len(big))
	}
}

// TestTrailersBeforeBody waits for the trailers of a body. They come when its stream was read or
// dropped, also by the host. A guest that waits before that, and for nothing else, waits for ever:
// wasmtime lets it.
func TestTrailersBeforeBody(t *testing.T) {
	b := serveService(t, Options{}, wasihttp.Limits{})
	for _, sent := range [][]byte{nil, []byte("short"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)} {
		if text, trailer := b.post("/give", sent); !bytes.Equal(text, sent) || trailer != "end" {
			t.Errorf("a body that is sent on: %d bytes of %d, trailer %q", len(text), len(sent), trailer)
		}
		if text, _ := b.post("/known", sent); string(text) != "hello\n" {
			t.Errorf("a body that was dropped: %q", text)
		}
		before := len(b.failed.all())
		if text, _ := b.post("/wait", sent); string(text) != "Internal Server Error\n" {
			t.Errorf("a body that nobody reads: %q", text)
		}
		if said := b.failed.all()[before:]; !strings.Contains(said, "deadlock: it waits for what nothing will tell: trailers come when the body's stream was read or dropped") {
			t.Errorf("a body that nobody reads: the log has %q", said)
		}
	}
}

// TestServiceFailures are those of their requests alone.
func TestServiceFailures(t *testing.T) {
	const failed = "500 Internal Server Error"
	for _, o := range []Options{{}, {Kept: true}} {
		b := serveService(t, o, wasihttp.Limits{})
		for path, want := range map[string]string{
			"/nothing": failed, "/failed": failed, "/trap": failed, "/late": "broken off", "/abort": "broken off",
		} {
			b.want(path, want)
			if got := b.get("/count"); !strings.HasPrefix(got, "200 ") {
				t.Errorf("after %s: %q", path, got)
			}
		}
	}
}

func TestServiceDeadline(t *testing.T) {
	for _, o := range []Options{{}, {Kept: true}} {
		b := serveService(t, o, wasihttp.Limits{Time: 100 * time.Millisecond})
		for range 3 {
			wasitest.Took(t, 100*time.Millisecond, func() { b.want("/sleep", "504 Gateway Timeout") })
			b.want("/count", "200 1ello")
		}
	}
}

func TestServiceBodyIsBounded(t *testing.T) {
	b := serveService(t, Options{}, wasihttp.Limits{Body: 1000})
	if text, _ := b.post("/echo", make([]byte, 1000)); len(text) != 1000 {
		t.Errorf("a body as large as is allowed: %d bytes", len(text))
	}
	response, err := http.Post(b.url+"/echo", "text/plain", struct{ io.Reader }{bytes.NewReader(make([]byte, 1<<20))})
	if err != nil {
		return // broken off
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("a body that is too large: %s, %d bytes", response.Status, len(text))
	}
}

// TestServiceLeavesNothing of requests that end in all ways, those of clients that have gone too.
func TestServiceLeavesNothing(t *testing.T) {
	b := serveService(t, Options{Concurrency: 8}, wasihttp.Limits{Time: 5 * time.Second})
	paths := []string{"/hello", "/unread", "/echo", "/pass", "/open", "/trap", "/late", "/nothing", "/restless", "/failed", "/abort", "/big"}
	request := func(path string, leave bool) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n%s", path, strings.Repeat("x", 50000))
		if leave {
			io.ReadFull(conn, make([]byte, 20))
			return
		}
		io.WriteString(conn, strings.Repeat("y", 50000))
		io.Copy(io.Discard, conn)
	}
	request("/hello", false)
	b.settle(1 << 30)
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for n := range 10 * len(paths) {
		all.Go(func() { request(paths[n%len(paths)], n%3 == 0) })
	}
	all.Wait()
	b.settle(before)
}

// settle waits until no request is active and there are not more goroutines than so many.
func (b *bench) settle(most int) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !b.ahead() || b.server.isBusy() > 0 || runtime.NumGoroutine() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			b.Fatalf("%d requests are active, %d goroutines are left and not %d:\n%s", b.server.isBusy(), runtime.NumGoroutine(), most, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
