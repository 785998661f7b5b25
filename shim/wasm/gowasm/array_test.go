package gowasm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm/verify"
)

// TestVerifierSeesStoresToTheFrame gives the verifier a function that reads a word of its frame
// before and after a store to an address that is counted from the stack pointer by a variable, as
// to an element of an array in the frame: the word may be another one then.
func TestVerifierSeesStoresToTheFrame(t *testing.T) {
	const kept = 6 // the first new local
	word := []byte{opLocalGet, stackPointer, opI64Load, 3, 8, opI32WrapI64}
	use := []byte{opI64Load, 3, 0, opLocalSet, 2}
	for name, address := range map[string][]byte{
		"counted in 64 bits": {opLocalGet, stackPointer, opI64ExtendU, opLocalGet, 2, opI64Add, opI32WrapI64},
		"counted in 32 bits": {opLocalGet, stackPointer, opLocalGet, 2, opI32WrapI64, opI32Add},
		"counted downwards":  {opLocalGet, stackPointer, opLocalGet, 2, opI32WrapI64, opI32Sub},
	} {
		store := append(bytes.Clone(address), opLocalGet, 2, opI64Store, 3, 0)
		body := func(more byte, first, second []byte) []byte {
			locals := []byte{3, 1, typeI32, 4, 0x7e, more, typeI32}
			code := []byte{opGlobalGet, 0, opLocalSet, stackPointer}
			return bytes.Join([][]byte{locals, code, first, use, store, second, use, {opI32Const, 0, opEnd}}, nil)
		}
		j := &jumping{framed: framed{rand: rand.New(rand.NewPCG(1, 6)), callee: 1}}
		sections, err := format.Split(j.wrap())
		if err != nil {
			t.Fatal(err)
		}
		sections, err = format.Split(inPlaceOf(sections, body(0, word, word)))
		if err != nil {
			t.Fatal(err)
		}
		verifier, err := verify.New(sections)
		if err != nil {
			t.Fatal(err)
		}
		last := len(bodiesOf(sections)) - 1
		if err := verifier.Function(last, body(1, append(bytes.Clone(word), opLocalTee, kept), append(bytes.Clone(word), opLocalTee, kept))); err != nil {
			t.Errorf("%s: the word is read again, and is refused: %v", name, err)
		}
		if err := verifier.Function(last, body(1, append(bytes.Clone(word), opLocalTee, kept), []byte{opLocalGet, kept})); err == nil {
			t.Errorf("%s: the word is not read again after the store, and is let through", name)
		}
	}
}
