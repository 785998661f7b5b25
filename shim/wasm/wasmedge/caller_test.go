package wasmedge

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// Numbers of the specification.
const (
	success      wasip1.Errno = 0
	eafnosupport wasip1.Errno = 5
	eagain       wasip1.Errno = 6
	econnrefused wasip1.Errno = 14
	einprogress  wasip1.Errno = 26
	einval       wasip1.Errno = 28
	eisconn      wasip1.Errno = 30
	enoprotoopt  wasip1.Errno = 50
	enotconn     wasip1.Errno = 53
	enotsock     wasip1.Errno = 57

	fdflagNonblock = 4
)

// Addresses in the caller's memory, far apart.
const (
	atResult = wasitest.AtResult
	atText   = wasitest.AtText
	atText2  = wasitest.AtText2
	atData   = wasitest.AtData
	atSubs   = wasitest.AtSubs
	atEvents = wasitest.AtEvents
)

// caller calls host functions with a guest's memory.
type caller struct {
	*wasitest.Caller
	host *wasip1.Host
	root string // host path of fd 3, when newCaller made it
}

// newCaller starts a Host with an empty directory as "/" at 3, unless config has listeners, and a
// guest that imports each function once, in its first form.
func newCaller(t testing.TB, config wasip1.Config) *caller {
	t.Helper()
	c := &caller{}
	if config.Listeners == nil {
		c.root = t.TempDir()
		config.Preopens = []wasip1.Preopen{{FD: wasitest.OpenDir(t, c.root), Name: "/"}}
	}
	config.Stdin, config.Stdout, config.Stderr = -1, -1, -1
	var err error
	if c.host, err = wasip1.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.host.Close() })
	var functions []wasip1.Function
	for _, f := range slices.Concat(wasip1.Functions(), Functions()) {
		if !slices.ContainsFunc(functions, func(other wasip1.Function) bool { return other.Name == f.Name }) {
			functions = append(functions, f)
		}
	}
	c.Caller = &wasitest.Caller{TB: t}
	c.instantiate(functions)
	return c
}

// instantiate makes the guest that imports these functions.
func (c *caller) instantiate(functions []wasip1.Function) {
	c.Helper()
	var imports []wasitest.Function
	for _, f := range functions {
		imports = append(imports, wasitest.Function{
			Module: wasip1.ModuleName, Name: f.Name, Params: f.Params, NoResult: len(f.ResultTypes()) == 0,
		})
	}
	c.Caller = wasitest.NewCaller(c.TB, imports, func(ctx context.Context, r wazero.Runtime, imports []api.FunctionDefinition) error {
		return c.host.InstantiateFor(ctx, r, imports, Functions()...)
	})
}

// do calls a function.
func (c *caller) do(name string, params ...uint64) wasip1.Errno {
	c.Helper()
	return wasip1.Errno(c.Do(name, params...))
}

// must calls a function that is to succeed.
func (c *caller) must(name string, params ...uint64) {
	c.Helper()
	if e := c.do(name, params...); e != success {
		c.Fatalf("%s%v = errno %d", name, params, e)
	}
}

// want calls a function that is to fail.
func (c *caller) want(e wasip1.Errno, name string, params ...uint64) {
	c.Helper()
	if got := c.do(name, params...); got != e {
		c.Errorf("%s%v = errno %d, want %d", name, params, got, e)
	}
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
func (c *caller) read(fd uint64, n int) (string, wasip1.Errno) {
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

// listen makes a listener as the guest process gets it. Its name is its address.
func listen(t testing.TB, address string) wasip1.Listener {
	t.Helper()
	fd, bound := wasitest.Listen(t, address)
	return wasip1.Listener{FD: fd, Name: bound}
}
