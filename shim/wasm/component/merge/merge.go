// Package merge makes one core module of the core instances of a component, so that the component
// runs as any other module does.
//
// The input is an ordered list of instances, each of one core module, with what every import of it
// is bound to. The output defines all that they define: index spaces are joined, and bodies,
// segments and initial values renumbered. What is left to import are functions of the host.
//
// # What is preserved
//
// Running the merged module does what instantiating the modules one after the other does. Active
// segments of instances that come after the first start function are applied by the new start
// function, in order. Calls through tables that nothing changes after they are filled (the way in
// which wit-component breaks cycles between instances) become direct calls, see trampoline.
//
// # Validity
//
// Whether a body is well-typed is not checked here: merging keeps the type of everything that a
// body refers to, so an ill-typed body makes an ill-typed module, which the engine refuses. What
// merging could hide is checked here for each module alone: that indices are inside the module's
// own spaces, that there is a memory, a data count or a declared function where an instruction
// needs one, the types of initial values, limits, the order and the ends of sections. The output
// must be validated before it runs, as any module is.
//
// # What is dropped
//
// Custom sections, except for the names of functions: they start with the name of their instance.
package merge

import (
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Input is what to merge.
type Input struct {
	Instances []Instance // in the order in which they are instantiated
	Exports   []FinalExport
}

// Instance is an instance of a core module.
type Instance struct {
	Name    string // for errors, and for the names of functions in stack traces
	Module  []byte
	Imports map[ImportName]Source // of each import of the module; others are ignored
}

// ImportName is the name of an import.
type ImportName struct{ Module, Name string }

// FinalExport is an export of the merged module.
type FinalExport struct {
	Name string
	Of   Export
	Type *format.FuncType // of the function that it has to be; nil = anything
}

// Source is what an import is bound to: Export, Host, Trap or Constant.
type Source interface{ source() }

// Export is an export of an instance that comes earlier, of any kind.
type Export struct {
	Instance int // in Input.Instances
	Name     string
}

// Host is a function of the host, which the merged module imports by this name.
type Host struct {
	Module, Name string
	Type         format.FuncType
}

// Trap is a function that traps when it is called.
type Trap struct{}

// Constant is an immutable global of a type for numbers of up to 64 bits.
type Constant struct{ Bits uint64 }

func (Export) source()   {}
func (Host) source()     {}
func (Trap) source()     {}
func (Constant) source() {}

// Result is a merged module.
type Result struct {
	Module    []byte
	Functions int // that it defines
	Imports   int // that it has, all of them functions
	Direct    int // functions of which calls go directly to what a table has for them
}

// Merge merges core instances into one core module. The time it takes is linear in the size of the
// modules.
//
// # Errors
//
// ErrUnsupported, ErrInvalid, ErrTooLarge, or a *LinkError, with the name of the instance.
func Merge(in Input) (*Result, error) {
	m := &merger{types: map[string]uint32{}}
	for _, step := range []func(Input) error{
		m.parse, m.collectHosts, m.link, m.readSegments, m.export, m.resolveTrampolines, m.rewrite,
	} {
		if err := step(in); err != nil {
			return nil, err
		}
	}
	out, err := m.write()
	if err != nil {
		return nil, err
	}
	return &Result{Module: out, Functions: len(m.functions) - len(m.hosts), Imports: len(m.hosts), Direct: len(m.aliases)}, nil
}

// merger is the merged module, as far as it is known. Indices into it are those of the output.
type merger struct {
	modules []*module

	types    map[string]uint32 // by their encoding
	typeList []string

	hosts     []Host
	functions []uint32 // types; the hosts' first, then those defined by instances, then the traps
	traps     map[uint32]uint32
	tables    []table
	memories  []memory
	globals   []global
	elements  []element
	data      []data
	exports   []export
	starts    []start

	aliases  map[uint32]uint32 // functions that only call another one
	code     []byte            // bodies of the instances' functions, each with its size
	declared map[uint32]bool   // functions that bodies refer to
	usesData bool              // there are instructions that refer to data segments
}

// Bounds of the output and the input.
const (
	maxInstances = 1000
	maxItems     = 1 << 20 // functions, types, globals and so on, of each kind
	maxSize      = 1 << 30 // bytes
)

// parse reads the modules.
func (m *merger) parse(in Input) error {
	if len(in.Instances) > maxInstances {
		return fmt.Errorf("merge %d instances: more than %d: %w", len(in.Instances), maxInstances, ErrTooLarge)
	}
	size, functions := 0, 0
	for _, i := range in.Instances {
		if size += len(i.Module); size > maxSize {
			return fmt.Errorf("merge instances: their modules have more than %d MiB: %w", maxSize>>20, ErrTooLarge)
		}
		mod, err := m.readModule(i)
		if err != nil {
			return fmt.Errorf("instance %q: %w", i.Name, err)
		}
		if functions += len(mod.bodies); functions > maxItems {
			return fmt.Errorf("merge instances: more than %d functions: %w", maxItems, ErrTooLarge)
		}
		m.modules = append(m.modules, mod)
	}
	return nil
}

// typeIndex returns the index of a type, by its encoding.
func (m *merger) typeIndex(encoded []byte) uint32 {
	n, ok := m.types[string(encoded)]
	if !ok {
		n = uint32(len(m.typeList))
		text := string(encoded)
		m.types[text] = n
		m.typeList = append(m.typeList, text)
	}
	return n
}
