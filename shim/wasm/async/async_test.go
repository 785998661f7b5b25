package async

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// guest calls the built-ins, and the functions of a world that gives it ends of the host's.
type guest struct {
	*testing.T
	instance *canonical.Instance
	tasks    *Tasks
	ctx      context.Context
	mod      api.Module
}

// source gives what it has, in parts, and then ends; sink takes so much at a time.
type source struct {
	parts  []string
	event  wasi.Event // that it waits for between parts
	closed int
}

func (s *source) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: &s.event}, true
}
func (s *source) Close() { s.closed++ }

func (s *source) Read(c *canonical.Call, at, n uint32) (uint32, error) {
	read, err := s.ReadBytes(c.View(at, uint64(n)))
	return uint32(read), err
}

func (s *source) ReadBytes(b []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; n == 0 || s.parts[0] == "" {
		s.parts = s.parts[1:]
	}
	return n, nil
}

type sink struct {
	got    strings.Builder
	room   int
	closed int
}

func (s *sink) WaitsFor() (wasi.Subscription, bool) { return wasi.Subscription{}, false }
func (s *sink) Close()                              { s.closed++ }

func (s *sink) Write(b []byte) (int, error) {
	n := min(len(b), s.room)
	s.got.Write(b[:n])
	return n, nil
}

const iface = "test:test/all"

var builtIns = []string{
	"stream.new:1.1.n", "stream.read:1.1.n:a", "stream.read:1.1.n", "stream.write:1.1.n:a", "stream.cancel-read:1.1.n", "stream.cancel-write:1.1.n",
	"stream.drop-readable:1.1.n", "stream.drop-writable:1.1.n", "stream.new:4.4.v", "stream.read:4.4.v:a", "stream.write:4.4.v:a",
	"future.new:1.1.n", "future.read:1.1.n:a", "future.read:1.1.n", "future.drop-writable:1.1.n", "waitable-set.new", "waitable-set.wait",
	"waitable-set.poll", "waitable-set.drop", "waitable.join", "error-context.new", "error-context.debug-message", "error-context.drop",
	"subtask.cancel", "subtask.drop", "task.return:i", Next, Finish, "task.cancel", "thread.yield", "backpressure.dec",
}

func newGuest(t *testing.T, from *source, to *sink, promise *Promise) *guest {
	t.Helper()
	system := wasi.New()
	t.Cleanup(system.Close)
	world := canonical.World{Name: "test", Interfaces: map[string][]canonical.Function{iface: {
		{Name: "source", Results: "i", Call: func(c *canonical.Call, p []uint64, _ uint32) error {
			p[0] = uint64(NewStream(c, Byte, from))
			return nil
		}},
		{Name: "sink", Params: "i", Call: func(c *canonical.Call, p []uint64, _ uint32) error {
			Drain(c, p[0], to)
			return nil
		}},
		{Name: "promise", Results: "i", Call: func(c *canonical.Call, p []uint64, _ uint32) error {
			p[0] = uint64(promise.Give(c, Byte))
			return nil
		}},
		{Name: "sleep", Params: "I", Async: true, Call: func(_ *canonical.Call, p []uint64, _ uint32) error {
			return &Timer{System: system, Due: system.Monotonic() + int64(p[0])}
		}},
	}}}
	var functions []wasitest.Lowered
	var imports []canonical.Import
	add := func(module, name, params, results string, o canonical.Options) {
		as := canonical.ImportName(name, o)
		functions = append(functions, wasitest.Lowered{Module: module, Name: as, Params: params, Results: results})
		imports = append(imports, canonical.Import{Module: module, Name: as, Interface: module, Function: name, Options: o})
	}
	for _, name := range builtIns {
		f, err := canonical.Find(canonical.BuiltIns, name, World())
		if err != nil {
			t.Fatal(err)
		}
		add(canonical.BuiltIns, name, f.Params, f.Results, canonical.Options{Realloc: wasitest.ReallocName})
	}
	for _, f := range world.Interfaces[iface] {
		add(iface+"@0.2.0", f.Name, f.Params, f.Results, canonical.Options{})
	}
	add(iface+"@0.2.0", "sleep", "I", "i", canonical.Options{Async: true})
	g := &guest{T: t, instance: &canonical.Instance{}, tasks: New(system)}
	g.instance.Tasks = g.tasks
	g.ctx = canonical.With(context.Background(), g.instance)
	r := wasitest.Runtime(g.ctx)
	t.Cleanup(func() { r.Close(g.ctx) })
	if err := canonical.Provide(g.ctx, r, imports, world, World()); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.mod, err = r.InstantiateWithConfig(g.ctx, wasitest.Component(functions, 4), wazero.NewModuleConfig()); err != nil {
		t.Fatal(err)
	}
	return g
}

// try calls a function: a built-in, or one of the world by "!" and its name.
func (g *guest) try(name string, params ...uint64) (uint64, error) {
	g.Helper()
	export := canonical.BuiltIns + "#" + name + "#" + wasitest.ReallocName
	if own, ok := strings.CutPrefix(name, "!"); ok {
		export = iface + "@0.2.0#" + own
	}
	f := g.mod.ExportedFunction(export)
	if f == nil {
		g.Fatalf("no function %q", export)
	}
	results, err := f.Call(g.ctx, params...)
	if err != nil || len(results) == 0 {
		return 0, err
	}
	if f.Definition().ResultTypes()[0] == api.ValueTypeI32 {
		return uint64(api.DecodeU32(results[0])), nil
	}
	return results[0], nil
}

func (g *guest) is(want uint64, name string, params ...uint64) {
	g.Helper()
	if got, err := g.try(name, params...); err != nil || got != want {
		g.Errorf("%s%v: %#x, %v, want %#x", name, params, got, err, want)
	}
}

func (g *guest) do(name string, params ...uint64) uint64 {
	g.Helper()
	v, err := g.try(name, params...)
	if err != nil {
		g.Fatalf("%s%v: %v", name, params, err)
	}
	return v
}

func (g *guest) trap(want, name string, params ...uint64) {
	g.Helper()
	var trap *canonical.Trap
	if _, err := g.try(name, params...); !errors.As(err, &trap) || !strings.Contains(trap.Text, want) {
		g.Errorf("%s%v: %v, want a trap with %q", name, params, err, want)
	}
}

func (g *guest) text(at, length uint32) string {
	b, _ := g.mod.Memory().Read(at, length)
	return string(b)
}

const at, other = 0x1000, 0x2000

// TestSource reads what the host has: at once, when it comes, and the end.
func TestSource(t *testing.T) {
	from := &source{parts: []string{"one", "", "three"}}
	g := newGuest(t, from, nil, nil)
	s := g.do("!source")
	g.is(2<<4, "stream.read:1.1.n:a", s, at, 2)
	g.is(1<<4, "stream.read:1.1.n:a", s, at+2, 10)
	g.is(blocked, "stream.read:1.1.n:a", s, at+3, 10)
	g.trap("in use", "stream.read:1.1.n:a", s, at, 1)
	g.trap("in use", "stream.drop-readable:1.1.n", s)
	set := g.do("waitable-set.new")
	g.do("waitable.join", s, set)
	g.is(0, "waitable-set.poll", set, other)
	g.trap("not empty", "waitable-set.drop", set)
	from.event.Set()
	g.is(uint64(eventStreamRead), "waitable-set.wait", set, other)
	g.trap("in a waitable set", "stream.read:1.1.n", s, at, 1)
	g.is(1, "stream.read:1.1.n:a", s, at+8, 10) // dropped
	if got := g.text(at, 8); got != "onethree" || from.closed != 1 {
		t.Errorf("read %q, closed %d times", got, from.closed)
	}
	g.trap("or done", "stream.read:1.1.n:a", s, at, 1)
	g.do("stream.drop-readable:1.1.n", s)
	if from.closed != 1 {
		t.Errorf("closed %d times", from.closed)
	}
}

// TestSink writes to the host: before it reads, in parts, and the end. A write that waits is
// cancelled.
func TestSink(t *testing.T) {
	to := &sink{room: 3}
	g := newGuest(t, nil, to, nil)
	both := g.do("stream.new:1.1.n")
	r, w := both&0xffffffff, both>>32
	g.mod.Memory().WriteString(at, "abcdef")
	g.is(blocked, "stream.write:1.1.n:a", w, at, 6)
	g.do("!sink", r)
	set := g.do("waitable-set.new")
	g.do("waitable.join", w, set)
	g.is(uint64(eventStreamWrite), "waitable-set.poll", set, other)
	if told, _ := g.mod.Memory().ReadUint32Le(other + 4); told != 3<<4 {
		t.Errorf("told %#x", told)
	}
	g.is(3<<4, "stream.write:1.1.n:a", w, at+3, 3)
	to.room = 0
	g.is(blocked, "stream.write:1.1.n:a", w, at, 6)
	g.trap("in a waitable set", "stream.cancel-write:1.1.n", w)
	g.do("waitable.join", w, 0)
	g.is(uint64(copyCancelled), "stream.cancel-write:1.1.n", w)
	g.trap("no copy to cancel", "stream.cancel-write:1.1.n", w)
	g.do("stream.drop-writable:1.1.n", w)
	if to.got.String() != "abcdef" || to.closed != 1 {
		t.Errorf("wrote %q, closed %d times", to.got.String(), to.closed)
	}
	g.trap("wrong type", "stream.read:1.1.n:a", r, at, 1) // it was given away, and the set has its number
}

// TestSplice moves what the host has to the host, while the guest waits for something else.
func TestSplice(t *testing.T) {
	from, to := &source{parts: []string{"one", "two"}}, &sink{room: 2}
	from.event.Set()
	g := newGuest(t, from, to, nil)
	g.do("!sink", g.do("!source"))
	for range 20 {
		g.do("thread.yield")
	}
	if to.got.String() != "onetwo" || from.closed != 1 || to.closed != 1 || len(g.tasks.work) != 0 {
		t.Errorf("moved %q, closed %d and %d times, %d are left", to.got.String(), from.closed, to.closed, len(g.tasks.work))
	}
}

// TestPromise reads a future of the host's before and after it is kept.
func TestPromise(t *testing.T) {
	p := &Promise{}
	g := newGuest(t, nil, nil, p)
	f := g.do("!promise")
	g.is(blocked, "future.read:1.1.n:a", f, at)
	set := g.do("waitable-set.new")
	g.do("waitable.join", f, set)
	g.trap("deadlock", "waitable-set.wait", set, other)
	p.Keep(func(c *canonical.Call, at uint32) { c.Put8(at, 7) })
	p.Keep(func(c *canonical.Call, at uint32) { c.Put8(at, 8) })
	g.is(uint64(eventFutureRead), "waitable-set.poll", set, other)
	if g.text(at, 1) != "\x07" {
		t.Errorf("read %q", g.text(at, 1))
	}
	g.trap("or done", "future.read:1.1.n:a", f, at)
}

// TestOwnEnds are a stream and a future that the guest has both ends of.
func TestOwnEnds(t *testing.T) {
	g := newGuest(t, nil, nil, nil)
	both := g.do("stream.new:4.4.v")
	g.is(blocked, "stream.read:4.4.v:a", both&0xffffffff, at, 1)
	g.trap("no numbers", "stream.write:4.4.v:a", both>>32, at, 1)
	g.trap("wrong type", "stream.write:1.1.n:a", both>>32, at, 1)
	both = g.do("future.new:1.1.n")
	g.trap("before it has written", "future.drop-writable:1.1.n", both>>32)
	g.trap("deadlock", "future.read:1.1.n", both&0xffffffff, at)
	both = g.do("stream.new:1.1.n")
	g.is(blocked, "stream.write:1.1.n:a", both>>32, at, 0)
	g.is(blocked, "stream.read:1.1.n:a", both&0xffffffff, at, 4) // and the writer is told
	g.trap("out of bounds", "stream.write:1.1.n:a", g.do("stream.new:1.1.n")>>32, 0xffff0000, 0x100)
	g.trap("more than", "stream.write:1.1.n:a", g.do("stream.new:1.1.n")>>32, 0, 1<<28)
}

// TestSubtask waits for a time, asynchronously and not, and is cancelled.
func TestSubtask(t *testing.T) {
	g := newGuest(t, nil, nil, nil)
	g.do("!sleep", 1e6)
	packed := g.do("![async-lower]sleep", 1e6)
	if packed&15 != canonical.SubtaskStarted {
		t.Fatalf("state %d", packed&15)
	}
	s, set := packed>>4, g.do("waitable-set.new")
	g.trap("before its end was told", "subtask.drop", s)
	g.do("waitable.join", s, set)
	g.is(uint64(eventSubtask)<<60|s<<32|canonical.SubtaskReturned, Next, set<<4|codeWait)
	g.trap("has ended", "subtask.cancel", s)
	g.do("subtask.drop", s)
	s = g.do("![async-lower]sleep", 1e15) >> 4
	g.is(canonical.SubtaskCancelled, "subtask.cancel", s)
	g.do("subtask.drop", s)
	if len(g.tasks.work) != 0 {
		t.Errorf("%d are left", len(g.tasks.work))
	}
	g.do("![async-lower]sleep", 1e15)
	g.instance.Close()
	if len(g.tasks.work) != 0 {
		t.Errorf("%d are left at the end", len(g.tasks.work))
	}
}

// TestTask returns once, and ends.
func TestTask(t *testing.T) {
	g := newGuest(t, nil, nil, nil)
	g.trap("has not returned", Finish)
	g.trap("was not asked", "task.cancel")
	g.trap("which is not known", Next, 3)
	g.trap("backpressure", "backpressure.dec")
	g.is(0, Next, codeYield)
	g.do("task.return:i", 1)
	g.trap("second time", "task.return:i", 0)
	g.is(1, Finish)
}

// TestErrorContext keeps a text, cut between characters.
func TestErrorContext(t *testing.T) {
	g := newGuest(t, nil, nil, nil)
	g.mod.Memory().WriteString(at, "x"+strings.Repeat("ü", maxText))
	e := g.do("error-context.new", at, 1+2*maxText)
	g.do("error-context.debug-message", e, other+0x4000)
	length, _ := g.mod.Memory().ReadUint32Le(other + 0x4004)
	if length != maxText-1 {
		t.Errorf("%d bytes", length)
	}
	g.trap("not aligned", "error-context.debug-message", e, 1)
	g.do("error-context.drop", e)
	g.trap("unknown handle", "error-context.drop", e)
}

// TestNames are those that are read back, and none else.
func TestNames(t *testing.T) {
	for _, n := range []Name{
		{Op: "stream.read", Element: &Element{24, 8, false}, Async: true}, {Op: "future.new", Element: &Nothing},
		{Op: "context.get", Slot: 1}, {Op: "task.return", Flat: "iI"}, {Op: "subtask.cancel", Async: true}, {Op: "waitable.join"},
	} {
		if _, err := canonical.Find(canonical.BuiltIns, n.String(), World()); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "stream.read", "stream.read:1.3.n", "stream.read:1.1.x", "stream.fly:1.1.n", "river.new:1.1.n", "context.get:2", "task.return:f", "thread.index", "stream.new:9999999.1.n"} {
		if _, err := canonical.Find(canonical.BuiltIns, name, World()); err == nil {
			t.Errorf("%q is there", name)
		}
	}
}
