package compile

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// ErrNotGo tells that a module does not come from Go's linker, or not in the form that is known.
var ErrNotGo = errors.New("module is not one of Go's linker that is understood")

// Rewriting says how many functions a module defines, and how many of them were rewritten.
type Rewriting struct{ Functions, Rewritten int }

// Rewrite returns a module of Go's with every function rewritten as in the module of a server, also if it is none. Guests
// get theirs from Ensure: this is for comparing a rewritten module with the one that it was made from.
//
// # Errors
//
// ErrNotGo.
func Rewrite(module []byte) ([]byte, Rewriting, error) {
	sections, err := format.Split(module)
	if err != nil {
		return nil, Rewriting{}, fmt.Errorf("%w: %w", ErrNotGo, err)
	}
	if !isGo(sections) {
		return nil, Rewriting{}, ErrNotGo
	}
	m, ok := readGoModule(sections)
	if !ok {
		return nil, Rewriting{}, ErrNotGo
	}
	m.serves = true
	folded, ok := m.fold(sections)
	if !ok {
		return nil, Rewriting{}, ErrNotGo
	}
	return format.Join(folded), countRewritten(sections, folded), nil
}

// countRewritten compares the functions of a module before and after.
func countRewritten(before, after []format.Section) Rewriting {
	old := format.Reader{Rest: format.Find(before, format.SectionCode)}
	now := format.Reader{Rest: format.Find(after, format.SectionCode)}
	count := Rewriting{Functions: int(old.Number())}
	now.Number()
	for range count.Functions {
		if !bytes.Equal(old.Bytes(), now.Bytes()) {
			count.Rewritten++
		}
	}
	return count
}
