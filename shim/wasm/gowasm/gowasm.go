// Package gowasm rewrites the functions of modules that Go's linker made, before wazero compiles
// them, so that their machine code is smaller and faster. What wazero is given is WebAssembly
// again, and is validated like any other module.
//
// There are two rewritings. The addresses of loads and stores are folded, so that fewer of them
// are compared with the end of memory (folder). And in a module that can accept connections each
// function gets a fast path for calls: a copy in structured form, without the dispatch loop
// through which goroutines resume (fastPath).
//
// No rewritten function is trusted. Package verify compares each with what it was before, and a
// function that is not shown to do the same stays as it was.
//
// The rewriting was checked with one version of wazero (package wazeroversion) and one release of
// Go (knownGo). With others it declines, and says why.
package gowasm

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm/verify"
	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// ErrNotGo is for a module that does not come from Go's linker, or not in a form that is
// understood.
var ErrNotGo = errors.New("module is not one of Go's linker that is understood")

// Result says how many functions of a module were rewritten. It is zero for a module that does not
// come from Go's linker.
type Result struct {
	Functions int    `json:"functions"`
	Rewritten int    `json:"rewritten"`
	Refused   int    `json:"refused"`            // those that stay as they were because they were not shown to do the same
	Declined  string `json:"declined,omitempty"` // why no function was rewritten
}

// Optimize returns the sections of a module with its functions rewritten. It returns them
// unchanged, with the reason in the result, where rewriting is declined, and with a zero result
// for a module that does not come from Go's linker.
func Optimize(sections []format.Section) ([]format.Section, Result) {
	return optimize(sections, wazeroversion.Check())
}

// optimize is Optimize in a binary of which wazero says whether its version was checked.
func optimize(sections []format.Section, wazero error) ([]format.Section, Result) {
	if !isGo(sections) {
		return sections, Result{}
	}
	why := declined(wazero)
	if why == "" {
		why = releaseDeclined(sections)
	}
	if why != "" {
		return sections, Result{Declined: why}
	}
	rewritten, result, ok := rewriteVerified(sections)
	if !ok {
		return sections, Result{Declined: "the module is not in the form that is known"}
	}
	return rewritten, result
}

// Rewrite returns a Go module with every function rewritten, also those that the verifier refuses,
// and with fast paths or without, whether or not it can accept connections. It is for comparing a
// module with what it was before; guests get what Optimize returns.
//
// # Errors
//
// ErrNotGo.
func Rewrite(module []byte, fastPaths bool) ([]byte, Result, error) {
	sections, err := format.Split(module)
	m, ok := readGoModule(sections)
	if err != nil || !ok || !isGo(sections) {
		return nil, Result{}, ErrNotGo
	}
	m.serves = fastPaths
	if rewritten, ok := m.rewrite(sections); ok {
		if _, result, ok := verifyBodies(sections, bodiesOf(rewritten)); ok {
			return format.Join(rewritten), result, nil
		}
	}
	return nil, Result{}, ErrNotGo
}

// rewrite rewrites all functions of a module and verifies none.
func rewrite(sections []format.Section) ([]format.Section, bool) {
	m, ok := readGoModule(sections)
	if !ok {
		return nil, false
	}
	return m.rewrite(sections)
}

// rewriteVerified rewrites the functions of a module and keeps those that are shown to do the same.
func rewriteVerified(sections []format.Section) ([]format.Section, Result, bool) {
	rewritten, ok := rewrite(sections)
	if !ok {
		return nil, Result{}, false
	}
	kept, result, ok := verifyBodies(sections, bodiesOf(rewritten))
	if !ok {
		return nil, Result{}, false
	}
	return withBodies(sections, kept), result, true
}

// verifyBodies returns of each body the rewritten form if it is shown to do the same, and otherwise
// the form that it had. It returns false for a module that the verifier does not understand.
func verifyBodies(sections []format.Section, rewritten [][]byte) (kept [][]byte, result Result, ok bool) {
	before := bodiesOf(sections)
	kept = slices.Clone(before)
	var next, accepted, refused, failed atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			verifier, err := verify.New(sections)
			if err != nil {
				failed.Add(1)
				return
			}
			for {
				n := int(next.Add(1)) - 1
				switch {
				case n >= len(before):
					return
				case bytes.Equal(before[n], rewritten[n]):
				case verifier.Function(n, rewritten[n]) != nil:
					refused.Add(1)
				default:
					kept[n] = rewritten[n]
					accepted.Add(1)
				}
			}
		})
	}
	all.Wait()
	return kept, Result{Functions: len(before), Rewritten: int(accepted.Load()), Refused: int(refused.Load())}, failed.Load() == 0
}
