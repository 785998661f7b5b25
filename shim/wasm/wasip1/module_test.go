package wasip1

import (
	"context"
	"encoding/binary"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// trampolines encodes a WebAssembly module that imports the functions in defs from
// wasi_snapshot_preview1 and exports, under the same names, functions that pass their parameters on. It
// has two pages of memory. Calling them is what a guest does, without a guest.
func trampolines(defs []definition) []byte {
	types, imports, funcs, exports, bodies := section{id: 1}, section{id: 2}, section{id: 3}, section{id: 7}, section{id: 10}
	exports.add(name("memory"), []byte{2, 0})
	for i, d := range defs {
		params := []byte{0x60}
		params = append(params, leb(len(d.params))...)
		body := []byte{0} // no locals
		for j, p := range d.params {
			params = append(params, map[rune]byte{'i': 0x7f, 'I': 0x7e}[p])
			body = append(append(body, 0x20), leb(j)...)
		}
		if d.call == nil {
			params = append(params, 0)
		} else {
			params = append(params, 1, 0x7f)
		}
		body = append(append(append(body, 0x10), leb(i)...), 0x0b)
		types.add(params)
		imports.add(name(ModuleName), name(d.name), []byte{0}, leb(i))
		funcs.add(leb(i))
		exports.add(name(d.name), []byte{0}, leb(len(defs)+i))
		bodies.add(leb(len(body)), body)
	}
	memory := section{id: 5}
	memory.add([]byte{0, 2})
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []section{types, imports, funcs, memory, exports, bodies} {
		out = append(out, s.bytes()...)
	}
	return out
}

// section is a section that is a vector of entries.
type section struct {
	id    byte
	count int
	body  []byte
}

func (s *section) add(parts ...[]byte) {
	s.count++
	for _, p := range parts {
		s.body = append(s.body, p...)
	}
}

func (s section) bytes() []byte {
	body := append(leb(s.count), s.body...)
	return append(append([]byte{s.id}, leb(len(body))...), body...)
}

func leb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func name(s string) []byte { return append(leb(len(s)), s...) }

// caller calls host functions with a guest's memory.
type caller struct {
	testing.TB
	host *Host
	mod  api.Module
	mem  api.Memory
	root string // host path of fd 3, when newCaller made it
}

// Addresses in the caller's memory, far apart.
const (
	atResult = 0x10
	atText   = 0x1000
	atText2  = 0x3000
	atIovecs = 0x5000
	atData   = 0x6000
	atSubs   = 0x10000
	atEvents = 0x14000
)

// all are the definitions with those that end the guest; proc_raise has a result.
func all() []definition {
	return append(choose(nil), definition{"proc_exit", "i", nil}, definition{"proc_raise", "i", fdClose})
}

// newCaller starts a Host with an empty directory as "/" at 3, unless config has preopens or listeners.
func newCaller(t testing.TB, config Config) *caller {
	t.Helper()
	c := &caller{TB: t}
	if config.Preopens == nil && config.Listeners == nil {
		c.root = t.TempDir()
		config.Preopens = []Preopen{{FD: openDir(t, c.root), Name: "/"}}
	}
	if config.Stdin == 0 && config.Stdout == 0 && config.Stderr == 0 {
		config.Stdin, config.Stdout, config.Stderr = -1, -1, -1
	}
	var err error
	if c.host, err = New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.host.Close() })
	c.instantiate(all())
	return c
}

// instantiate makes the guest that imports these functions.
func (c *caller) instantiate(defs []definition) {
	c.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(compiled()))
	c.Cleanup(func() { r.Close(ctx) })
	guest, err := r.CompileModule(ctx, trampolines(defs))
	if err != nil {
		c.Fatal(err)
	}
	if err := c.host.InstantiateFor(ctx, r, guest.ImportedFunctions()); err != nil {
		c.Fatal(err)
	}
	if c.mod, err = r.InstantiateModule(ctx, guest, wazero.NewModuleConfig()); err != nil {
		c.Fatal(err)
	}
	c.mem = c.mod.Memory()
}

// do calls a function.
func (c *caller) do(name string, params ...uint64) errno {
	c.Helper()
	out, err := c.mod.ExportedFunction(name).Call(context.Background(), params...)
	if err != nil {
		c.Fatalf("call %s: %v", name, err)
	}
	return errno(out[0])
}

// must calls a function that is to succeed.
func (c *caller) must(name string, params ...uint64) {
	c.Helper()
	if e := c.do(name, params...); e != success {
		c.Fatalf("%s%v = errno %d", name, params, e)
	}
}

// want calls a function that is to fail.
func (c *caller) want(e errno, name string, params ...uint64) {
	c.Helper()
	if got := c.do(name, params...); got != e {
		c.Errorf("%s%v = errno %d, want %d", name, params, got, e)
	}
}

func (c *caller) u32(at uint32) uint32 { v, _ := c.mem.ReadUint32Le(at); return v }
func (c *caller) u64(at uint32) uint64 { v, _ := c.mem.ReadUint64Le(at); return v }

func (c *caller) bytes(at, n uint32) []byte {
	b, ok := c.mem.Read(at, n)
	if !ok {
		c.Fatalf("read %d bytes at %#x", n, at)
	}
	return b
}

// str puts a string into memory and returns the two parameters that name it.
func (c *caller) str(at uint32, s string) (uint64, uint64) {
	c.mem.Write(at, []byte(s))
	return uint64(at), uint64(len(s))
}

// iovec puts one buffer of n bytes at atData into an iovec_array.
func (c *caller) iovec(n int) (uint64, uint64) {
	c.mem.WriteUint32Le(atIovecs, atData)
	c.mem.WriteUint32Le(atIovecs+4, uint32(n))
	return atIovecs, 1
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

func (c *caller) tryOpen(dir uint64, path string, lookup uint32, oflags uint16, base rights, flags uint16) (errno, uint64) {
	c.Helper()
	p, n := c.str(atText, path)
	e := c.do("path_open", dir, uint64(lookup), p, n, uint64(oflags), uint64(base),
		uint64(rightsDirectory|rightsFile), uint64(flags), atResult)
	return e, uint64(c.u32(atResult))
}

// write writes a string with fd_write.
func (c *caller) write(fd uint64, s string) {
	c.Helper()
	c.mem.Write(atData, []byte(s))
	p, n := c.iovec(len(s))
	c.must("fd_write", fd, p, n, atResult)
	if got := c.u32(atResult); got != uint32(len(s)) {
		c.Fatalf("wrote %d of %d bytes", got, len(s))
	}
}

// read reads up to n bytes with fd_read.
func (c *caller) read(fd uint64, n int) (string, errno) {
	c.Helper()
	p, count := c.iovec(n)
	e := c.do("fd_read", fd, p, count, atResult)
	return string(c.bytes(atData, c.u32(atResult))), e
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
	for _, want := range [][]definition{
		{{"fd_write", "iiii", fdWrite}, {"proc_exit", "i", nil}},
		{{"sock_accept", "ii", sockAcceptV1}, {"proc_raise", "i", fdClose}},
	} {
		r := wazero.NewRuntime(ctx)
		guest, err := r.CompileModule(ctx, trampolines(want))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.host.InstantiateFor(ctx, r, guest.ImportedFunctions()); err != nil {
			t.Fatal(err)
		}
		got := r.Module(ModuleName).ExportedFunctionDefinitions()
		for _, d := range want {
			if f := got[d.name]; f == nil || len(f.ParamTypes()) != len(d.params) {
				t.Errorf("%s: %v", d.name, f)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d functions are defined, %d are imported", len(got), len(want))
		}
		r.Close(ctx)
	}
}
