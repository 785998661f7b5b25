package wasihttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
)

// asynchronous is a guest of WASI 0.3, with the tasks of one.
func (c *caller) asynchronous() *guest {
	g := c.guest()
	g.instance.ABI().Tasks = async.New(g.instance.System())
	return g
}

// pair makes the ends of a stream or a future.
func (g *guest) pair(of string) (readable, writable uint64) {
	both := g.call3(of)
	return uint64(uint32(both)), both >> 32
}

const (
	newFuture = "future.new:40.8.v"
	newStream = "stream.new:1.1.n"
)

// newRequest3 makes a request of WASI 0.3 with this body, 0 for none, to a host.
func (g *guest) newRequest3(host string, body, trailers uint64) uint64 {
	some := min(body, 1)
	g.call3("[static]request.new", uint64(uint32(g.call3("[constructor]fields"))), some, body, trailers, 0, 0, out)
	r := uint64(g.u32(out))
	at, n := g.put(host)
	g.call3("[method]request.set-authority", r, 1, at, n)
	g.call3("[method]request.set-scheme", r, 1, 0, 0, 0)
	return r
}

// begin3 sends a request without a body, and returns the subtask.
func (g *guest) begin3(host string) uint64 {
	trailers, end := g.pair(newFuture)
	r := g.newRequest3(host, 0, trailers)
	g.call3("future.write:40.8.v:a", end, success)
	return uint64(uint32(g.call3("[async-lower]send", r, out))) >> canonical.SubtaskShift
}

// fetch3 is begin3 and what comes of it: the response.
func (g *guest) fetch3(host string) uint64 {
	if subtask := g.begin3(host); subtask != 0 {
		set := uint64(uint32(g.call3("waitable-set.new")))
		g.call3("waitable.join", subtask, set)
		for uint32(g.call3("waitable-set.poll", set, out+64)) == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if g.u8(out) != 0 {
		panic(fmt.Sprintf("the request has failed: %v", Case(g.u8(out+8))))
	}
	return uint64(g.u32(out + 8))
}

// consume3 takes the body of a response, with a future of its own for how it got on.
func (g *guest) consume3(response uint64) (stream, trailers uint64) {
	res, _ := g.pair(newFuture)
	g.call3("[static]response.consume-body", response, res, out)
	return uint64(g.u32(out)), uint64(g.u32(out + 4))
}

// sip reads some bytes of a stream, if there are some already, and returns what stream.read does.
func (g *guest) sip(stream uint64) uint32 {
	n := uint32(g.call3("stream.read:1.1.n:a", stream, lists, 10))
	if n == 0xffffffff {
		n = uint32(g.call3("stream.cancel-read:1.1.n:a", stream))
	}
	return n
}

// fill takes all handles but some.
func (g *guest) fill(but int) {
	defer func() { recover() }()
	var all []uint32
	abi := g.instance.ABI()
	func() {
		defer func() { recover() }()
		for {
			all = append(all, abi.Add(&requestOptions{}, 0))
		}
	}()
	c := &canonical.Call{Instance: abi}
	for _, handle := range all[len(all)-but:] {
		canonical.Take[*requestOptions](c, uint64(handle))
	}
}

const (
	unknown = 0xfff0 // a handle that is none
	success = 0xf00  // where a result is that has no error and no trailers

	returned = 2 // the state of a subtask that is over
)

// losses are what guests do with an upstream's response, or before it, that ends them.
var losses = map[string]func(g *guest, host string){
	"0.2, the table is full at handle": func(g *guest, host string) {
		r := g.request("GET", "http://"+host+"/")
		g.fill(0)
		g.do("http/outgoing-handler#handle", r, 0, 0, out)
		g.do(types + "[constructor]fields")
	},
	"0.2, the table is full at get": func(g *guest, host string) {
		f, _ := g.send(g.request("GET", "http://"+host+"/"))
		g.await(types+"[method]future-incoming-response.subscribe", f)
		g.fill(0)
		g.do(types+"[method]future-incoming-response.get", f, out)
	},
	"0.2, it traps with all open": func(g *guest, host string) {
		f, _ := g.send(g.request("GET", "http://"+host+"/"))
		response, _ := g.receive(f)
		in := g.own(types+"[method]incoming-response.consume", response)
		g.own(types+"[method]incoming-body.stream", in)
		g.do(types+"[resource-drop]fields", unknown)
	},
	"0.2, wrong options": func(g *guest, host string) {
		f, _ := g.send(g.request("GET", "http://"+host+"/"))
		g.receive(f)
		g.do("http/outgoing-handler#handle", g.request("GET", "http://"+host+"/"), 1, unknown, out)
	},
	"0.3, a wrong future for consume-body": func(g *guest, host string) {
		g.call3("[static]response.consume-body", g.fetch3(host), unknown, out)
	},
	"0.3, wrong trailers for response.new": func(g *guest, host string) {
		stream, _ := g.consume3(g.fetch3(host))
		g.call3("[static]response.new", uint64(uint32(g.call3("[constructor]fields"))), 1, stream, unknown, out)
	},
	"0.3, wrong options for request.new": func(g *guest, host string) {
		stream, trailers := g.consume3(g.fetch3(host))
		g.call3("[static]request.new", uint64(uint32(g.call3("[constructor]fields"))), 1, stream, trailers, 1, unknown, out)
	},
	"0.3, a wrong discriminant for request.new": func(g *guest, host string) {
		stream, trailers := g.consume3(g.fetch3(host))
		g.call3("[static]request.new", uint64(uint32(g.call3("[constructor]fields"))), 1, stream, trailers, 2, 0, out)
	},
	"0.3, the table is full when the response comes": func(g *guest, host string) {
		trailers, end := g.pair(newFuture)
		r := g.newRequest3(host, 0, trailers)
		g.call3("future.write:40.8.v:a", end, success)
		g.fill(0)                                                 // the request's place becomes the subtask's
		if g.call3("[async-lower]send", r, out)&0xf == returned { // it has come already, into the request's place
			g.call3("[constructor]fields")
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			g.call3("thread.yield")
		}
	},
	"0.3, it ends while it waits": func(g *guest, host string) {
		g.begin3(host)
		g.call3("[resource-drop]response", unknown)
	},
	"0.3, it traps while the response is read": func(g *guest, host string) {
		stream, _ := g.consume3(g.fetch3(host))
		g.call3("stream.read:1.1.n:a", stream, lists, 10)
		g.call3("[resource-drop]response", unknown)
	},
	"0.3, it reads on after that": func(g *guest, host string) {
		stream, trailers := g.consume3(g.fetch3(host))
		for range 5 {
			g.sip(stream)
		}
		g.call3("[static]response.new", uint64(uint32(g.call3("[constructor]fields"))), 1, stream, trailers, out)
		g.call3("[static]response.consume-body", uint64(g.u32(out)), unknown, out)
	},
}

// TestLossesOfRequests ends guests in the middle of a request to an upstream, more often than there
// may be requests under way: none stays so, and no goroutine.
func TestLossesOfRequests(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(make([]byte, 100<<10)) // more than fits into a pipe
	}))
	defer s.Close()
	host := s.Listener.Addr().String()
	second, third := newCaller(t), newRandomCaller(t)
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			cl := NewClient(ClientConfig{Root: -1})
			second.client, third.client = cl, cl
			once := func() {
				g := second.guest()
				if strings.HasPrefix(name, "0.3") {
					g.close()
					g = third.asynchronous()
				}
				defer g.close()
				defer func() {
					if r := fmt.Sprint(recover()); !strings.Contains(r, "handle") && !strings.Contains(r, "discriminant") {
						t.Errorf("it ended by %v", r)
					}
				}()
				lose(g, host)
				t.Error("the guest goes on")
			}
			once()
			cl.transport.CloseIdleConnections()
			before := runtime.NumGoroutine()
			for range 20 {
				once()
			}
			settle(t, "requests under way", func() int { return len(cl.slots) }, 0)
			cl.transport.CloseIdleConnections()
			settle(t, "goroutines", runtime.NumGoroutine, before)
		})
	}
}

// settle waits until there are not more than so many of something.
func settle(t testing.TB, what string, count func() int, most int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); count() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d %s are left, not %d:\n%s", count(), what, most, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestDialsEndWithTheirRequests connects to what answers no handshake, and gives up.
func TestDialsEndWithTheirRequests(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	cl := NewClient(ClientConfig{Root: -1})
	defer cl.Close()
	h := &head{method: "GET", headers: &fields.Fields{}, authority: optional{true, mute.Addr().String()}, path: optional{true, "/"}}
	before := runtime.NumGoroutine()
	for range 50 {
		f, err := cl.send(context.Background(), h, nil, requestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		f.Drop()
	}
	settle(t, "goroutines", runtime.NumGoroutine, before)
}

// TestEndWhileSending ends the instance when a request was sent and is not the guest's yet.
func TestEndWhileSending(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	c := newRandomCaller(t)
	over := errors.New("over")
	for n := range 200 {
		g := c.asynchronous()
		trailers, end := g.pair(newFuture)
		r := g.newRequest3(s.Listener.Addr().String(), 0, trailers)
		g.call3("future.write:40.8.v:a", end, success)
		time.AfterFunc(time.Duration(n)*time.Microsecond/2, func() { g.instance.ABI().End(over) })
		func() {
			defer func() { recover() }()
			g.call3("[async-lower]send", r, out)
		}()
		g.close()
	}
	settle(t, "requests under way", func() int { return len(c.client.slots) }, 0)
}
