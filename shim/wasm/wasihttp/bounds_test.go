package wasihttp

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/lull"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// A text of 100 KiB and one of 60,000 bytes, in the memory of a greedy guest.
const (
	long  = 0x20000
	texts = 100 << 10
)

// greed is what a guest does again and again to make its host's memory grow, and what ends it.
type greed struct {
	bound string // of the trap, "" for none: what is made has a place of its own elsewhere
	times int
	more  func(g *guest, host string)
}

const handles, held = "more than 65536 handles", "handles that hold more than 100663296 bytes"

// greeds are those of constructors, and of what makes a resource larger.
var greeds = map[string]greed{
	"0.2 fields": {held, 1 << 17, func(g *guest, _ string) {
		f := g.do(types + "[constructor]fields")
		g.do(types+"[method]fields.append", f, long, 1, long, texts, out)
	}},
	"0.2 fields that are set": {held, 1 << 17, func(g *guest, _ string) {
		f := g.do(types + "[constructor]fields")
		g.mem.WriteUint32Le(0x800, long)
		g.mem.WriteUint32Le(0x804, texts)
		g.do(types+"[method]fields.set", f, long, 1, 0x800, 1, out)
	}},
	"0.2 empty fields": {handles, 1 << 17, func(g *guest, _ string) { g.do(types + "[constructor]fields") }},
	"0.2 entries that come and go": {"", 1 << 12, func(g *guest, _ string) {
		f := g.do(types + "[constructor]fields")
		g.do(types+"[method]fields.append", f, long, 1, long, texts, out)
		g.do(types+"[method]fields.delete", f, long, 1, out)
	}},
	"0.2 headers": {held, 1 << 17, func(g *guest, _ string) {
		f := g.do(types + "[constructor]fields")
		g.do(types+"[method]fields.append", f, long, 1, long, texts, out)
		g.do(types+"[method]outgoing-request.headers", g.do(types+"[constructor]outgoing-request", f))
	}},
	"0.2 clones": {held, 1 << 17, func(g *guest, _ string) {
		f := g.do(types + "[constructor]fields")
		g.do(types+"[method]fields.append", f, long, 1, long, texts, out)
		for range 100 {
			g.do(types+"[method]fields.clone", f)
		}
	}},
	"0.2 methods and authorities": {held, 1 << 17, func(g *guest, _ string) {
		r := g.do(types+"[constructor]outgoing-request", g.do(types+"[constructor]fields"))
		g.do(types+"[method]outgoing-request.set-authority", r, 1, long, 60000)
		g.do(types+"[method]outgoing-request.set-method", r, 9, long, 60000)
	}},
	"0.2 bodies": {held, 1 << 17, func(g *guest, _ string) {
		r := g.do(types+"[constructor]outgoing-request", g.do(types+"[constructor]fields"))
		body := g.own(types+"[method]outgoing-request.body", r)
		stream := g.own(types+"[method]outgoing-body.write", body)
		for range 16 {
			g.do(output+"blocking-write-and-flush", stream, long, 4096, out)
		}
		g.finish(body, stream)
	}},
	"0.2 bodies that are empty": {handles, 1 << 17, func(g *guest, _ string) {
		r := g.do(types+"[constructor]outgoing-response", g.do(types+"[constructor]fields"))
		g.own(types+"[method]outgoing-response.body", r)
	}},
	"0.2 options":   {handles, 1 << 17, func(g *guest, _ string) { g.do(types + "[constructor]request-options") }},
	"0.2 pollables": {handles, 1 << 17, func(g *guest, _ string) { g.do("clocks/monotonic-clock#subscribe-duration", 1<<40) }},
	"0.2 bodies of responses": {held, 1 << 17, func(g *guest, _ string) {
		r := g.do(types+"[constructor]outgoing-response", g.do(types+"[constructor]fields"))
		stream := g.own(types+"[method]outgoing-body.write", g.own(types+"[method]outgoing-response.body", r))
		for range 16 {
			g.do(output+"blocking-write-and-flush", stream, long, 4096, out)
		}
	}},
	"0.2 bodies of responses that were sent": {"", 1 << 12, func(g *guest, _ string) {
		e := newExchange(new(lull.Timer))
		body := g.respond(uint64(g.instance.ABI().Add(&responseOutparam{e}, 0)), 200)
		stream := g.own(types+"[method]outgoing-body.write", body)
		for range 16 {
			g.do(output+"blocking-write-and-flush", stream, long, 4096, out)
		}
		e.finish(nil)
		io.Copy(io.Discard, e.response.body.pipe)
	}},
	"0.2 bodies of responses that come too late": {"", 1 << 12, func(g *guest, _ string) {
		e := newExchange(new(lull.Timer))
		e.finish(nil)
		r := g.do(types+"[constructor]outgoing-response", g.do(types+"[constructor]fields"))
		stream := g.own(types+"[method]outgoing-body.write", g.own(types+"[method]outgoing-response.body", r))
		for range 16 {
			g.do(output+"blocking-write-and-flush", stream, long, 4096, out)
		}
		g.do(types+"[static]response-outparam.set", uint64(g.instance.ABI().Add(&responseOutparam{e}, 0)), 0, r, 0, 0, 0, 0, 0, 0)
	}},
	"0.2 trailers": {held, 1 << 17, func(g *guest, _ string) {
		r := g.do(types+"[constructor]outgoing-request", g.do(types+"[constructor]fields"))
		body, f := g.own(types+"[method]outgoing-request.body", r), g.do(types+"[constructor]fields")
		g.do(types+"[method]fields.append", f, long, 1, long, texts, out)
		g.do(types+"[static]outgoing-body.finish", body, 1, f, out)
	}},
	"0.2 requests that have arrived": {held, 1 << 17, func(g *guest, _ string) { g.arrive(many(1700), http.NoBody) }},
	"0.2 bodies that have arrived": {held, 1 << 17, func(g *guest, _ string) {
		r := g.arrive(nil, strings.NewReader(""))
		g.own(types+"[method]incoming-request.consume", r)
		g.do(types+"[resource-drop]incoming-request", r)
	}},
	"0.2 trailers that have arrived": {held, 1 << 17, func(g *guest, _ string) {
		r := g.arrive(nil, strings.NewReader(""))
		g.do(types+"[static]incoming-body.finish", g.own(types+"[method]incoming-request.consume", r))
		g.do(types+"[resource-drop]incoming-request", r)
	}},
	"0.2 readers of bodies": {held, 1 << 17, func(g *guest, _ string) {
		g.do(input+"read", g.own(types+"[method]incoming-body.stream", g.own(types+"[method]incoming-request.consume", g.arrive(nil, http.NoBody))), 1, out)
	}},
	"0.2 responses that have arrived": {held, 1 << 11, func(g *guest, host string) {
		f, _ := g.send(g.request("GET", "http://"+host+"/"))
		r, _ := g.receive(f)
		in := g.own(types+"[method]incoming-response.consume", r)
		g.do(types+"[resource-drop]incoming-body", in)
	}},
	"0.2 requests under way": {"", 1 << 12, func(g *guest, host string) {
		g.send(g.request("GET", "http://"+host+"/never"))
	}},
	"0.3 error contexts": {held, 1 << 17, func(g *guest, _ string) { g.call3("error-context.new", long, texts) }},
	"0.3 sets":           {handles, 1 << 17, func(g *guest, _ string) { g.call3("waitable-set.new") }},
	"0.3 streams": {handles, 1 << 17, func(g *guest, _ string) {
		_, w := g.pair(newStream)
		g.call3("stream.write:1.1.n:a", w, long, texts)
		g.call3("waitable.join", w, uint64(uint32(g.call3("waitable-set.new"))))
	}},
	"0.3 futures": {handles, 1 << 17, func(g *guest, _ string) {
		_, w := g.pair(newFuture)
		g.call3("future.write:40.8.v:a", w, success)
	}},
	"0.3 options": {handles, 1 << 17, func(g *guest, _ string) { g.call3("[constructor]request-options") }},
	"0.3 requests": {held, 1 << 17, func(g *guest, _ string) {
		trailers, _ := g.pair(newFuture)
		r := g.newRequest3("h", 0, trailers)
		g.call3("[method]request.set-authority", r, 1, long, 60000)
	}},
	"0.3 headers of responses": {held, 1 << 17, func(g *guest, _ string) {
		trailers, _ := g.pair(newFuture)
		f := uint64(uint32(g.call3("[constructor]fields")))
		g.call3("[method]fields.append", f, long, 1, long, texts, out)
		g.call3("[static]response.new", f, 0, 0, trailers, out)
	}},
	"0.3 entries that come and go": {"", 1 << 12, func(g *guest, _ string) {
		g.mem.WriteString(long, strings.Repeat("a", 60000)) // answers are written over it
		f := uint64(uint32(g.call3("[constructor]fields")))
		g.call3("[method]fields.append", f, long, 60000, long, 1, out)
		g.call3("[method]fields.get-and-delete", f, long, 60000, out)
	}},
	"0.3 requests that have arrived": {held, 1 << 17, func(g *guest, _ string) { g.arrive3(strings.NewReader("")) }},
	"0.3 requests without bodies":    {handles, 1 << 17, func(g *guest, _ string) { g.arrive3(http.NoBody) }},
	"0.3 streams that have arrived": {held, 1 << 17, func(g *guest, _ string) {
		_, trailers := g.consumeRequest3()
		g.call3("future.drop-readable:40.8.v", trailers)
	}},
	"0.3 trailers that have arrived": {held, 1 << 17, func(g *guest, _ string) {
		stream, _ := g.consumeRequest3()
		g.call3("stream.drop-readable:1.1.n", stream)
	}},
	"0.3 responses":                   {handles, 1 << 17, func(g *guest, _ string) { g.newResponse3(0) }},
	"0.3 responses that are consumed": {handles, 1 << 17, func(g *guest, _ string) { g.consume3(g.newResponse3(0)) }},
	"0.3 responses that have arrived": {"", 1 << 10, func(g *guest, host string) { // an end has nothing of them
		stream, trailers := g.consume3(g.fetch3(host))
		g.call3("future.drop-readable:40.8.v", trailers)
		for g.sip(stream) != 1 {
			time.Sleep(100 * time.Microsecond)
		}
	}},
	"0.3 requests under way": {"", 1 << 12, func(g *guest, host string) { g.begin3(host) }},
	"0.3 a chain of futures": {"more than 1000 futures from the host to the host", 1 << 17, func(g *guest, _ string) { g.link() }},
}

// many is a head of so many fields without values.
func many(n int) http.Header {
	h := http.Header{}
	for i := range n {
		h[strconv.Itoa(i)] = []string{""}
	}
	return h
}

// arriving is a request that has arrived with this head and body, and is over.
func (g *guest) arriving(header http.Header, body io.Reader) *incomingRequest {
	in := newIncoming(body, noTrailers, requestCode)
	if body != http.NoBody {
		in.held = pipe.Size
	}
	return arrived(&http.Request{Header: header, URL: &url.URL{}}, in, fields.Size(header, nil))
}

func (g *guest) arrive(header http.Header, body io.Reader) uint64 {
	return uint64(g.instance.ABI().Add(g.arriving(header, body), 0))
}

// arrive3 is arrive of WASI 0.3.
func (g *guest) arrive3(body io.Reader) uint64 {
	abi, r := g.instance.ABI(), g.arriving(nil, body)
	r.fields()
	return uint64(abi.Add(&request{head: r.head, body: arriving(abi.Tasks.(*async.Tasks), r.body)}, 0))
}

// consumeRequest3 takes the body of a request that has arrived.
func (g *guest) consumeRequest3() (stream, trailers uint64) {
	res, end := g.pair(newFuture)
	g.call3("[static]request.consume-body", g.arrive3(strings.NewReader("")), res, out)
	g.call3("future.write:40.8.v:a", end, success)
	g.call3("future.drop-writable:40.8.v", end)
	return uint64(g.u32(out)), uint64(g.u32(out + 4))
}

// newResponse3 makes a response of WASI 0.3 whose trailers are written at some time.
func (g *guest) newResponse3(body uint64) uint64 {
	trailers, _ := g.pair(newFuture)
	g.call3("[static]response.new", uint64(uint32(g.call3("[constructor]fields"))), min(body, 1), body, trailers, out)
	return uint64(g.u32(out))
}

// link consumes a response and has another one's future say how that went. It keeps one handle: of
// the future that tells it of the last response.
func (g *guest) link() {
	trailers, end := g.pair(newFuture)
	g.call3("[static]response.new", uint64(uint32(g.call3("[constructor]fields"))), 0, 0, trailers, out)
	response, sent := uint64(g.u32(out)), uint64(g.u32(out+4))
	if g.last == 0 {
		g.first, g.last = response, sent
		return
	}
	g.call3("[static]response.consume-body", response, g.last, out)
	g.last = sent
	g.call3("stream.drop-readable:1.1.n", uint64(g.u32(out)))
	g.call3("future.drop-readable:40.8.v", uint64(g.u32(out+4)))
	g.call3("future.write:40.8.v:a", end, success)
	g.call3("future.drop-writable:40.8.v", end)
}

// TestGreed measures how far guests make their host's memory grow.
func TestGreed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the heap is small
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" {
			<-r.Context().Done()
		}
		w.Header().Set("Long", strings.Repeat("l", 100<<10))
	}))
	defer s.Close()
	second, third := newCaller(t), newRandomCaller(t)
	client := NewClient(ClientConfig{Root: -1})
	defer client.Close()
	second.client, third.client = client, client
	for name, of := range greeds {
		t.Run(name, func(t *testing.T) {
			g := second.guest()
			if strings.HasPrefix(name, "0.3") {
				g.close()
				g = third.asynchronous()
			}
			defer g.close()
			g.mem.WriteString(long, strings.Repeat("a", texts))
			before := heap()
			end, times := g.again(of, s.Listener.Addr().String())
			grown := heap() - before
			t.Logf("%d times, %d KiB", times, grown>>10)
			if !strings.Contains(end, of.bound) || of.bound == "" && !strings.Contains(end, "limit-reached") && end != "" {
				t.Errorf("ended by %q, not %q", end, of.bound)
			}
			if grown > 2*canonical.MaxBytes {
				t.Errorf("the host's memory has grown by %d KiB", grown>>10)
			}
		})
	}
}

// again does something until it is the guest's end.
func (g *guest) again(of greed, host string) (end string, times int) {
	defer func() {
		if r := recover(); r != nil {
			end = fmt.Sprint(r)
		}
	}()
	for times = range of.times {
		of.more(g, host)
	}
	return "", times
}

// heap is what is in use of it, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // pools have their second chance behind them
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestChainOfFutures ends as a whole when its first future does.
func TestChainOfFutures(t *testing.T) {
	g := newRandomCaller(t).asynchronous()
	defer g.close()
	for range 900 {
		g.link()
	}
	if r := uint32(g.call3("future.read:40.8.v:a", g.last, out)); r != 0xffffffff {
		t.Fatalf("the last future has a value already: %#x", r)
	}
	set := uint64(uint32(g.call3("waitable-set.new")))
	g.call3("waitable.join", g.last, set)
	g.call3("[resource-drop]response", g.first)
	if event := uint32(g.call3("waitable-set.poll", set, out+64)); event != 4 || g.u8(out) != 1 {
		t.Errorf("event %d, a result of case %d", event, g.u8(out))
	}
}
