package gowasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// framed writes functions that work on a stack as Go's do: the pointer in global 0 and in local 1,
// a sum of all that is read in local 2.
type framed struct {
	code   []byte
	rand   *rand.Rand
	callee byte
}

func (f *framed) op(code byte, values ...int64) {
	f.code = append(f.code, code)
	for _, v := range values {
		f.code = appendSigned(f.code, v)
	}
}

// memory is a load or store.
func (f *framed) memory(op byte, offset int) {
	f.code = binary.AppendUvarint(append(f.code, op, 0), uint64(offset))
}

func (f *framed) get(local byte) { f.code = append(f.code, opLocalGet, local) }

// address pushes the stack pointer and returns the offset that is left for the instruction that
// uses it.
func (f *framed) address() int {
	offset := f.rand.IntN(100)
	f.get(stackPointer)
	if f.rand.IntN(2) == 0 {
		f.op(opI64ExtendU)
		f.op(opI64Const, int64(f.rand.IntN(100)))
		f.op(opI64Add)
		f.op(opI32WrapI64)
	}
	return offset
}

// move lowers or raises the pointer.
func (f *framed) move(by int64) {
	f.get(stackPointer)
	f.op(opI32Const, by)
	f.op(opI32Sub)
	f.code = append(f.code, opLocalTee, stackPointer, opGlobalSet, 0)
}

// sum adds the i64 on the stack to local 2.
func (f *framed) sum() {
	f.get(2)
	f.op(opI64Const, 31)
	f.op(0x7e) // i64.mul
	f.op(opI64Add)
	f.code = append(f.code, opLocalSet, 2)
}

func (f *framed) statement(depth int) {
	loads := []byte{0x29, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35} // to i64
	stores := []byte{0x37, 0x3c, 0x3d, 0x3e}                  // of i64
	one := func(from []byte) byte { return from[f.rand.IntN(len(from))] }
	switch n := f.rand.IntN(9); {
	case n < 2:
		offset := f.address()
		f.memory(one(loads), offset)
		f.sum()
	case n < 4:
		offset := f.address()
		f.get(2)
		f.memory(one(stores), offset)
	case n == 4: // the value comes from memory too
		offset := f.address()
		f.memory(one(loads), f.address())
		f.memory(one(stores), offset)
	case n == 5: // as a call is made
		f.move(8)
		f.get(stackPointer)
		f.op(opI64Const, f.rand.Int64())
		f.memory(0x37, 0)
		f.op(opI32Const, 0)
		f.code = append(f.code, opCall, f.callee, opGlobalGet, 0, opLocalSet, stackPointer, opDrop)
	case n == 6:
		f.move(int64(f.rand.IntN(64)) - 32)
	case n == 7: // the pointer moves between an address and its use
		offset := f.address()
		f.move(16)
		f.get(2)
		f.memory(one(stores), offset)
	case depth > 0:
		f.get(2)
		f.op(opI64Const, 1)
		f.op(0x83) // i64.and
		f.op(opI32WrapI64)
		f.op(0x04, -64) // if
		for range f.rand.IntN(6) {
			f.statement(depth - 1)
		}
		f.op(opEnd)
	}
}

// module is a module of Go's linker with this body and a function 0 that returns as Go's do.
func (f *framed) module() []byte {
	callee := []byte{0, opGlobalGet, 0, opI32Const, 8, 0x6a, opGlobalSet, 0, opI32Const, 1, opEnd}
	body := append([]byte{2, 1, 0x7f, 1, 0x7e, opGlobalGet, 0, opLocalSet, stackPointer}, f.code...)
	body = append(body, opLocalGet, stackPointer, opI64ExtendU, opLocalGet, 2, 0x85, opI32WrapI64, opEnd)
	code := []byte{2}
	for _, b := range [][]byte{callee, body} {
		code = append(binary.AppendUvarint(code, uint64(len(b))), b...)
	}
	pointer := append(appendSigned([]byte{1, 0x7f, 1, opI32Const}, 32<<10), opEnd)
	return format.Join([]format.Section{
		format.NewSection(format.SectionCustom, []byte(buildID)),
		format.NewSection(1, []byte{1, 0x60, 1, 0x7f, 1, 0x7f}),
		format.NewSection(3, []byte{2, 0, 0}),
		format.NewSection(format.SectionMemory, []byte{1, 0, 1}),
		format.NewSection(6, pointer),
		format.NewSection(7, append(append([]byte{2, 3}, "run\x00\x01"...), "\x03mem\x02\x00"...)),
		format.NewSection(format.SectionCode, code),
	})
}

// outcome runs a module and gives what it returned and left in its memory.
func outcome(t *testing.T, r wazero.Runtime, module []byte, param uint64) string {
	t.Helper()
	ctx := context.Background()
	m, err := r.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(ctx)
	results, err := m.ExportedFunction("run").Call(ctx, param)
	memory, _ := m.ExportedMemory("mem").Read(0, 64<<10)
	return fmt.Sprintf("%v %v %x", results, err, bytes.Trim(memory, "\x00"))
}

// TestFoldedFunctionsDoTheSame runs functions at random as they are and folded.
func TestFoldedFunctionsDoTheSame(t *testing.T) {
	r := wazero.NewRuntime(context.Background())
	defer r.Close(context.Background())
	shorter := 0
	for seed := range uint64(300) {
		f := &framed{rand: rand.New(rand.NewPCG(seed, 1))}
		for range 3 + f.rand.IntN(40) {
			f.statement(3)
		}
		module := f.module()
		sections, err := format.Split(module)
		if err != nil || !isGo(sections) {
			t.Fatalf("seed %d: not of Go: %v", seed, err)
		}
		folded, ok := rewrite(sections)
		if !ok {
			t.Fatalf("seed %d: not folded", seed)
		}
		if got, want := outcome(t, r, format.Join(folded), 7), outcome(t, r, module, 7); got != want {
			t.Fatalf("seed %d: folded it does\n%s\nand not\n%s\nbody %x", seed, got, want, format.Find(folded, format.SectionCode))
		}
		if len(format.Join(folded)) < len(module) {
			shorter++
		}
	}
	if shorter == 0 {
		t.Error("nothing became shorter")
	}
}

// TestFold compares what becomes of a call with what is meant to.
func TestFold(t *testing.T) {
	f := &framed{}
	f.get(stackPointer)
	f.op(opI64ExtendU)
	f.op(opI64Const, 24)
	f.op(opI64Add)
	f.op(opI32WrapI64)
	f.op(opI64Const, 5)
	f.memory(0x37, 0)
	f.get(stackPointer)
	f.memory(0x29, 40)
	f.op(opDrop)
	f.move(8)
	sections, _ := format.Split(f.module())
	folded, ok := rewrite(sections)
	if !ok {
		t.Fatal("not folded")
	}
	const spare = 3
	want := []byte{
		opLocalGet, stackPointer, opI32Const, 8, opI32Sub, opLocalSet, spare, // what the pointer is going to be
		opLocalGet, spare, opI32Load8U, 0, 40 + 8 + 8 - 1, opDrop, // the last byte that is read
		opLocalGet, spare, opI64Const, 5, 0x37, 0, 24 + 8,
		opLocalGet, spare, 0x29, 0, 40 + 8, opDrop,
		opLocalGet, spare, opLocalTee, stackPointer, opGlobalSet, 0,
	}
	if got := format.Find(folded, format.SectionCode); !bytes.Contains(got, want) {
		t.Errorf("got %x, want %x in it", got, want)
	}
}

// TestWhatIsNotUnderstoodIsNotFolded rewrites functions with instructions that are not known: they
// stay as they are.
func TestWhatIsNotUnderstoodIsNotFolded(t *testing.T) {
	known := func() *framed {
		f := &framed{}
		f.get(stackPointer)
		f.op(opI64ExtendU)
		f.op(opI64Const, 24)
		f.op(opI64Add)
		f.op(opI32WrapI64)
		f.memory(0x29, 0)
		f.op(opDrop)
		return f
	}
	if sections, _ := format.Split(known().module()); bytes.Equal(folded(t, sections), format.Find(sections, format.SectionCode)) {
		t.Fatal("what is understood is not folded")
	}
	for name, code := range map[string][]byte{
		"vector instruction": {0xfd, 12, opDrop},
		"unknown opcode":     {0xff},
		"several memories":   {opLocalGet, 1, 0x29, 0x40, 0, 0, opDrop},
		"endless number":     append([]byte{opLocalGet}, bytes.Repeat([]byte{0x80}, 12)...),
	} {
		f := known()
		f.code = append(f.code, code...)
		sections, err := format.Split(f.module())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(folded(t, sections), format.Find(sections, format.SectionCode)) {
			t.Errorf("%s: folded", name)
		}
	}
	sections, _ := format.Split(known().module())
	for i, s := range sections {
		if s.ID == format.SectionCode {
			sections[i] = format.NewSection(format.SectionCode, append(s.Body, 0))
		}
	}
	if _, ok := rewrite(sections); ok {
		t.Error("folded a section with something behind its functions")
	}
}

func folded(t *testing.T, sections []format.Section) []byte {
	t.Helper()
	all, ok := rewrite(sections)
	if !ok {
		t.Fatal("not folded")
	}
	return format.Find(all, format.SectionCode)
}
