package wasip2

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// out is where functions of a caller return what they return in memory.
const out = 0x100

// guest is a lowered component that calls what a test says, and its Host.
type guest struct {
	testing.TB
	host *Instance
	ctx  context.Context
	mod  api.Module
	mem  api.Memory
	next uint32 // where put writes
}

// newGuest makes one with a directory as "/", whose file descriptors are closed with the test.
func newGuest(t testing.TB, config Config, own ...wasitest.Own) *guest {
	t.Helper()
	i := newInstance(t, config)
	var functions []wasitest.Lowered
	var imports []canonical.Import
	for _, f := range command(t) {
		if strings.HasPrefix(f.Module, "wasi:clocks/timezone@") {
			continue
		}
		functions = append(functions, f)
		imports = append(imports, canonical.Import{Module: f.Module, Name: f.Name, Options: canonical.Options{Realloc: wasitest.ReallocName}})
	}
	ctx := canonical.With(context.Background(), i.ABI())
	r := wasitest.Runtime(ctx)
	t.Cleanup(func() { r.Close(ctx) })
	if err := canonical.Provide(ctx, r, imports, World()); err != nil {
		t.Fatal(err)
	}
	mod, err := r.InstantiateWithConfig(ctx, wasitest.Component(functions, 32, own...), wazero.NewModuleConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &guest{TB: t, host: i, ctx: ctx, mod: mod, mem: mod.Memory(), next: 0x1000}
}

// newInstance makes one of a host of its own, both closed with the test.
func newInstance(t testing.TB, config Config) *Instance {
	t.Helper()
	h, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	i, err := h.NewInstance()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// files is a guest with a directory as "/".
func files(t testing.TB, dir string, readOnly bool) (*guest, uint64) {
	t.Helper()
	g := newGuest(t, Config{Stdin: -1, Stdout: -1, Stderr: -1,
		Preopens: []Preopen{{FD: wasitest.OpenDir(t, dir), Name: "/", ReadOnly: readOnly}}})
	g.do("filesystem/preopens#get-directories", out)
	return g, uint64(g.u32(g.u32(out)))
}

// short makes the name of an export of "io/streams#flush".
func short(name string) string {
	iface, function, _ := strings.Cut(name, "#")
	return "wasi:" + iface + "@0.2.12#" + function
}

// try calls a function.
func (g *guest) try(name string, params ...uint64) (uint64, error) {
	g.Helper()
	f := g.mod.ExportedFunction(short(name))
	if f == nil {
		g.Fatalf("no function %s", name)
	}
	results, err := f.Call(g.ctx, params...)
	if err != nil || len(results) == 0 {
		return 0, err
	}
	if f.Definition().ResultTypes()[0] == api.ValueTypeI32 {
		return uint64(api.DecodeU32(results[0])), nil // the other half is garbage
	}
	return results[0], nil
}

// do calls a function that does not trap.
func (g *guest) do(name string, params ...uint64) uint64 {
	g.Helper()
	v, err := g.try(name, params...)
	if err != nil {
		g.Fatalf("%s%v: %v", name, params, err)
	}
	return v
}

// trap calls a function that does, with a text in it, and returns a guest that can be called again.
func (g *guest) trap(want, name string, params ...uint64) {
	g.Helper()
	_, err := g.try(name, params...)
	var trap *canonical.Trap
	if !errors.As(err, &trap) || !strings.Contains(trap.Text, want) || trap.Import != short(name) {
		g.Errorf("%s%v: got %v, want a trap with %q", name, params, err, want)
	}
}

// result is the error-code that a function has returned in out, with its payload at offset; ok for
// none.
func (g *guest) result(payload uint32) string {
	if g.u8(out) == 0 {
		return "ok"
	}
	return codeNames[g.u8(out+payload)]
}

// flow calls a function of a stream and says what it has returned: ok, closed, or an error-code.
func (g *guest) flow(payload uint32, name string, params ...uint64) string {
	g.Helper()
	g.do(name, append(params, out)...)
	switch {
	case g.u8(out) == 0:
		return "ok"
	case g.u8(out+payload) == 1:
		return "closed"
	}
	handle := uint64(g.u32(out + payload + 4))
	g.do("filesystem/types#filesystem-error-code", handle, out+64)
	g.do("io/error#[resource-drop]error", handle)
	if g.u8(out+64) != 1 {
		return "no code"
	}
	return codeNames[g.u8(out+65)]
}

// write is one of the functions that write bytes.
func (g *guest) write(function string, stream uint64, s string) string {
	g.Helper()
	at, n := g.put(s)
	return g.flow(4, "io/streams#[method]output-stream."+function, stream, at, n)
}

// read is one of the functions that read bytes.
func (g *guest) read(function string, stream, n uint64) (string, string) {
	g.Helper()
	if result := g.flow(4, "io/streams#[method]input-stream."+function, stream, n); result != "ok" {
		return "", result
	}
	return g.text(out + 4), "ok"
}

// permit is check-write.
func (g *guest) permit(stream uint64) (uint64, string) {
	g.Helper()
	if result := g.flow(8, "io/streams#[method]output-stream.check-write", stream); result != "ok" {
		return 0, result
	}
	return g.u64(out + 8), "ok"
}

// open opens a path and returns its handle, and what open-at said.
func (g *guest) open(dir uint64, path string, pathFlags, openFlags uint32, flags descriptorFlags) (uint64, string) {
	g.Helper()
	at, n := g.put(path)
	g.do("filesystem/types#[method]descriptor.open-at", dir, uint64(pathFlags), at, n, uint64(openFlags), uint64(flags), out)
	return uint64(g.u32(out + 4)), g.result(4)
}

// stream makes a stream of a descriptor.
func (g *guest) stream(function string, params ...uint64) uint64 {
	g.Helper()
	g.do("filesystem/types#[method]descriptor."+function, append(params, out)...)
	if got := g.result(4); got != "ok" {
		g.Fatalf("%s: %s", function, got)
	}
	return uint64(g.u32(out + 4))
}

// put writes a string and returns the two parameters that name it.
func (g *guest) put(s string) (uint64, uint64) {
	if g.next+uint32(len(s)) > 0x20000 {
		g.next = 0x1000
	}
	at := g.next
	g.mem.WriteString(at, s)
	g.next += uint32(len(s))
	return uint64(at), uint64(len(s))
}

func (g *guest) u8(at uint32) uint8   { v, _ := g.mem.ReadByte(at); return v }
func (g *guest) u32(at uint32) uint32 { v, _ := g.mem.ReadUint32Le(at); return v }
func (g *guest) u64(at uint32) uint64 { v, _ := g.mem.ReadUint64Le(at); return v }

// text is a string, or a list of bytes.
func (g *guest) text(at uint32) string {
	b, ok := g.mem.Read(g.u32(at), g.u32(at+4))
	if !ok {
		g.Fatalf("the string at %#x is out of bounds", at)
	}
	return string(b)
}

// poll polls and returns the indexes of what is ready.
func (g *guest) poll(pollables ...uint64) []uint32 {
	g.Helper()
	var list []byte
	for _, p := range pollables {
		list = binary.LittleEndian.AppendUint32(list, uint32(p))
	}
	g.mem.Write(0x800, list)
	g.do("io/poll#poll", 0x800, uint64(len(pollables)), out)
	var ready []uint32
	for i := range g.u32(out + 4) {
		ready = append(ready, g.u32(g.u32(out)+4*i))
	}
	return ready
}

// pipe makes a pipe whose ends are closed with the test.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// fd is a descriptor in blocking mode, as a guest process has it.
func fd(t testing.TB, f *os.File) int {
	t.Helper()
	n := int(f.Fd())
	if err := unix.SetNonblock(n, false); err != nil {
		t.Fatal(err)
	}
	return n
}

var codeNames = []string{
	"access", "would-block", "already", "bad-descriptor", "busy", "deadlock", "quota", "exist", "file-too-large",
	"illegal-byte-sequence", "in-progress", "interrupted", "invalid", "io", "is-directory", "loop", "too-many-links",
	"message-size", "name-too-long", "no-device", "no-entry", "no-lock", "insufficient-memory", "insufficient-space",
	"not-directory", "not-empty", "not-recoverable", "unsupported", "no-tty", "no-such-device", "overflow", "not-permitted",
	"pipe", "read-only", "invalid-seek", "text-file-busy", "cross-device",
}

// same compares two lists.
func same[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
