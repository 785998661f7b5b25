// Package verify decides whether a rewritten function does what the original did (translation
// validation). It knows nothing of how functions are rewritten. It executes both bodies side by
// side with symbolic values, and asks that both have the same effects in the same order: calls,
// stores, writes of globals and of the original's locals, decisions, and what may trap. A function
// for which this cannot be shown is refused, although it may be right.
//
// Without effect are values that are recomputed or kept, places in the code, and loads. A load
// that only one body has must be at an address that the other one certainly accesses before the
// next effect, or in the function's own frame.
//
// What Go's compiler and runtime guarantee is assumed:
//
//   - Local 1 and global 0 hold the stack pointer. A function from i32 to i32 that returns 0
//     leaves it 8 above where it was called; if it returns another number its caller returns too.
//     Other functions leave the stack pointer alone if nothing in them sets it.
//   - A frame is in memory as soon as the check for a larger stack has passed, and does not reach
//     around the end of the address space. A function without such a check has a small frame.
//   - Only a function and what it calls write into its frame, unless the frame's address escapes.
//   - What is read behind a check for a nil pointer, within 64 KiB of another pointer, is in
//     memory even if the check failed.
//
// Types are not checked: wazero validates the rewritten module.
package verify

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Module is what has to be known of a module to verify one of its functions.
type Module struct {
	types     []format.FuncType
	functions []format.FuncType // all types, those of imported functions first
	imports   int
	bodies    [][]byte // of the functions that are not imported

	nonZero     map[int64]bool
	globalsKept map[int64]bool
	pointerKept map[int64]bool
	nested      int // depth of calls of keepsStackPointer
}

// New reads a module before its functions are rewritten.
func New(sections []format.Section) (*Module, error) {
	m := &Module{nonZero: map[int64]bool{}, globalsKept: map[int64]bool{}, pointerKept: map[int64]bool{}}
	var ok bool
	if m.types, ok = format.Types(sections); !ok {
		return nil, errors.New("types are not understood")
	}
	imports, ok := format.Imports(sections)
	if !ok {
		return nil, errors.New("imports are not understood")
	}
	for _, i := range imports {
		if i.Kind == format.KindFunction {
			m.functions = append(m.functions, i.FuncType)
		}
	}
	m.imports = len(m.functions)
	own, ok := format.Functions(sections)
	if !ok {
		return nil, errors.New("functions are not understood")
	}
	for _, t := range own {
		if uint64(t) >= uint64(len(m.types)) {
			return nil, errors.New("a function has an unknown type")
		}
		m.functions = append(m.functions, m.types[t])
	}
	r := format.Reader{Rest: format.Find(sections, format.SectionCode)}
	for range r.Number() {
		if m.bodies = append(m.bodies, r.Bytes()); r.Bad {
			return nil, errors.New("the code is cut off")
		}
	}
	if len(m.bodies) != len(own) {
		return nil, errors.New("functions and bodies are not as many")
	}
	return m, nil
}

// Function returns nil if a body is shown to do the same as function n of the module, and
// otherwise why not. It must not be called by two goroutines at once.
func (m *Module) Function(n int, rewritten []byte) (err error) {
	defer func() {
		// The bodies have not been validated: one that pops more operands than there are ends here.
		if p := recover(); p != nil {
			if _, bounds := p.(runtime.Error); !bounds {
				panic(p)
			}
			err = errShape
		}
	}()
	t := m.functions[m.imports+n]
	before, err := m.newFunction(t, m.bodies[n])
	if err != nil {
		return fmt.Errorf("read function: %w", err)
	}
	after, err := m.newFunction(t, rewritten)
	if err != nil {
		return fmt.Errorf("read rewritten function: %w", err)
	}
	if len(after.locals) < len(before.locals) || string(after.locals[:len(before.locals)]) != string(before.locals) {
		return errors.New("the locals are not those that were there before, and more")
	}
	return newProof(m, before, after).run()
}

// returnsAsGo says whether a type is that of Go's functions.
func returnsAsGo(t format.FuncType) bool {
	return string(t.Params) == "\x7f" && string(t.Results) == "\x7f"
}

// neverReturnsZero says whether a function of Go's signature never returns 0: each of its ends
// returns another number, or traps.
func (m *Module) neverReturnsZero(index int64) bool {
	if known, is := m.nonZero[index]; is {
		return known
	}
	own := index - int64(m.imports)
	if own < 0 || own >= int64(len(m.bodies)) || !returnsAsGo(m.functions[index]) {
		return false
	}
	is := neverEndsWithZero(m.bodies[own])
	m.nonZero[index] = is
	return is
}

func neverEndsWithZero(body []byte) bool {
	code, ok := expression(body)
	if !ok {
		return false
	}
	nest := 0
	for k, i := range code {
		switch i.op {
		case opBlock, opLoop, opIf:
			nest++
		case opEnd:
			nest--
		case opReturn:
			if k == 0 || code[k-1].op != opI32Const || code[k-1].value == 0 {
				return false
			}
		case opBr, opBrIf:
			if i.value >= int64(nest) {
				return false // out of the function, with a result
			}
		case opBrTable:
			for _, d := range i.depths {
				if int64(d) >= int64(nest) {
					return false
				}
			}
		}
	}
	if len(code) < 2 {
		return false
	}
	last := code[len(code)-2]
	return last.op == opUnreachable || last.op == opI32Const && last.value != 0
}

// keepsGlobals says whether a function of another signature than Go's leaves all globals alone: it
// sets none, and calls nothing.
func (m *Module) keepsGlobals(index int64) bool {
	if index < int64(m.imports) {
		return true // the host has no access to them
	}
	if known, is := m.globalsKept[index]; is {
		return known
	}
	code, ok := expression(m.bodies[index-int64(m.imports)])
	for _, i := range code {
		ok = ok && i.op != opGlobalSet && i.op != opCall && i.op != opCallOf
	}
	m.globalsKept[index] = ok
	return ok
}

// maxNested bounds the depth of keepsStackPointer.
const maxNested = 8

// keepsStackPointer says whether a function of another signature than Go's returns with the stack
// pointer where it was called. Recursive functions do not count as such.
func (m *Module) keepsStackPointer(index int64) bool {
	if known, is := m.pointerKept[index]; is {
		return known
	}
	m.pointerKept[index] = false
	if m.nested >= maxNested {
		return false
	}
	m.nested++
	defer func() { m.nested-- }()
	f, err := m.newFunction(m.functions[index], m.bodies[index-int64(m.imports)])
	if err != nil {
		return false
	}
	w := newProof(m, f, f)
	m.pointerKept[index] = w.run() == nil && w.keepsPointer
	return m.pointerKept[index]
}

// expression decodes the instructions of a body.
func expression(body []byte) ([]instr, bool) {
	r := format.Reader{Rest: body}
	for range r.Number() {
		r.Number()
		if r.Octet(); r.Bad {
			return nil, false
		}
	}
	code, err := decode(&r)
	return code, err == nil
}
