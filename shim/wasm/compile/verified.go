package compile

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sunaba-project/sunaba/shim/wasm/equal"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// rewrite is fold, of which nothing is kept that is not shown to do the same.
func rewrite(sections []format.Section) ([]format.Section, Rewriting, bool) {
	folded, ok := fold(sections)
	if !ok {
		return nil, Rewriting{}, false
	}
	before, after := bodiesOf(sections), bodiesOf(folded)
	kept, told, ok := verified(sections, before, after)
	if !ok {
		return nil, Rewriting{}, false
	}
	out := binary.AppendUvarint(nil, uint64(len(kept)))
	for _, body := range kept {
		out = append(binary.AppendUvarint(out, uint64(len(body))), body...)
	}
	i := slices.IndexFunc(folded, func(s format.Section) bool { return s.ID == format.SectionCode })
	folded[i] = format.NewSection(format.SectionCode, out)
	return folded, told, true
}

func bodiesOf(sections []format.Section) (all [][]byte) {
	r := format.Reader{Rest: format.Find(sections, format.SectionCode)}
	for range r.Number() {
		all = append(all, r.Bytes())
	}
	return all
}

// verified returns the bodies that are kept: each as it was rewritten, or as it was before. It declines with false a module that the verifier
// does not understand.
func verified(sections []format.Section, before, after [][]byte) (kept [][]byte, told Rewriting, ok bool) {
	kept = slices.Clone(before)
	var next, rewritten, refused, lost atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			verifier, err := equal.New(sections)
			if err != nil {
				lost.Add(1)
				return
			}
			for {
				n := int(next.Add(1)) - 1
				switch {
				case n >= len(before):
					return
				case bytes.Equal(before[n], after[n]):
				case verifier.Function(n, after[n]) != nil:
					refused.Add(1)
				default:
					kept[n] = after[n]
					rewritten.Add(1)
				}
			}
		})
	}
	all.Wait()
	return kept, Rewriting{Functions: len(before), Rewritten: int(rewritten.Load()), Refused: int(refused.Load())}, lost.Load() == 0
}
