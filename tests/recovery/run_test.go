package recovery

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
)

// variants is how many kinds of pods, or of containers, the points of one life take turns in.
const variants = shapes

// workers is how many daemons are at it side by side. What waits gives way to others, but on a slow
// machine nothing waits.
func workers() int {
	const most = 4
	if node.Slow(time.Second) > time.Second {
		return min(most, runtime.NumCPU())
	}
	return most
}

// run goes through all points of the lives.
func run(t *testing.T, v victim, kind setting, lives []lifePoints) {
	todo := make(chan []point, 2*len(lives))
	for _, l := range lives {
		for _, handler := range []string{"runc", "wasm", "crun"} {
			var points []point
			of := l.points[handler]
			if *most > 0 {
				of = min(of, *most)
			}
			for i := range of {
				points = append(points, point{life: l.life, handler: handler, nth: i, of: of})
			}
			if len(points) > 0 && strings.HasPrefix(points[0].String(), *only) {
				todo <- points
			}
		}
	}
	close(todo)
	count := &tally{}
	var all sync.WaitGroup
	for range min(workers(), len(todo)) {
		all.Go(func() {
			alone(t, kind, func(m *machine) {
				if err := m.settle(); err != nil {
					t.Error(err)
					return
				}
				for points := range todo {
					m.live(t, v, count, points)
				}
			})
		})
	}
	all.Wait()
	fmt.Printf("seed %d  %s: %d points, %d clean\n", *seed, v.name, count.ran, count.clean)
}

// live goes through the points of one life.
func (m *machine) live(t *testing.T, v victim, count *tally, points []point) {
	steps := map[int]int{} // of each variant
	for i := range min(variants, len(points)) {
		n, err := m.steps(points[i], v)
		if err != nil {
			t.Error(err)
			return
		}
		steps[i] = n
	}
	if *every {
		p, n := points[0], 0
		for _, of := range steps {
			n = max(n, of)
		}
		points = nil
		for i := range n {
			p.nth, p.step = i, i+1
			points = append(points, p)
		}
	}
	for _, p := range points {
		count.tell(t, m, v, m.play(p, v, steps[p.nth%variants]))
		if !m.Alive() {
			if err := m.restart(); err != nil {
				t.Error(err)
				return
			}
		}
	}
}
