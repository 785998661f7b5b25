package canonical

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// thing and other are resources.
type thing struct{ dropped int }
type other struct{}

func (t *thing) Drop() { t.dropped++ }
func (*other) Drop()   {}

var errOwn = errors.New("own")

// world has functions with each shape of an answer.
func world(wait chan struct{}) World {
	return World{Name: "test:test", Interfaces: map[string][]Function{"test:test/all": {
		{Name: "get", Params: "i", Call: func(c *Call, p []uint64, _ uint32) error { Get[*thing](c, p[0]); return nil }},
		{Name: "take", Params: "i", Call: func(c *Call, p []uint64, _ uint32) error { Take[*thing](c, p[0]); return nil }},
		{Name: "drop", Params: "i", Call: Drop[*thing]},
		{Name: "wait", Call: func(*Call, []uint64, uint32) error { <-wait; return nil }},
		{Name: "fail", Params: "ii", Reallocs: true, Answer: Result(24, 8, func(c *Call, at uint32, err error) {
			c.Put8(at, 7)
			c.PutText(at+8, err.Error())
		}), Call: func(_ *Call, p []uint64, _ uint32) error {
			if uint32(p[0]) == 0 {
				return nil
			}
			return errOwn
		}},
	}}}
}

// guest is an instance that calls the world.
type guest struct {
	*Instance
	t   *testing.T
	mod api.Module
}

const iface = "test:test/all@0.2.0"

// twoGuests are instances of one module, in one runtime.
func twoGuests(t *testing.T, wait chan struct{}) (one, two *guest) {
	t.Helper()
	ctx := context.Background()
	r := wasitest.Runtime(ctx)
	t.Cleanup(func() { r.Close(ctx) })
	var functions []wasitest.Lowered
	var imports []Import
	for _, f := range world(wait).Interfaces["test:test/all"] {
		functions = append(functions, wasitest.Lowered{Module: iface, Name: f.Name, Params: f.Params, Results: f.Results})
		imports = append(imports, Import{Module: iface, Name: f.Name, Options: Options{Realloc: wasitest.ReallocName}})
	}
	if err := Provide(ctx, r, imports, World{Name: "empty"}, world(wait)); err != nil {
		t.Fatal(err)
	}
	compiled, err := r.CompileModule(ctx, wasitest.Component(functions, 4))
	if err != nil {
		t.Fatal(err)
	}
	make := func() *guest {
		mod, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName(""))
		if err != nil {
			t.Fatal(err)
		}
		return &guest{Instance: &Instance{}, t: t, mod: mod}
	}
	return make(), make()
}

// call calls a function, in a context that was made of the instance's.
func (g *guest) call(name string, params ...uint64) error {
	type key struct{}
	ctx := context.WithValue(With(context.Background(), g.Instance), key{}, 1)
	_, err := g.mod.ExportedFunction(iface+"#"+name).Call(ctx, params...)
	return err
}

func (g *guest) trap(want, name string, params ...uint64) {
	g.t.Helper()
	var trap *Trap
	if err := g.call(name, params...); !errors.As(err, &trap) || trap.Import != iface+"#"+name || !strings.Contains(trap.Text, want) {
		g.t.Errorf("%s%v: %v, want a trap with %q", name, params, err, want)
	}
}

func (g *guest) do(name string, params ...uint64) {
	g.t.Helper()
	if err := g.call(name, params...); err != nil {
		g.t.Errorf("%s%v: %v", name, params, err)
	}
}

// TestInstancesHaveHandlesOfTheirOwn in one runtime.
func TestInstancesHaveHandlesOfTheirOwn(t *testing.T) {
	one, two := twoGuests(t, nil)
	a, b := &thing{}, &thing{}
	first, second := one.Add(a, 0), one.Add(&other{}, 0)
	child := one.Add(b, first)
	two.Add(&other{}, 0)
	one.do("get", uint64(first))
	one.trap("wrong type", "get", uint64(second))
	one.trap("unknown handle index 9", "take", 9)
	two.trap("wrong type", "get", uint64(first))
	two.trap("unknown handle index 3", "get", uint64(child))
	one.trap("given away: the resource has children", "take", uint64(first))
	one.trap("dropped: the resource has children", "drop", uint64(first))
	one.do("drop", uint64(child))
	one.do("take", uint64(first))
	if a.dropped != 0 || b.dropped != 1 {
		t.Errorf("dropped %d and %d times", a.dropped, b.dropped)
	}
	one.trap("unknown handle", "get", uint64(first))
	last := &thing{}
	one.Add(last, 0)
	one.Close()
	if last.dropped != 1 {
		t.Errorf("dropped %d times at the end", last.dropped)
	}
}

func TestCallOfNoInstance(t *testing.T) {
	one, _ := twoGuests(t, nil)
	_, err := one.mod.ExportedFunction(iface+"#get").Call(context.Background(), 1)
	var trap *Trap
	if !errors.As(err, &trap) || !strings.Contains(trap.Text, "no instance") {
		t.Errorf("error %v", err)
	}
}

// TestFail writes an error of a shape of its own.
func TestFail(t *testing.T) {
	one, _ := twoGuests(t, nil)
	const out = 0x100
	one.do("fail", 0, out)
	if b, _ := one.mod.Memory().ReadByte(out); b != 0 {
		t.Errorf("discriminant %d of what has not failed", b)
	}
	one.do("fail", 1, out)
	b, _ := one.mod.Memory().ReadByte(out)
	code, _ := one.mod.Memory().ReadByte(out + 8)
	at, _ := one.mod.Memory().ReadUint32Le(out + 16)
	size, _ := one.mod.Memory().ReadUint32Le(out + 20)
	text, _ := one.mod.Memory().Read(at, size)
	if b != 1 || code != 7 || string(text) != "own" {
		t.Errorf("discriminant %d, code %d, text %q", b, code, text)
	}
	one.trap("out of bounds", "fail", 0, uint64(one.mod.Memory().Size()-24))
	one.trap("not aligned", "fail", 0, out+4)
}

// TestEnd ends the call that an instance is in, and the next one, with the first reason.
func TestEnd(t *testing.T) {
	wait := make(chan struct{})
	one, two := twoGuests(t, wait)
	first := errors.New("first")
	ended := make(chan error)
	go func() { ended <- one.call("wait") }()
	time.Sleep(20 * time.Millisecond)
	one.End(first)
	one.End(errors.New("second"))
	wait <- struct{}{}
	if err := <-ended; !errors.Is(err, first) {
		t.Errorf("the call that it was in: %v", err)
	}
	if err := one.call("get", 1); !errors.Is(err, first) || one.Ended() != first {
		t.Errorf("the next call: %v", err)
	}
	if two.Ended() != nil {
		t.Error("the other instance has ended")
	}
	two.Add(&thing{}, 0)
	two.do("get", 1)
}

// going is an operation that the end of its instance meets.
type going struct{ cancelled *int }

func (going) Error() string                    { return "goes on" }
func (going) Step(*Call, uint32) (bool, error) { return false, nil }
func (g going) Cancel()                        { *g.cancelled++ }

// TestEndOfOperation ends the instance in the call that starts an operation: it has what only its
// end gives back.
func TestEndOfOperation(t *testing.T) {
	cancelled, over := 0, errors.New("over")
	i := &Instance{}
	b := &binding{Function: &Function{Name: "go", Async: true, Call: func(c *Call, _ []uint64, _ uint32) error {
		i.End(over)
		return going{&cancelled}
	}}, options: Options{Async: true}}
	defer func() {
		if r := recover(); r != over || cancelled != 1 {
			t.Errorf("ended by %v, cancelled %d times", r, cancelled)
		}
	}()
	b.callAsync(&Call{Instance: i}, make([]uint64, 1))
}

// TestNamesOfImports are told from each other again, joined or not.
func TestNamesOfImports(t *testing.T) {
	const iface, function = "wasi:io/streams@0.2.12", "[method]output-stream.write"
	for _, o := range []Options{{}, {Realloc: "cabi_realloc"}, {Async: true}, {Realloc: "realloc#2", Async: true}} {
		name := ImportName(function, o)
		want := Import{Module: iface, Name: name, Interface: iface, Function: function, Options: o}
		if got := ParseImport(iface, name); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		want.Module, want.Name = Joined, joined(iface, name)
		if got := ParseImport(Joined, want.Name); got != want {
			t.Errorf("joined: got %+v, want %+v", got, want)
		}
	}
}

// TestJoinImports changes nothing where a memory is imported.
func TestJoinImports(t *testing.T) {
	for _, body := range []string{"\x01\x01a\x01b\x02\x00\x01", "\x02\x01a\x01b\x00\x00\x01a\x01b\x02\x00\x01", "\x02\x01a\x01b\x00\x00"} {
		if got := JoinImports([]format.Section{format.NewSection(format.SectionImport, []byte(body))}); string(got[0].Body) != body {
			t.Errorf("%q became %q", body, got[0].Body)
		}
	}
	got := JoinImports([]format.Section{format.NewSection(format.SectionImport, []byte("\x02\x01a\x01b\x00\x00\x01c\x01d\x00\x81\x00"))})
	if want := "\x02\x04host\x03a#b\x00\x00\x04host\x03c#d\x00\x01"; string(got[0].Body) != want {
		t.Errorf("got %q, want %q", got[0].Body, want)
	}
}
