package canonical

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero/api"
)

// Function is a function of an interface.
type Function struct {
	Name            string
	Params, Results string // flat: a letter for each, i for i32, I for i64
	Answer          Answer // what the last parameter points to
	Reallocs        bool   // it needs the canonical option realloc

	// Async says that its type is asynchronous: it may be lowered so. Spill is then the layout of its
	// parameters (see spill), if they are more than four flat ones, and Stored the size of its flat
	// result in memory.
	Async  bool
	Spill  string
	Stored uint32

	// Call does it: p are the flat parameters, and p[0] takes the flat result. out is the address of
	// the payload in memory. An error is one of Answer.Fail, or a trap; an Operation is what continues
	// after the call.
	Call func(c *Call, p []uint64, out uint32) error
}

// Answer is the layout of what a function returns in memory, in bytes. A function that returns
// nothing there has none. Function.Call gets the address of the payload.
type Answer struct {
	Size, Align, Payload uint32

	// Fail writes the error of a function whose answer is a result, at the address of the payload.
	// nil: the answer is no result, and errors are traps.
	Fail func(c *Call, at uint32, err error)
}

// Layouts that occur often.
var (
	Pointer  = Answer{Size: 8, Align: 4} // list or string
	Pair     = Answer{Size: 16, Align: 8}
	Optional = Answer{Size: 8, Align: 4} // option<own>
)

// Result is the layout of a result whose larger payload has this size and the largest alignment of
// the two.
func Result(size, align uint32, fail func(c *Call, at uint32, err error)) Answer {
	total := (align + size + align - 1) / align * align
	return Answer{Size: total, Align: align, Payload: align, Fail: fail}
}

// World is a set of interfaces of a release of WASI, by their names without a version.
type World struct {
	Name       string // "wasi:cli/command@0.2"
	Release    string // "0.2", also for ""
	Interfaces map[string][]Function

	// Load, if it is set, makes the Interfaces when a function of the release is looked for: a guest
	// that imports none of it starts without them.
	Load func() map[string][]Function

	// Make makes a function of the module BuiltIns. A world that has it has no interfaces.
	Make func(name string) (*Function, error)
}

// BuiltIns is the module that the canonical built-ins are imported from. No interface has its name.
const BuiltIns = "sunaba:canon"

// Of is the release that the world is of.
func (w *World) Of() string {
	if w.Release == "" {
		return "0.2"
	}
	return w.Release
}

// All are the interfaces.
func (w *World) All() map[string][]Function {
	if w.Load != nil {
		return w.Load()
	}
	return w.Interfaces
}

// Signature is how a lowered function is imported.
type Signature struct {
	Params, Results []api.ValueType
	Realloc         bool // it needs the canonical option realloc
}

// Signature is that of the function.
func (f *Function) Signature() Signature {
	return Signature{Params: types(f.Params), Results: types(f.Results), Realloc: f.Reallocs}
}

// maxFlat is how many flat parameters an asynchronous lowering passes; more are in memory.
const maxFlat = 4

// AsyncSignature is that of the function when it is lowered asynchronously: where parameters and
// result are in memory, and it returns the state of a subtask.
func (f *Function) AsyncSignature() Signature {
	params := f.flat()
	if len(params) > maxFlat {
		params = "i"
	}
	if f.Answer.Size > 0 || f.Results != "" {
		params += "i"
	}
	return Signature{Params: types(params), Results: types("i"), Realloc: f.Reallocs}
}

// flat are the flat parameters without the pointer to the result.
func (f *Function) flat() string {
	if f.Answer.Size > 0 {
		return f.Params[:len(f.Params)-1]
	}
	return f.Params
}

// Find returns a function of one of the worlds, by the names that a component has for it:
// "wasi:io/streams@0.2.12" and "[method]output-stream.write", for instance.
//
// # Errors
//
// ErrNotFound for what is not served, with a text that says why.
func Find(iface, name string, worlds ...World) (*Function, error) {
	bare, version, _ := strings.Cut(iface, "@")
	var names, releases []string
	for _, w := range worlds {
		if w.Make != nil {
			if iface == BuiltIns {
				return w.Make(name)
			}
			continue
		}
		if w.Load != nil && !served(version, w.Of()) {
			continue
		}
		functions, known := w.All()[bare]
		if !known {
			names = append(names, w.Name)
			continue
		}
		if !served(version, w.Of()) {
			releases = append(releases, w.Of()+".x")
			continue
		}
		for i := range functions {
			if functions[i].Name == name {
				return &functions[i], nil
			}
		}
		return nil, fmt.Errorf("find function %q of interface %q: it has none of that name: %w", name, iface, errdefs.ErrNotFound)
	}
	if len(releases) > 0 {
		return nil, fmt.Errorf("find interface %q: only its versions %s are served: %w", iface, strings.Join(releases, " and "), errdefs.ErrNotFound)
	}
	return nil, fmt.Errorf("find interface %q: it is not part of %s: %w", iface, strings.Join(names, " or "), errdefs.ErrNotFound)
}

// served reports whether a version is one of a release. Release candidates had other functions.
func served(version, release string) bool {
	patch, ok := strings.CutPrefix(version, release+".")
	if !ok {
		return false
	}
	_, err := strconv.ParseUint(patch, 10, 32)
	return err == nil
}

// types are the value types of a flat signature.
func types(letters string) []api.ValueType {
	list := make([]api.ValueType, len(letters))
	for i := range letters {
		list[i] = api.ValueTypeI32
		if letters[i] == 'I' {
			list[i] = api.ValueTypeI64
		}
	}
	return list
}
