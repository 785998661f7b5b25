package canonical

import (
	"context"
	"math"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"
)

// Call is one call of a host function. It is valid until the function returns.
type Call struct {
	Instance *Instance
	Context  context.Context
	Module   api.Module
	Memory   api.Memory

	bound *binding
}

// View is a part of guest memory. It is valid until the guest's memory grows: until Alloc.
func (c *Call) View(at uint32, size uint64) []byte {
	if size > math.MaxUint32 {
		Trapf("list of %d bytes is out of bounds of memory", size)
	}
	b, ok := c.Memory.Read(at, uint32(size))
	if !ok {
		Trapf("pointer %#x, length %d is out of bounds of memory", at, size)
	}
	return b
}

// List is a list of count elements in guest memory, to be read.
func (c *Call) List(at, count uint64, size, align uint32) []byte {
	if uint32(at)%align != 0 {
		Trapf("pointer %#x of a list is not aligned to %d", uint32(at), align)
	}
	return c.View(uint32(at), uint64(uint32(count))*uint64(size))
}

// Text is a string in guest memory, to be read.
func (c *Call) Text(at, length uint64) []byte {
	b := c.View(uint32(at), uint64(uint32(length)))
	if !utf8.Valid(b) {
		Trapf("string at %#x is not UTF-8", uint32(at))
	}
	return b
}

// Alloc asks the guest for memory. Views from before are stale.
func (c *Call) Alloc(align, size uint32) uint32 {
	i, name := c.Instance, c.bound.options.Realloc
	realloc := i.realloc(c.Module, name)
	if realloc == nil {
		Trapf("realloc %q is no export of the module", name)
	}
	stack := [4]uint64{0, 0, uint64(align), uint64(size)}
	i.leaving = true
	err := realloc.CallWithStack(c.Context, stack[:])
	if err != nil {
		panic(err) // the guest has trapped or exited
	}
	i.leaving = false
	at := uint32(stack[0])
	if at%align != 0 {
		Trapf("%s returned %#x, which is not aligned to %d", name, at, align)
	}
	c.View(at, uint64(size))
	return at
}

// PutBytes writes a list<u8>, or a string, which is a pointer and a length.
func (c *Call) PutBytes(out uint32, b []byte) {
	at := c.Alloc(1, uint32(len(b)))
	c.Memory.Write(at, b)
	c.Put32(out, at)
	c.Put32(out+4, uint32(len(b)))
}

// PutText is PutBytes of a string.
func (c *Call) PutText(out uint32, s string) { c.PutBytes(out, []byte(s)) }

// PutList makes room for a list of count elements, writes where it is, and returns that.
func (c *Call) PutList(out uint32, count int, size, align uint32) uint32 {
	total := uint64(count) * uint64(size)
	if total > math.MaxUint32 {
		Trapf("list of %d elements does not fit into memory", count)
	}
	at := c.Alloc(align, uint32(total))
	c.Put32(out, at)
	c.Put32(out+4, uint32(count))
	return at
}

// Put8 writes into an area that was checked before.
func (c *Call) Put8(at uint32, v uint8) { c.Memory.WriteByte(at, v) }

// Put16 is Put8 of 2 bytes.
func (c *Call) Put16(at uint32, v uint16) { c.Memory.WriteUint16Le(at, v) }

// Put32 is Put8 of 4 bytes.
func (c *Call) Put32(at uint32, v uint32) { c.Memory.WriteUint32Le(at, v) }

// Put64 is Put8 of 8 bytes.
func (c *Call) Put64(at uint32, v uint64) { c.Memory.WriteUint64Le(at, v) }

// PutBool writes a bool, or the discriminant of an option.
func (c *Call) PutBool(at uint32, v bool) {
	b := uint8(0)
	if v {
		b = 1
	}
	c.Put8(at, b)
}

// PutOption writes an option of a handle: its discriminant, and the handle 4 bytes behind it.
func (c *Call) PutOption(at uint32, r Resource) {
	c.Put8(at, 1)
	c.Put32(at+4, c.Add(r, 0))
}

// Add gives the guest a handle: see Instance.Add.
func (c *Call) Add(r Resource, parent uint32) uint32 { return c.Instance.Add(r, parent) }

// Discriminant reads the case of a variant or an enum.
//
//go:noinline
func Discriminant(p uint64, cases uint32) uint32 {
	v := uint32(p)
	if v >= cases {
		Trapf("unexpected discriminant %d", v)
	}
	return v
}
