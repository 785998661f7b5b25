package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type thing struct{ Entry }

// Things are taken in the order of their last times, whatever was set and taken out before; it is
// compared with a list.
func TestQueue(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	start := time.Now()
	var q Queue[*thing]
	in := map[*thing]time.Time{}
	things := make([]*thing, 30)
	for i := range things {
		things[i] = &thing{}
	}
	for step := range 5000 {
		item, at := things[r.IntN(len(things))], start.Add(time.Duration(r.IntN(50))*time.Second)
		if r.IntN(3) == 0 {
			q.Set(item, time.Time{})
			delete(in, item)
		} else {
			q.Set(item, at)
			in[item] = at
		}
		if !item.Due().Equal(in[item]) || len(q.All()) != len(in) {
			t.Fatalf("seed %d, step %d: %v and %d things, want %v and %d", seed, step, item.Due(), len(q.All()), in[item], len(in))
		}
		if r.IntN(10) > 0 {
			continue
		}
		now := start.Add(time.Duration(r.IntN(60)) * time.Second)
		var due []time.Time
		for _, at := range in {
			if !at.After(now) {
				due = append(due, at)
			}
		}
		slices.SortFunc(due, time.Time.Compare)
		for _, want := range due {
			item, ok := q.Take(now)
			if !ok || !item.Due().Equal(want) || !in[item].Equal(want) {
				t.Fatalf("seed %d, step %d: took %v, %v, want %v", seed, step, item, ok, want)
			}
			delete(in, item)
		}
		if item, ok := q.Take(now); ok {
			t.Fatalf("seed %d, step %d: took %v, which is not due", seed, step, item)
		}
		next, any := q.Next()
		for _, at := range in {
			if !any || at.Before(next) {
				t.Fatalf("seed %d, step %d: next is %v, %v, and one is due at %v", seed, step, next, any, at)
			}
		}
	}
}
