package compile

import (
	"errors"
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// ErrNotGo tells that a module does not come from Go's linker, or not in the form that is known.
var ErrNotGo = errors.New("module is not one of Go's linker that is understood")

// Rewriting tells what became of the functions that a module of Go's defines.
type Rewriting struct {
	Functions int    `json:"functions"`
	Rewritten int    `json:"rewritten"`
	Refused   int    `json:"refused"`            // those that stayed as they were, because it was not certain that they would do the same
	Declined  string `json:"declined,omitempty"` // why none was rewritten
}

// Rewrite returns a module of Go's with every function rewritten as in the module of a server, also if it is none, and also those that
// the verifier refuses. Guests get theirs from Ensure: this is for comparing a rewritten module with the one that it was made from.
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
	before, after := bodiesOf(sections), bodiesOf(folded)
	_, count, ok := verified(sections, before, after)
	if !ok {
		return nil, Rewriting{}, ErrNotGo
	}
	return format.Join(folded), count, nil
}
