package gowasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm/verify"
)

// inPlaceOf is a module with another body as its last function.
func inPlaceOf(sections []format.Section, body []byte) []byte {
	bodies := bodiesOf(sections)
	bodies[len(bodies)-1] = body
	code := []byte{byte(len(bodies))}
	for _, b := range bodies {
		code = append(binary.AppendUvarint(code, uint64(len(b))), b...)
	}
	all := append([]format.Section{}, sections...)
	for i := range all {
		if all[i].ID == format.SectionCode {
			all[i] = format.NewSection(format.SectionCode, code)
		}
	}
	return format.Join(all)
}

// TestVerifierRefusesWhatIsNotSet gives the verifier what the rewriting once made: a block that
// reads a local which another one sets, that was written between it and its dominator.
func TestVerifierRefusesWhatIsNotSet(t *testing.T) {
	sections, err := format.Split(aside().wrap())
	if err != nil {
		t.Fatal(err)
	}
	rewritten, told, ok := rewriteVerified(sections)
	if !ok || told.Rewritten == 0 || told.Refused != 0 {
		t.Fatalf("%+v, %v", told, ok)
	}
	bodies := bodiesOf(rewritten)
	last := len(bodies) - 1
	// Where an address is cut out of local 3 for the second time, the local that it was put into
	// the first time is read instead.
	at := bytes.Index(bodies[last], []byte{opLocalGet, 3, opI32WrapI64})
	for range 1 {
		at += 3 + bytes.Index(bodies[last][at+3:], []byte{opLocalGet, 3, opI32WrapI64})
	}
	set := bytes.Index(bodies[last][at:], []byte{opLocalTee})
	if set < 0 || set > 6 {
		set = bytes.Index(bodies[last][at:], []byte{opLocalSet})
	}
	broken := bytes.Clone(bodies[last])
	copy(broken[at:], []byte{opLocalGet, broken[at+set+1], opNop})
	verifier, err := verify.New(sections)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Function(last, bodies[last]); err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
	if err := verifier.Function(last, broken); err == nil {
		t.Errorf("a local that is not set is let through: %x", broken)
	}
}

// mutate changes one instruction of a body, or declines with nil.
func mutate(r *rand.Rand, body []byte, head int) []byte {
	code, ok := decode(nil, body, head)
	if !ok {
		return nil
	}
	one := &code[r.IntN(len(code))]
	var to []byte
	switch op := one.op; {
	case r.IntN(4) == 0:
		to = bytes.Repeat([]byte{opNop}, int(one.end-one.at))
	case op >= opLocalGet && op <= opLocalTee:
		to = append(to, op, byte(r.IntN(12)))
	case op == opBr || op == opBrIf:
		to = append(to, op, byte(r.IntN(int(one.value)+3)))
	case op >= opLoadFirst && op <= opStoreLast:
		to = binary.AppendUvarint([]byte{op, byte(one.align)}, uint64(max(one.value+int64(r.IntN(5)-2)*4, 0)))
	case op == opI32Const || op == opI64Const:
		to = appendSigned([]byte{op}, one.value+int64(r.IntN(5)-2)*8)
	case op == opCall:
		to = []byte{op, byte(1 + r.IntN(2))}
	case op > opF64Const && op <= opNumericLast:
		to = []byte{op ^ byte(1<<r.IntN(3))}
	default:
		return nil
	}
	if bytes.Equal(to, body[one.at:one.end]) {
		return nil
	}
	return append(append(bytes.Clone(body[:one.at]), to...), body[one.end:]...)
}

// TestVerifierFindsMutations changes random instructions of rewritten functions. What the verifier
// accepts must be harmless: it does the same with every parameter.
func TestVerifierFindsMutations(t *testing.T) {
	r := hosted(t)
	tried, passed, harmful := 0, 0, 0
	for seed := range uint64(mutated) {
		j := &jumping{framed: framed{rand: rand.New(rand.NewPCG(seed, 5)), callee: 1}}
		j.count = 1 + j.rand.IntN(5)
		sections, err := format.Split(j.build())
		if err != nil {
			t.Fatal(err)
		}
		rewritten, told, ok := rewriteVerified(sections)
		if !ok || told.Rewritten == 0 {
			continue
		}
		verifier, err := verify.New(sections)
		if err != nil {
			t.Fatal(err)
		}
		bodies := bodiesOf(rewritten)
		last := len(bodies) - 1
		head := format.Reader{Rest: bodies[last]}
		for range head.Number() {
			head.Number()
			head.Octet()
		}
		want := map[uint64]string{}
		for range 150 {
			mutant := mutate(j.rand, bodies[last], len(bodies[last])-len(head.Rest))
			if mutant == nil {
				continue
			}
			tried++
			if verifier.Function(last, mutant) != nil {
				continue
			}
			module := inPlaceOf(sections, mutant)
			if c, err := r.CompileModule(context.Background(), module); err != nil {
				continue // not valid: wazero refuses it
			} else if err := c.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			passed++
			for param := range uint64(j.count + 3) {
				if _, ok := want[param]; !ok {
					want[param] = outcome(t, r, format.Join(sections), param)
				}
				if got := outcome(t, r, module, param); got != want[param] {
					harmful++
					t.Errorf("seed %d, called with %d: it does\n%.300s\nand not\n%.300s\nbody %x\nbut was %x", seed, param, got, want[param], mutant, bodies[last])
				}
			}
		}
	}
	if tried < 20*mutated || passed == 0 {
		t.Errorf("%d mutations were tried and %d passed", tried, passed)
	}
	t.Logf("of %d mutations %d were let through, %d of them do something else", tried, passed, harmful)
}

// mutated is how many functions are changed.
const mutated = 30

// TestRewritingIsVerified rewrites random functions and counts those that stay as they were.
func TestRewritingIsVerified(t *testing.T) {
	all := Result{}
	for seed := range uint64(300) {
		j := &jumping{framed: framed{rand: rand.New(rand.NewPCG(seed, 2)), callee: 1}}
		j.count = 1 + j.rand.IntN(7)
		sections, err := format.Split(j.build())
		if err != nil {
			t.Fatal(err)
		}
		_, told, ok := rewriteVerified(sections)
		if !ok {
			t.Fatalf("seed %d: not rewritten", seed)
		}
		all.Rewritten, all.Refused = all.Rewritten+told.Rewritten, all.Refused+told.Refused
	}
	// These ask the same question again and again, of which Go's compiler would know the answer:
	// some are refused for that.
	if all.Rewritten < 4*all.Refused {
		t.Errorf("%+v: too many are refused", all)
	}
	t.Logf("%+v", all)
}
