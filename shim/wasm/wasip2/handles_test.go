package wasip2

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// TestHandles are numbered as in wasmtime, have one type, and keep their parents.
func TestHandles(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	var got []uint64
	for range 3 {
		got = append(got, g.do("cli/stdin#get-stdin"))
	}
	same(t, "first handles", got, []uint64{1, 2, 3})
	for _, h := range []uint64{1, 3} {
		g.do("io/streams#[resource-drop]input-stream", h)
	}
	same(t, "what was given back last is first", []uint64{g.do("cli/stdout#get-stdout"), g.do("cli/stderr#get-stderr")}, []uint64{3, 1})

	g.trap("unknown handle index 0", "io/streams#[resource-drop]input-stream", 0)
	g.trap("unknown handle index 9", "io/streams#[resource-drop]input-stream", 9)
	g.trap("handle index 3 used with the wrong type", "io/streams#[resource-drop]input-stream", 3)
	g.trap("wrong type", inputMethod+"read", 1, 1, out)
	g.trap("wrong type", outputMethod+"flush", 2, out)
	g.do("io/streams#[resource-drop]input-stream", 2)
	g.trap("unknown handle index 2", "io/streams#[resource-drop]input-stream", 2)

	first, second := g.do(outputMethod+"subscribe", 3), g.do(outputMethod+"subscribe", 3)
	g.trap("has children", "io/streams#[resource-drop]output-stream", 3)
	g.do("io/poll#[resource-drop]pollable", first)
	g.trap("has children", "io/streams#[resource-drop]output-stream", 3)
	g.do("io/poll#[resource-drop]pollable", second)
	g.do("io/streams#[resource-drop]output-stream", 3)
}

// TestHandlesAreBounded by a trap.
func TestHandlesAreBounded(t *testing.T) {
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1})
	for range canonical.MaxHandles {
		g.do("clocks/monotonic-clock#subscribe-instant", 0)
	}
	g.trap("more than 65536 handles", "clocks/monotonic-clock#subscribe-instant", 0)
}

// TestMemory is read and written in its bounds, aligned, and strings are UTF-8.
func TestMemory(t *testing.T) {
	g, root := files(t, t.TempDir(), false)
	end := uint64(g.mem.Size())
	g.trap("result pointer", "filesystem/types#[method]descriptor.stat", root, out+4)
	g.trap("out of bounds", "filesystem/types#[method]descriptor.stat", root, end-96)
	g.trap("out of bounds", "filesystem/types#[method]descriptor.create-directory-at", root, end-1, 2, out)
	g.trap("out of bounds", "filesystem/types#[method]descriptor.write", root, 0, 1<<32-1, 0, out)
	at, n := g.put("\xff")
	g.trap("not UTF-8", "filesystem/types#[method]descriptor.create-directory-at", root, at, n, out)
	g.trap("unexpected discriminant 6", "filesystem/types#[method]descriptor.advise", root, 0, 0, 6, out)
	g.trap("unexpected discriminant 3", "filesystem/types#[method]descriptor.set-times", root, 3, 0, 0, 0, 0, 0, out)
	g.trap("random bytes", "random/random#get-random-bytes", maxRandom+1, out)
	// Only the lower half of an i32 counts.
	g.do("filesystem/types#[method]descriptor.stat", root|1<<32, out|1<<40)
	if got := g.result(8); got != "ok" {
		t.Errorf("garbage in the upper half: %s", got)
	}
}

// TestRealloc is the guest's, and may misbehave.
func TestRealloc(t *testing.T) {
	answer := func(at ...byte) []byte { return append([]byte{0x41}, at...) } // i32.const
	call0 := []byte{0x10, 0, 0x1a, 0x41, 0x80, 0x20}                         // call the import, drop, i32.const 4096
	own := []wasitest.Own{
		{Export: "odd", Params: "iiii", Results: "i", Body: answer(1)},
		{Export: "far", Params: "iiii", Results: "i", Body: answer(0xfc, 0xff, 0xff, 0xff, 0x07)},
		{Export: "traps", Params: "iiii", Results: "i", Body: []byte{0}},
		{Export: "calls", Params: "iiii", Results: "i", Body: call0},
		{Export: "other", Params: "iiii", Results: "i", Body: answer(0x80, 0xc0, 0)}, // 8192
	}
	stdin := wasitest.Lowered{Module: "wasi:cli/stdin@0.2.0", Name: "get-stdin", Results: "i"}
	for _, c := range []struct{ realloc, want string }{
		{wasitest.ReallocName, ""},
		{"other", ""},
		{"odd", "wasi:cli/environment@0.2.0#get-arguments: odd returned 0x1, which is not aligned to 4"},
		{"far", "out of bounds"},
		{"traps", "wasm error: unreachable"},
		{"calls", "wasi:cli/stdin@0.2.0#get-stdin: called by a realloc, which must not call imports"},
		{"missing", "realloc \"missing\" is no export"},
	} {
		i := newInstance(t, Config{Args: []string{"prog", "ä"}, Stdin: -1, Stdout: -1, Stderr: -1})
		arguments := wasitest.Lowered{Module: "wasi:cli/environment@0.2.0", Name: "get-arguments", Params: "i"}
		ctx := canonical.With(context.Background(), i.ABI())
		r := wasitest.Runtime(ctx)
		imports := []canonical.Import{{Module: stdin.Module, Name: stdin.Name},
			{Module: arguments.Module, Name: arguments.Name, Options: canonical.Options{Realloc: c.realloc}}}
		if err := canonical.Provide(ctx, r, imports, World()); err != nil {
			t.Fatal(err)
		}
		mod, err := r.InstantiateWithConfig(ctx, wasitest.Component([]wasitest.Lowered{stdin, arguments}, 4, own...), wazero.NewModuleConfig())
		if err != nil {
			t.Fatal(err)
		}
		_, err = mod.ExportedFunction(arguments.Export()).Call(ctx, out)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.realloc, err)
		}
		if at, _ := mod.Memory().ReadUint32Le(out); c.realloc == "other" && at != 8192 {
			t.Errorf("the list is at %d: not the realloc that the import names", at)
		}
		r.Close(ctx)
	}
}

// TestProvideRefuses what it cannot serve.
func TestProvideRefuses(t *testing.T) {
	ctx := context.Background()
	r := wasitest.Runtime(ctx)
	defer r.Close(ctx)
	arguments := canonical.Import{Module: "wasi:cli/environment@0.2.0", Name: "get-arguments"}
	if err := canonical.Provide(ctx, r, []canonical.Import{arguments}, World()); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("no realloc: %v", err)
	}
	one, two := arguments, arguments
	one.Options.Realloc, two.Options.Realloc = "one", "two"
	if err := canonical.Provide(ctx, r, []canonical.Import{one, two}, World()); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("two options: %v", err)
	}
	if err := canonical.Provide(ctx, r, []canonical.Import{{Module: "env", Name: "f"}}, World()); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("another module: %v", err)
	}
	// Under two names it can be there twice.
	two.Interface, two.Function, two.Name = two.Module, two.Name, "get-arguments.2"
	if err := canonical.Provide(ctx, r, []canonical.Import{one, one, two}, World()); err != nil {
		t.Error(err)
	}
	if got := len(r.Module(one.Module).ExportedFunctionDefinitions()); got != 2 {
		t.Errorf("%d functions", got)
	}
}

func TestNewRefuses(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, c := range map[string]Config{
		"argument": {Args: []string{"\xff"}}, "variable": {Env: []string{"A=\xff"}},
		"file": {Preopens: []Preopen{{FD: int(file.Fd()), Name: "/"}}}, "name": {Preopens: []Preopen{{Name: ""}}},
	} {
		c.Stdin, c.Stdout, c.Stderr = -1, -1, -1
		h, err := New(c)
		if err == nil {
			_, err = h.NewInstance()
		}
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestExit ends a command with the code that it gives.
func TestExit(t *testing.T) {
	exit := wasitest.Lowered{Module: "wasi:cli/exit@0.2.0", Name: "exit", Params: "i"}
	withCode := wasitest.Lowered{Module: "wasi:cli/exit@0.2.0", Name: "exit-with-code", Params: "i"}
	const name = "wasi:cli/run@0.2.4#run"
	constant := func(n byte) []byte { return []byte{0x41, n} }
	for title, c := range map[string]struct {
		own  []wasitest.Own
		code int // -1: another error
	}{
		"ok":           {[]wasitest.Own{{Export: name, Results: "i", Body: constant(0)}}, 0},
		"error":        {[]wasitest.Own{{Export: name, Results: "i", Body: constant(1)}}, 1},
		"trap":         {[]wasitest.Own{{Export: name, Results: "i", Body: []byte{0}}}, -1},
		"exit ok":      {[]wasitest.Own{{Export: name, Results: "i", Body: []byte{0x41, 0, 0x10, 0, 0}}}, 0},
		"exit error":   {[]wasitest.Own{{Export: name, Results: "i", Body: []byte{0x41, 1, 0x10, 0, 0}}}, 1},
		"exit neither": {[]wasitest.Own{{Export: name, Results: "i", Body: []byte{0x41, 2, 0x10, 0, 0}}}, -1},
		"exit 7":       {[]wasitest.Own{{Export: name, Results: "i", Body: []byte{0x41, 7, 0x10, 1, 0}}}, 7},
		"exit 256 + 3": {[]wasitest.Own{{Export: name, Results: "i", Body: []byte{0x41, 0x83, 0x02, 0x10, 1, 0}}}, 3},
	} {
		t.Run(title, func(t *testing.T) {
			ctx := canonical.With(context.Background(), newInstance(t, Config{Stdin: -1, Stdout: -1, Stderr: -1}).ABI())
			r := wasitest.Runtime(ctx)
			defer r.Close(ctx)
			if err := canonical.Provide(ctx, r, []canonical.Import{{Module: exit.Module, Name: exit.Name}, {Module: withCode.Module, Name: withCode.Name}}, World()); err != nil {
				t.Fatal(err)
			}
			mod, err := r.InstantiateWithConfig(ctx, wasitest.Component([]wasitest.Lowered{exit, withCode}, 4, c.own...), wazero.NewModuleConfig())
			if err != nil {
				t.Fatal(err)
			}
			err = start(ctx, mod)
			var ended *sys.ExitError
			code := -1
			if err == nil {
				code = 0
			} else if errors.As(err, &ended) {
				code = int(ended.ExitCode())
			}
			if code != c.code {
				t.Errorf("code %d, %v", code, err)
			}
		})
	}
}
