package wasip1

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// caller calls host functions with a guest's memory.
type caller struct {
	*wasitest.Caller
	host *Host
	root string // host path of fd 3, when newCaller made it
}

// Addresses in the caller's memory, far apart.
const (
	atResult = wasitest.AtResult
	atText   = wasitest.AtText
	atText2  = wasitest.AtText2
	atIovecs = wasitest.AtIovecs
	atData   = wasitest.AtData
	atSubs   = wasitest.AtSubs
	atEvents = wasitest.AtEvents
)

// imported are functions as a guest imports them.
func imported(functions []Function) []wasitest.Function {
	var all []wasitest.Function
	for _, f := range functions {
		all = append(all, wasitest.Function{Module: ModuleName, Name: f.Name, Params: f.Params, NoResult: len(f.ResultTypes()) == 0})
	}
	return all
}

// newCaller starts a Host with an empty directory as "/" at 3, unless config has preopens or
// listeners.
func newCaller(t testing.TB, config Config) *caller {
	t.Helper()
	c := &caller{}
	if config.Preopens == nil && config.Listeners == nil {
		c.root = t.TempDir()
		config.Preopens = []Preopen{{FD: wasitest.OpenDir(t, c.root), Name: "/"}}
	}
	if config.Stdin == 0 && config.Stdout == 0 && config.Stderr == 0 {
		config.Stdin, config.Stdout, config.Stderr = -1, -1, -1
	}
	var err error
	if c.host, err = New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.host.Close() })
	c.Caller = wasitest.NewCaller(t, imported(Functions()), func(ctx context.Context, r wazero.Runtime, imports []api.FunctionDefinition) error {
		return c.host.InstantiateFor(ctx, r, imports)
	})
	return c
}

// do calls a function.
func (c *caller) do(name string, params ...uint64) Errno {
	c.Helper()
	return Errno(c.Do(name, params...))
}

// must calls a function that is to succeed.
func (c *caller) must(name string, params ...uint64) {
	c.Helper()
	if e := c.do(name, params...); e != success {
		c.Fatalf("%s%v = errno %d", name, params, e)
	}
}

// want calls a function that is to fail.
func (c *caller) want(e Errno, name string, params ...uint64) {
	c.Helper()
	if got := c.do(name, params...); got != e {
		c.Errorf("%s%v = errno %d, want %d", name, params, got, e)
	}
}

// open opens a path below fd 3 with every right that applies.
func (c *caller) open(path string, oflags uint16, base rights, flags uint16) uint64 {
	c.Helper()
	e, fd := c.tryOpen(3, path, lookupFollow, oflags, base, flags)
	if e != success {
		c.Fatalf("open %q: errno %d", path, e)
	}
	return fd
}

func (c *caller) tryOpen(dir uint64, path string, lookup uint32, oflags uint16, base rights, flags uint16) (Errno, uint64) {
	c.Helper()
	p, n := c.Str(atText, path)
	e := c.do("path_open", dir, uint64(lookup), p, n, uint64(oflags), uint64(base),
		uint64(rightsDirectory|rightsFile), uint64(flags), atResult)
	return e, uint64(c.U32(atResult))
}

// write writes a string with fd_write.
func (c *caller) write(fd uint64, s string) {
	c.Helper()
	c.Mem.Write(atData, []byte(s))
	p, n := c.Iovec(len(s))
	c.must("fd_write", fd, p, n, atResult)
	if got := c.U32(atResult); got != uint32(len(s)) {
		c.Fatalf("wrote %d of %d bytes", got, len(s))
	}
}

// read reads up to n bytes with fd_read.
func (c *caller) read(fd uint64, n int) (string, Errno) {
	c.Helper()
	p, count := c.Iovec(n)
	e := c.do("fd_read", fd, p, count, atResult)
	return string(c.Bytes(atData, c.U32(atResult))), e
}

// put makes a file below the root from outside.
func (c *caller) put(path, content string) {
	c.Helper()
	if err := os.WriteFile(c.root+"/"+path, []byte(content), 0o644); err != nil {
		c.Fatal(err)
	}
}

// TestInstantiateForDefinesWhatIsImported and nothing else, in the form that is imported.
func TestInstantiateForDefinesWhatIsImported(t *testing.T) {
	c := newCaller(t, Config{})
	ctx := context.Background()
	extension := Function{"sock_accept", "ii", on(0, fdClose)}
	for _, want := range [][]Function{
		{{"fd_write", "iiii", fdWrite}, {"proc_exit", "i", nil}},
		{extension, {"proc_raise", "i", nil}},
	} {
		r := wazero.NewRuntime(ctx)
		guest, err := r.CompileModule(ctx, wasitest.Trampolines(imported(want)))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.host.InstantiateFor(ctx, r, guest.ImportedFunctions(), extension); err != nil {
			t.Fatal(err)
		}
		got := r.Module(ModuleName).ExportedFunctionDefinitions()
		for _, f := range want {
			if d := got[f.Name]; d == nil || len(d.ParamTypes()) != len(f.Params) {
				t.Errorf("%s: %v", f.Name, d)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d functions are defined, %d are imported", len(got), len(want))
		}
		r.Close(ctx)
	}
}

// TestCallWithoutMemory is a trap that says so.
func TestCallWithoutMemory(t *testing.T) {
	module := []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f" + // type (i32 i32) -> i32
		"\x02\x25\x01\x16wasi_snapshot_preview1\x0arandom_get\x00\x00" +
		"\x03\x02\x01\x00\x07\x05\x01\x01f\x00\x01" + // function 1, exported
		"\x0a\x0a\x01\x08\x00\x20\x00\x20\x01\x10\x00\x0b") // passes its parameters on
	host, ctx := newCaller(t, Config{}).host, context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	guest, err := r.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.InstantiateFor(ctx, r, guest.ImportedFunctions()); err != nil {
		t.Fatal(err)
	}
	mod, err := r.InstantiateModule(ctx, guest, wazero.NewModuleConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, err = mod.ExportedFunction("f").Call(ctx, 0, 8)
	if !errors.Is(err, errNoMemory) || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("error %v", err)
	}
}
