package merge

import (
	"errors"
	"fmt"
)

// Classes of errors.
var (
	// ErrUnsupported is for a module that uses a part of WebAssembly that cannot be merged.
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

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrUnsupported)
}

// Parts of WebAssembly that are refused by name.
var (
	errThreads    = unsupported("threads (shared memory, atomic instructions)")
	errMemory64   = unsupported("memory64")
	errMemories   = unsupported("multi-memory")
	errExceptions = unsupported("exception handling")
	errGC         = unsupported("garbage collection or typed function references")
	errRelaxed    = unsupported("relaxed SIMD")
)
