package merge

import (
	"errors"
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Classes of errors.
var (
	// ErrUnsupported is for a module that uses a part of WebAssembly that is not accepted.
	ErrUnsupported = errors.New("not supported")
	// ErrInvalid is for a module that is not valid.
	ErrInvalid = errors.New("module is not valid")
	// ErrTooLarge is for an input or output beyond the bounds.
	ErrTooLarge = errors.New("too large")
)

// LinkError says that an import has no source that suits it, or that a final export does not exist.
type LinkError struct {
	Instance string     // whose import it is, or that should have the export
	Import   ImportName // or, without a module, the export
	Problem  string
}

// Error implements error.
func (e *LinkError) Error() string {
	if e.Import.Module == "" {
		return fmt.Sprintf("instance %q: export %q: %s", e.Instance, e.Import.Name, e.Problem)
	}
	return fmt.Sprintf("instance %q: link import %q.%q: %s", e.Instance, e.Import.Module, e.Import.Name, e.Problem)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrInvalid)
}

// part is a part of WebAssembly, an error of class ErrUnsupported.
type part string

func (p part) Error() string { return string(p) + ": " + ErrUnsupported.Error() }
func (p part) Unwrap() error { return ErrUnsupported }

// Parts of WebAssembly that are refused by name.
const (
	errThreads    = part("threads (shared memory, atomic instructions)")
	errMemory64   = part("memory with 64-bit addresses (memory64)")
	errMemories   = part("several memories (multi-memory)")
	errExceptions = part("exception handling")
	errGC         = part("garbage collection or typed function references")
	errRelaxed    = part("relaxed SIMD")
	errWide       = part("wide arithmetic")
	errTables     = part("tables with an initial value")
)

// Unsupported names a part of WebAssembly that a core module uses and that is not accepted here, ""
// for none. It is for modules that the engine has refused: the engine tells the byte where it
// stopped, and not always what that byte is of.
func Unsupported(module []byte) string {
	one := Instance{Module: module, Imports: map[ImportName]Source{}}
	if sections, err := format.Split(module); err == nil {
		imports, _ := format.Imports(sections) // where they cannot be read, Merge says why
		for _, i := range imports {
			one.Imports[ImportName{i.Module, i.Name}] = Host{i.Module, i.Name, i.FuncType}
		}
	}
	_, err := Merge(Input{Instances: []Instance{one}})
	var found part
	errors.As(err, &found)
	return string(found)
}
