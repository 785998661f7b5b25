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

	// Call does it: p are the flat parameters, and p[0] takes the flat result. out is the address of
	// the payload in memory. An error is one of Answer.Fail, or a trap.
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

// World is a set of interfaces of WASI 0.2, by their names without a version.
type World struct {
	Name       string // "wasi:cli/command@0.2"
	Interfaces map[string][]Function
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

// Find returns a function of one of the worlds, by the names that a component has for it:
// "wasi:io/streams@0.2.12" and "[method]output-stream.write", for instance.
//
// # Errors
//
// ErrNotFound for what is not served, with a text that says why.
func Find(iface, name string, worlds ...World) (*Function, error) {
	bare, version, _ := strings.Cut(iface, "@")
	var names []string
	for _, w := range worlds {
		functions, known := w.Interfaces[bare]
		if !known {
			names = append(names, w.Name)
			continue
		}
		if !served(version) {
			return nil, fmt.Errorf("find interface %q: only its versions 0.2.x are served: %w", iface, errdefs.ErrNotFound)
		}
		for i := range functions {
			if functions[i].Name == name {
				return &functions[i], nil
			}
		}
		return nil, fmt.Errorf("find function %q of interface %q: it has none of that name: %w", name, iface, errdefs.ErrNotFound)
	}
	return nil, fmt.Errorf("find interface %q: it is not part of %s: %w", iface, strings.Join(names, " or "), errdefs.ErrNotFound)
}

// served reports whether a version is a 0.2.x. Release candidates had other functions.
func served(version string) bool {
	patch, ok := strings.CutPrefix(version, "0.2.")
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
