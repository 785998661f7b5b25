package gowasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"

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

// mutants counts what the verifier accepts of changed functions, and what of that is harmful.
type mutants struct{ tried, passed, harmful int }

// judge asks the verifier about bodies in place of the last function of a module. What it accepts
// must be harmless: it does the same with every parameter below the limit.
func (c *mutants) judge(t *testing.T, r wazero.Runtime, sections []format.Section, limit int, bodies func(yield func([]byte) bool)) {
	t.Helper()
	verifier, err := verify.New(sections)
	if err != nil {
		t.Fatal(err)
	}
	last := len(bodiesOf(sections)) - 1
	want := map[int]string{}
	for body := range bodies {
		c.tried++
		if verifier.Function(last, body) != nil {
			continue
		}
		module := inPlaceOf(sections, body)
		if valid, err := r.CompileModule(context.Background(), module); err != nil {
			continue // wazero refuses it
		} else if err := valid.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.passed++
		for param := range limit {
			if _, ok := want[param]; !ok {
				want[param] = outcome(t, r, format.Join(sections), uint64(param))
			}
			if got := outcome(t, r, module, uint64(param)); got != want[param] {
				c.harmful++
				t.Errorf("called with %d it does\n%.300s\nand not\n%.300s\nbody %x", param, got, want[param], body)
			}
		}
	}
}

// mutate judges random mutations of a random function.
func (c *mutants) mutate(t *testing.T, r wazero.Runtime, seed uint64) {
	t.Helper()
	sections, body, j := rewrittenAtRandom(t, seed)
	h, ok := readHeader(body)
	if !ok {
		t.Fatalf("seed %d: not understood", seed)
	}
	c.judge(t, r, sections, j.count+3, func(yield func([]byte) bool) {
		for range 150 {
			if mutant := mutate(j.rand, body, h); mutant != nil && !yield(mutant) {
				return
			}
		}
	})
}

// FuzzVerifier judges mutations of the functions of as many seeds as there is time for.
func FuzzVerifier(f *testing.F) {
	f.Add(uint64(mutated))
	f.Fuzz(func(t *testing.T, seed uint64) { new(mutants).mutate(t, hosted(t), seed) })
}

// TestVerifierFindsMutations changes random instructions of rewritten functions, and moves, repeats
// and leaves out pieces of them.
func TestVerifierFindsMutations(t *testing.T) {
	r := hosted(t)
	var c mutants
	for seed := range uint64(mutated) {
		c.mutate(t, r, seed)
	}
	if c.tried < 20*mutated || c.passed == 0 {
		t.Errorf("%d mutations were tried and %d passed", c.tried, c.passed)
	}
	t.Logf("of %d mutations %d were let through, %d of them do something else", c.tried, c.passed, c.harmful)
}

// TestVerifierFindsStaleWords has rewritten functions take a word of the frame for what it was
// before.
func TestVerifierFindsStaleWords(t *testing.T) {
	r := hosted(t)
	var c mutants
	for seed := range uint64(10 * mutated) {
		sections, body, j := rewrittenAtRandom(t, seed)
		if h, ok := readHeader(body); ok {
			c.judge(t, r, sections, j.count+3, slices.Values(stale(body, h)))
		}
	}
	if c.tried < 5*mutated || c.passed == c.tried {
		t.Errorf("%d mutations were tried and %d passed", c.tried, c.passed)
	}
	t.Logf("of %d mutations %d were let through, %d of them do something else", c.tried, c.passed, c.harmful)
}

// rewrittenAtRandom is a random module, and its last function rewritten.
func rewrittenAtRandom(t *testing.T, seed uint64) ([]format.Section, []byte, *jumping) {
	t.Helper()
	j := &jumping{framed: framed{rand: rand.New(rand.NewPCG(seed, 5)), callee: 1}}
	j.count = 1 + j.rand.IntN(5)
	sections, err := format.Split(j.build())
	if err != nil {
		t.Fatal(err)
	}
	rewritten, _, ok := rewriteVerified(sections)
	if !ok {
		t.Fatalf("seed %d: not rewritten", seed)
	}
	bodies := bodiesOf(rewritten)
	return sections, bodies[len(bodies)-1], j
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
