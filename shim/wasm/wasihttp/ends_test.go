package wasihttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

func (g *guest) call3(name string, p ...uint64) uint64 {
	r, err := g.mod.ExportedFunction(exportOf(name)).Call(g.ctx, p...)
	if err != nil {
		panic(fmt.Errorf("%s: %w", name, err))
	}
	if len(r) == 0 {
		return 0
	}
	return r[0]
}

// openResponse makes a guest return a response whose body stays open and whose trailers are being
// written.
func openResponse(g *guest) {
	const blocked = 0xffffffff
	h := uint64(uint32(g.call3("[constructor]fields")))
	s, f := g.call3("stream.new:1.1.n"), g.call3("future.new:40.8.v")
	g.call3("[static]response.new", h, 1, uint64(uint32(s)), uint64(uint32(f)), out)
	g.call3("task.return:iiiIiiii", 0, uint64(g.u32(out)), 0, 0, 0, 0, 0, 0)
	if r := uint32(g.call3("future.write:40.8.v:a", f>>32, lists)); r != blocked {
		panic(fmt.Sprintf("write %#x", r))
	}
}

// asyncGuest is a guest of WASI 0.3 that a test plays.
type asyncGuest struct {
	*guest
	play func(g *guest)
}

func (l *asyncGuest) Context() context.Context { return l.ctx }
func (l *asyncGuest) Stop(reason error)        { l.instance.End(reason) }
func (l *asyncGuest) Async() bool              { return true }
func (l *asyncGuest) Release(error)            { l.close() }

func (l *asyncGuest) Handle(context.Context, ...uint64) error {
	l.play(l.guest)
	return nil
}

type asyncGuests struct {
	c    *caller
	play func(g *guest)
}

func (a asyncGuests) Take(context.Context, time.Time) (Guest, error) {
	g := a.c.guest()
	g.instance.ABI().Tasks = async.New(g.instance.System())
	return &asyncGuest{g, a.play}, nil
}

// TestEndOfOpenResponse ends a guest that has left its response's body and trailers open: nothing
// of its memory is read any more, whatever is in it, and nothing is added to what is being sent.
func TestEndOfOpenResponse(t *testing.T) {
	c := newRandomCaller(t)
	for name, fill := range map[string]func(g *guest){
		"invalid": func(g *guest) { g.mem.WriteByte(lists, 7) },
		"many": func(g *guest) {
			f := &fields.Fields{}
			for n := range 1400 {
				if err := f.Add(fmt.Sprintf("x-%d", n), "v"); err != nil {
					panic(err)
				}
			}
			g.mem.WriteByte(lists, 0)
			g.mem.WriteByte(lists+8, 1)
			g.mem.WriteUint32Le(lists+12, g.instance.ABI().Add(f, 0))
		},
	} {
		h := &Handler{Instances: asyncGuests{c, func(g *guest) { openResponse(g); fill(g) }}}
		for range 100 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			h.Wait()
			if r := w.Result(); r.StatusCode != http.StatusOK || len(r.Trailer) > 0 {
				t.Fatalf("%s: %s with %d trailers", name, r.Status, len(r.Trailer))
			}
		}
	}
}

// endless is a body that comes slowly and has no end.
type endless struct{ over atomic.Bool }

func (b *endless) Read(p []byte) (int, error) {
	if b.over.Load() {
		return 0, io.EOF
	}
	time.Sleep(time.Millisecond)
	return len(p), nil
}

// TestPassedOnIsGivenUp passes an upstream's response on. When its client leaves, and when the
// time of the request is over, the upstream is given up at once.
func TestPassedOnIsGivenUp(t *testing.T) {
	for name, leaves := range map[string]bool{"the client leaves": true, "the time is over": false} {
		system := wasi.New()
		tasks := async.New(system)
		i := &canonical.Instance{Tasks: tasks}
		body, released := &endless{}, make(chan struct{})
		in := newIncoming(body, noTrailers, requestCode)
		in.release = func() { close(released) }
		to, err := arriving(tasks, in).send(&fields.Fields{}, ResponseBodySize)
		if err != nil {
			t.Fatal(err)
		}
		after := time.AfterFunc(20*time.Millisecond, func() {
			if leaves {
				to.pipe.CloseRead(pipe.ErrUnread)
				return
			}
			i.End(ErrDeadline)
			system.Cancel()
		})
		err = settled(tasks, i)
		if leaves != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		after.Stop()
		i.Close()
		select {
		case <-released:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the upstream is kept", name)
		}
		body.over.Store(true)
		system.Close()
	}
}

// TestStalledRequestBody waits for a response longer than it may, while the request's body has no
// end.
func TestStalledRequestBody(t *testing.T) {
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer s.Close()
	defer close(over)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	cl := NewClient(ClientConfig{Root: -1})
	defer cl.Close()
	body, err := newOutgoing(&fields.Fields{}, RequestBodySize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := body.pipe.TryWrite([]byte("the first part")); err != nil {
		t.Fatal(err)
	}
	h := &head{method: "POST", headers: &fields.Fields{}, scheme: optional{true, "http"}, authority: optional{true, u.Host}, path: optional{true, "/"}}
	f, err := cl.send(context.Background(), h, body, requestOptions{firstByte: timeout{true, uint64(100 * time.Millisecond)}})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for !f.arrived.IsSet() {
		if time.Now().After(deadline) {
			t.Fatal("the request does not end")
		}
		time.Sleep(time.Millisecond)
	}
	var failed ErrorCode
	if !errors.As(f.err, &failed) || failed.Case != ConnectionReadTimeout {
		t.Errorf("got %v", f.err)
	}
}
