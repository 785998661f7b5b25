// Package wasitest calls host functions as a guest does, without a guest: from a module that
// imports them and has a memory. Only tests use it.
package wasitest

import (
	"context"
	"sync"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Addresses in a Caller's memory of two pages, far apart.
const (
	AtResult = 0x10
	AtText   = 0x1000
	AtText2  = 0x3000
	AtIovecs = 0x5000
	AtData   = 0x6000
	AtSubs   = 0x10000
	AtEvents = 0x14000
)

// cache is shared by all runs of a test binary.
var cache = sync.OnceValue(wazero.NewCompilationCache)

// Runtime makes a runtime, which the caller closes.
func Runtime(ctx context.Context) wazero.Runtime {
	return wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache()))
}

// Caller is a guest's module and its memory.
type Caller struct {
	testing.TB
	Mod api.Module
	Mem api.Memory
}

// NewCaller makes the guest that imports these functions. define gives the runtime the host's
// module.
func NewCaller(t testing.TB, functions []Function, define func(context.Context, wazero.Runtime, []api.FunctionDefinition) error) *Caller {
	t.Helper()
	ctx := context.Background()
	r := Runtime(ctx)
	t.Cleanup(func() { r.Close(ctx) })
	guest, err := r.CompileModule(ctx, Trampolines(functions))
	if err != nil {
		t.Fatal(err)
	}
	if err := define(ctx, r, guest.ImportedFunctions()); err != nil {
		t.Fatal(err)
	}
	mod, err := r.InstantiateModule(ctx, guest, wazero.NewModuleConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &Caller{TB: t, Mod: mod, Mem: mod.Memory()}
}

// Do calls a function and returns its errno.
func (c *Caller) Do(name string, params ...uint64) uint16 {
	c.Helper()
	out, err := c.Mod.ExportedFunction(name).Call(context.Background(), params...)
	if err != nil {
		c.Fatalf("call %s: %v", name, err)
	}
	return uint16(out[0])
}

// U32 reads memory.
func (c *Caller) U32(at uint32) uint32 { v, _ := c.Mem.ReadUint32Le(at); return v }

// U64 reads memory.
func (c *Caller) U64(at uint32) uint64 { v, _ := c.Mem.ReadUint64Le(at); return v }

// Bytes are a part of memory.
func (c *Caller) Bytes(at, n uint32) []byte {
	b, ok := c.Mem.Read(at, n)
	if !ok {
		c.Fatalf("read %d bytes at %#x", n, at)
	}
	return b
}

// Str puts a string into memory and returns the two parameters that name it.
func (c *Caller) Str(at uint32, s string) (uint64, uint64) {
	c.Mem.Write(at, []byte(s))
	return uint64(at), uint64(len(s))
}

// Iovec puts one buffer of n bytes at AtData into an iovec_array and returns the two parameters
// that name it.
func (c *Caller) Iovec(n int) (uint64, uint64) {
	c.Mem.WriteUint32Le(AtIovecs, AtData)
	c.Mem.WriteUint32Le(AtIovecs+4, uint32(n))
	return AtIovecs, 1
}
