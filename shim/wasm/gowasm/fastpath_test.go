package gowasm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// TestFunctionsWithFastPathDoTheSame calls random functions, and resumes in them, as they are and
// with a fast path.
func TestFunctionsWithFastPathDoTheSame(t *testing.T) {
	r := hosted(t)
	fast, analyzed, whole := 0, 0, 0
	for seed := range uint64(50) {
		j := &jumping{framed: framed{rand: rand.New(rand.NewPCG(seed, 2)), callee: 1}}
		j.count = 1 + j.rand.IntN(7)
		module := j.build()
		sections, err := format.Split(module)
		if err != nil {
			t.Fatal(err)
		}
		m, ok := readGoModule(sections)
		if !ok {
			t.Fatalf("seed %d: not understood", seed)
		}
		code := format.Reader{Rest: format.Find(sections, format.SectionCode)}
		code.Number()
		code.Bytes()
		code.Bytes()
		body := code.Bytes()
		if !bytes.Equal(m.addFastPath(body), body) {
			fast++
		}
		decoded, _ := decode(nil, body, 5)
		if f, ok := newControlFlow(body, decoded); ok {
			if _, ok := m.analyzeFrame(f); ok {
				analyzed++
			}
		}
		rewritten, ok := rewrite(sections)
		if !ok {
			t.Fatalf("seed %d: not rewritten", seed)
		}
		for param := range uint64(j.count + 3) {
			got, want := outcome(t, r, format.Join(rewritten), param), outcome(t, r, module, param)
			if strings.Contains(want, "] <nil> ") {
				whole++
			}
			if got != want {
				t.Fatalf("seed %d, called with %d: with a fast path it does\n%s\nand not\n%s\nbody %x", seed, param, got, want, body)
			}
		}
	}
	if fast < 35 || analyzed < 10 {
		t.Errorf("%d functions of 50 got a fast path, and the frame was analyzed in %d", fast, analyzed)
	}
	t.Logf("%d with a fast path, %d analyzed, %d runs without a trap", fast, analyzed, whole)
}

// TestDamagedFunctions rewrites functions that no compiler wrote: they are rewritten before
// anything has validated them.
func TestDamagedFunctions(t *testing.T) {
	for seed := range uint64(300) {
		j := &jumping{framed: framed{rand: rand.New(rand.NewPCG(seed, 3)), callee: 1}}
		j.count = 1 + j.rand.IntN(7)
		sections, err := format.Split(j.build())
		if err != nil {
			t.Fatal(err)
		}
		m, ok := readGoModule(sections)
		if !ok {
			t.Fatalf("seed %d: not understood", seed)
		}
		code := format.Reader{Rest: format.Find(sections, format.SectionCode)}
		code.Number()
		code.Bytes()
		code.Bytes()
		body := bytes.Clone(code.Bytes())
		for range 100 {
			damaged := bytes.Clone(body)
			for range 1 + j.rand.IntN(3) {
				some := []byte{opElse, opEnd, opBlock, opLoop, opIf, opBr, opBrIf, opBrTable, opCall, opLocalGet, opReturn, byte(j.rand.Uint32())}
				damaged[j.rand.IntN(len(damaged))] = some[j.rand.IntN(len(some))]
			}
			if j.rand.IntN(4) == 0 {
				damaged = damaged[:j.rand.IntN(len(damaged))]
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Fatalf("seed %d: %v\nbody %x", seed, p, damaged)
					}
				}()
				m.addFastPath(damaged)
				var f folder
				f.fold(damaged)
			}()
		}
	}
}

// aside is a function in which a block falls through into the next one, and another block that it
// dominates is written between them: the next block is neither a jump target nor a loop header,
// and must not use what the block between has wrapped from local 3.
func aside() *jumping {
	j := &jumping{framed: framed{rand: rand.New(rand.NewPCG(1, 4)), callee: 1}, count: 4}
	j.code = append([]byte{opGlobalGet, 0, opLocalSet, stackPointer}, opBlock, 0x40, opLoop, 0x40)
	j.code = append(j.code, bytes.Repeat([]byte{opBlock, 0x40}, j.count)...)
	j.code = append(j.code, opLocalGet, 0, opBrTable, 5, 0, 0, 1, 2, 3, 0, opEnd)
	jump := func(block, to, nest int) {
		j.op(opI32Const, int64(to+1))
		j.code = append(j.code, opLocalSet, 0)
		j.branch(opBr, block, nest, 0)
	}
	j.move(frame)
	j.op(opI64Const, 0x1230)
	j.code = append(j.code, opLocalSet, 3)
	jump(0, 2, 0)
	j.op(opEnd)
	j.use() // block 1 is first in the function, and follows block 2
	j.use()
	j.leave(0)
	j.op(opEnd)
	j.get(2)
	j.op(opI64Eqz)
	j.op(opI32Eqz)
	j.iff()
	jump(2, 1, 1)
	j.op(opEnd)
	j.op(opEnd)
	j.use() // so does block 3
	j.get(stackPointer)
	j.get(2)
	j.memory(opI64Store, 8)
	j.leave(0)
	j.op(opEnd)
	j.code = append(j.code, opUnreachable, opEnd)
	j.op(opI32Const, 1)
	j.op(opEnd)
	return j
}

// TestBlockWrittenBetween has a block that falls through into the next one with another written
// between them.
func TestBlockWrittenBetween(t *testing.T) {
	r := hosted(t)
	module := aside().wrap()
	sections, err := format.Split(module)
	if err != nil {
		t.Fatal(err)
	}
	rewritten, ok := rewrite(sections)
	if !ok || bytes.Equal(format.Join(rewritten), module) {
		t.Fatal("not rewritten")
	}
	for param := range uint64(5) {
		if got, want := outcome(t, r, format.Join(rewritten), param), outcome(t, r, module, param); got != want {
			t.Errorf("called with %d: with a fast path it does\n%s\nand not\n%s", param, got, want)
		}
	}
}

// hosted is an engine with the function that makes a module one that serves.
func hosted(t *testing.T) wazero.Runtime {
	t.Helper()
	r := wazero.NewRuntime(context.Background())
	t.Cleanup(func() { r.Close(context.Background()) })
	host := r.NewHostModuleBuilder("host").NewFunctionBuilder().WithFunc(func(uint32) uint32 { return 0 }).Export("sock_accept")
	if _, err := host.Instantiate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r
}
