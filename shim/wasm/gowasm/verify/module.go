// Package verify says whether a function that was rewritten does what it did before. It knows nothing of how functions are
// rewritten: it reads both bodies and walks through them at once, with symbols for values. Both have to do the same in the same order: calls,
// stores, what sets globals and the locals that were there before, decisions, and what may trap. A function of which that cannot
// be shown is refused, though it may be right.
//
// What may differ is what does not show: values that are computed again or kept, places in the code, loads. A load that one body
// has and the other lacks must be at an address that the other is certain to reach before anything else can be seen, or in the function's own frame.
//
// What Go's compiler and runtime promise is taken for granted:
//
//   - local 1 and global 0 hold the stack pointer. A function that takes an i32 and gives one leaves it 8 above where it was
//     called when it returns 0; when it returns another number its caller returns too. Others leave it alone if nothing in them sets it.
//   - a frame lies in memory as soon as the check for a larger stack has been passed, and does not reach around the end of addresses.
//     A function without such a check has a small frame.
//   - nothing but a function and what it calls writes into its frame, unless it gives addresses in it away.
//   - what is read behind a check for a nil pointer, within 64 KiB of another pointer, is there though the check failed.
//
// Types are not looked at: wazero validates what was rewritten.
package verify

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Module is what is known of a module beside the function that is verified.
type Module struct {
	types     []format.FuncType
	functions []format.FuncType // all, the imported first
	imports   int
	bodies    [][]byte // of those that are not imported

	nevers map[int64]bool
	quiets map[int64]bool
	levels map[int64]bool
	nested int // functions that level is asked of
}

// New reads a module as it is before its functions are rewritten.
func New(sections []format.Section) (*Module, error) {
	m := &Module{nevers: map[int64]bool{}, quiets: map[int64]bool{}, levels: map[int64]bool{}}
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

// Function says why it is not certain that a body does what the n-th one of the module does; nil = it does. It is not to be called by
// two goroutines at once.
func (m *Module) Function(n int, rewritten []byte) (err error) {
	defer func() {
		// Nobody has validated the bodies: one that takes more from its stack than there is ends here.
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
	return newWalk(m, before, after).run()
}

// returnsAsGo says whether a type is that of Go's functions.
func returnsAsGo(t format.FuncType) bool {
	return string(t.Params) == "\x7f" && string(t.Results) == "\x7f"
}

// never says whether a function of Go's shape never returns 0: each of its ends gives another number, or traps.
func (m *Module) never(index int64) bool {
	if known, is := m.nevers[index]; is {
		return known
	}
	own := index - int64(m.imports)
	if own < 0 || own >= int64(len(m.bodies)) || !returnsAsGo(m.functions[index]) {
		return false
	}
	is := neverZero(m.bodies[own])
	m.nevers[index] = is
	return is
}

func neverZero(body []byte) bool {
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
				return false // out of the function, with a value
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

// quiet says whether a function of another shape than Go's leaves all globals alone: it sets none, and calls nothing.
func (m *Module) quiet(index int64) bool {
	if index < int64(m.imports) {
		return true // the host has no access to them
	}
	if known, is := m.quiets[index]; is {
		return known
	}
	code, ok := expression(m.bodies[index-int64(m.imports)])
	for _, i := range code {
		ok = ok && i.op != opGlobalSet && i.op != opCall && i.op != opCallOf
	}
	m.quiets[index] = ok
	return ok
}

// maxNested bounds how deep level is asked.
const maxNested = 8

// level says whether a function of another shape than Go's returns with the stack pointer where it was called. One that calls itself,
// straight or not, is not asked again.
func (m *Module) level(index int64) bool {
	if known, is := m.levels[index]; is {
		return known
	}
	m.levels[index] = false
	if m.nested >= maxNested {
		return false
	}
	m.nested++
	defer func() { m.nested-- }()
	f, err := m.newFunction(m.functions[index], m.bodies[index-int64(m.imports)])
	if err != nil {
		return false
	}
	w := newWalk(m, f, f)
	m.levels[index] = w.run() == nil && w.level
	return m.levels[index]
}

// expression decodes what follows the locals of a body.
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
