package wasip2

import (
	"context"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi/beneath"
)

// Trap is the error of a guest that ended because it did what the specification does not allow. It
// is in the chain of what wazero returns.
type Trap struct {
	Import string // the function that was called, as the guest imports it
	Text   string
}

func (t *Trap) Error() string { return t.Import + ": " + t.Text }

// trapf ends the guest. What is called here returns no error for it: nothing of the guest runs
// afterwards.
func trapf(format string, args ...any) { panic(&Trap{Text: fmt.Sprintf(format, args...)}) }

// call is one call of a host function.
type call struct {
	host  *Host
	ctx   context.Context
	mod   api.Module
	mem   api.Memory
	bound *binding
}

// view is a part of guest memory. It is valid until the guest's memory grows: until alloc.
func (c *call) view(at uint32, size uint64) []byte {
	if size > math.MaxUint32 {
		trapf("list of %d bytes is out of bounds of memory", size)
	}
	b, ok := c.mem.Read(at, uint32(size))
	if !ok {
		trapf("pointer %#x, length %d is out of bounds of memory", at, size)
	}
	return b
}

// list is a list of count elements in guest memory, to be read.
func (c *call) list(at, count uint64, size, align uint32) []byte {
	if uint32(at)%align != 0 {
		trapf("pointer %#x of a list is not aligned to %d", uint32(at), align)
	}
	return c.view(uint32(at), uint64(uint32(count))*uint64(size))
}

// text is a string in guest memory, to be read.
func (c *call) text(at, length uint64) []byte {
	b := c.view(uint32(at), uint64(uint32(length)))
	if !utf8.Valid(b) {
		trapf("string at %#x is not UTF-8", uint32(at))
	}
	return b
}

// path copies a path out of guest memory. No path that the kernel takes is longer than
// beneath.MaxPath.
func (c *call) path(at, length uint64) (string, error) {
	b := c.text(at, length)
	if len(b) > beneath.MaxPath {
		return "", unix.ENAMETOOLONG
	}
	return string(b), nil
}

// alloc asks the guest for memory. Views from before are stale.
func (c *call) alloc(align, size uint32) uint32 {
	realloc := c.host.realloc(c.mod, c.bound.options.Realloc)
	if realloc == nil {
		trapf("realloc %q is no export of the module", c.bound.options.Realloc)
	}
	stack := [4]uint64{0, 0, uint64(align), uint64(size)}
	c.host.leaving = true
	err := realloc.CallWithStack(c.ctx, stack[:])
	if err != nil {
		panic(err) // the guest has trapped or exited
	}
	c.host.leaving = false
	at := uint32(stack[0])
	if at%align != 0 {
		trapf("%s returned %#x, which is not aligned to %d", c.bound.options.Realloc, at, align)
	}
	c.view(at, uint64(size))
	return at
}

// putBytes writes a list<u8>, or a string, which is a pointer and a length.
func (c *call) putBytes(out uint32, b []byte) {
	at := c.alloc(1, uint32(len(b)))
	c.mem.Write(at, b)
	c.put32(out, at)
	c.put32(out+4, uint32(len(b)))
}

// putText is putBytes of a string.
func (c *call) putText(out uint32, s string) { c.putBytes(out, []byte(s)) }

// putList makes room for a list of count elements, writes where it is, and returns that.
func (c *call) putList(out uint32, count int, size, align uint32) uint32 {
	total := uint64(count) * uint64(size)
	if total > math.MaxUint32 {
		trapf("list of %d elements does not fit into memory", count)
	}
	at := c.alloc(align, uint32(total))
	c.put32(out, at)
	c.put32(out+4, uint32(count))
	return at
}

// put8, put32 and put64 write into an area that was checked before.
func (c *call) put8(at uint32, v uint8)   { c.mem.WriteByte(at, v) }
func (c *call) put32(at uint32, v uint32) { c.mem.WriteUint32Le(at, v) }
func (c *call) put64(at uint32, v uint64) { c.mem.WriteUint64Le(at, v) }

// putBool writes a bool, or the discriminant of an option.
func (c *call) putBool(at uint32, v bool) {
	b := uint8(0)
	if v {
		b = 1
	}
	c.put8(at, b)
}

// putOption writes an option of a handle: its discriminant, and the handle 4 bytes behind it.
func (c *call) putOption(at uint32, r resource) {
	c.put8(at, 1)
	c.put32(at+4, c.host.handles.add(r, 0))
}

// discriminant reads the case of a variant or an enum.
func discriminant(p uint64, cases uint32) uint32 {
	v := uint32(p)
	if v >= cases {
		trapf("unexpected discriminant %d", v)
	}
	return v
}
