package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Whatever runs side by side, memory, file and follower agree in the end.
func TestSideBySide(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		t.Run(fmt.Sprintf("ids used again %t", reuse), func(t *testing.T) {
			dir := t.TempDir()
			var mu sync.Mutex
			mirror := map[string]string{}
			s, err := Open(dir, quiet(), CheckSandbox, func(before, after *Sandbox) {
				mu.Lock()
				defer mu.Unlock()
				if after == nil {
					delete(mirror, before.ID)
					return
				}
				mirror[after.ID] = after.Handler
			})
			if err != nil {
				t.Fatal(err)
			}
			s.flush = func(string) error { return nil }
			s.put = func(path string, data []byte, m durable.Mode) error {
				return durable.Put(path, data, durable.Mode{Append: m.Append})
			}
			var wg sync.WaitGroup
			for w := range 8 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(w), 7))
					for i := range 800 {
						id := fmt.Sprintf("id%d", r.IntN(6))
						if !reuse {
							id = fmt.Sprintf("id%d", i/20)
						}
						switch k := r.IntN(10); {
						case k < 2 && (reuse || i%20 < 3 && w == 0):
							_ = s.Create(id, sandbox(id))
						case k < 4:
							_, _ = s.Update(id, named(strconv.Itoa(i)))
						case k < 6:
							_, _ = s.Note(id, named(strconv.Itoa(i)))
						case k < 7:
							_ = s.Settle()
						case k < 8:
							_ = s.Drop(id)
						case k < 9 && i%3 == 0:
							_ = s.Delete(id)
						default:
							s.List()
						}
					}
				})
			}
			wg.Wait()
			if err := s.Settle(); err != nil {
				t.Fatal(err)
			}
			have, again := map[string]string{}, map[string]string{}
			for _, r := range s.List() {
				have[r.ID] = r.Handler
			}
			for _, r := range open(t, dir).List() {
				again[r.ID] = r.Handler
			}
			if !maps.Equal(have, again) {
				t.Errorf("memory %v, files %v", have, again)
			}
			if !maps.Equal(have, mirror) {
				t.Errorf("memory %v, follower %v", have, mirror)
			}
		})
	}
}
