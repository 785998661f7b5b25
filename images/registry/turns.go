package registry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// How long a blob's transfer continues while others wait.
const (
	// turnTime is for one that takes more than its share, or is slow; longTurn for any other.
	turnTime = 15 * time.Second
	longTurn = 2 * time.Minute
	// slowRate is how many bytes a second are slow.
	slowRate = 32 << 10
)

// errGiveWay ends a request whose turn is over. The transfer continues where it stands, with its
// next turn.
var errGiveWay = errors.New("others wait")

// turns shares the places for transfers of blobs. Whoever comes while there is a place has it for
// as long as no other waits, however slow the link is. When others wait, registries have equal
// shares, and within a registry its pulls: who has more gives way after a turn, and so does who is
// slow, to those who have no more. What was transferred is kept.
type turns struct {
	places         int
	turn, longTurn time.Duration

	mu      sync.Mutex
	held    []*turn
	waiting []*turn // in the order in which they came
	alarm   *time.Timer
}

// turn is one transfer's place, or its wait for one.
type turn struct {
	registry string
	pull     *Repository

	// These are guarded by turns.mu.
	starts chan struct{} // closed with the place
	since  time.Time
	bytes  int64
	over   func() // ends the transfer's request; nil once it was called
}

func newTurns(places int) *turns {
	return &turns{places: places, turn: turnTime, longTurn: longTurn}
}

// take waits for a place. When the turn is over, over is called, once.
func (q *turns) take(ctx context.Context, t *turn, over func()) error {
	q.mu.Lock()
	t.starts, t.over = make(chan struct{}), over
	q.waiting = append(q.waiting, t)
	q.review()
	q.mu.Unlock()
	select {
	case <-t.starts:
		return nil
	case <-ctx.Done():
		q.leave(t)
		return context.Cause(ctx)
	}
}

// leave gives a place back, or the wait for one up.
func (q *turns) leave(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	is := func(other *turn) bool { return other == t }
	q.held = slices.DeleteFunc(q.held, is)
	q.waiting = slices.DeleteFunc(q.waiting, is)
	q.review()
}

// count adds bytes that a transfer has brought.
func (q *turns) count(t *turn, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.bytes += int64(n)
}

// share is how many places others of the same registry and of the same pull hold.
type share struct{ registry, pull int }

func (s share) compare(o share) int {
	return cmp.Or(cmp.Compare(s.registry, o.registry), cmp.Compare(s.pull, o.pull))
}

// share leaves one out: whose place it is about.
func (q *turns) share(t, out *turn) share {
	var s share
	for _, h := range q.held {
		if h == t || h == out {
			continue
		}
		if h.registry == t.registry {
			s.registry++
		}
		if h.pull == t.pull {
			s.pull++
		}
	}
	return s
}

// next is the one who waits and holds least; the first of equals.
func (q *turns) next() *turn {
	return slices.MinFunc(q.waiting, func(a, b *turn) int { return q.share(a, nil).compare(q.share(b, nil)) })
}

// review gives free places away and ends turns. The caller holds mu.
func (q *turns) review() {
	for len(q.held) < q.places && len(q.waiting) > 0 {
		t := q.next()
		q.waiting = slices.DeleteFunc(q.waiting, func(other *turn) bool { return other == t })
		q.held = append(q.held, t)
		t.since, t.bytes = time.Now(), 0
		close(t.starts)
	}
	if q.alarm != nil {
		q.alarm.Stop()
		q.alarm = nil
	}
	if len(q.waiting) == 0 {
		return
	}
	ending := 0
	for _, h := range q.held {
		if h.over == nil {
			ending++
		}
	}
	for ending < len(q.waiting) && q.endOne() {
		ending++
	}
	q.alarm = time.AfterFunc(q.turn/8, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.review()
	})
}

// endOne ends the turn of the one who has most beyond its share, and reports whether there was one.
func (q *turns) endOne() bool {
	now, next := time.Now(), q.next()
	var worst *turn
	for _, h := range q.held {
		if h.over == nil || !q.isOver(h, next, now) {
			continue
		}
		if worst == nil || q.share(h, nil).compare(q.share(worst, nil)) > 0 {
			worst = h
		}
	}
	if worst == nil {
		return false
	}
	worst.over()
	worst.over = nil
	return true
}

// isOver reports whether a turn is over for the sake of the one who is next.
func (q *turns) isOver(h, next *turn, now time.Time) bool {
	took := now.Sub(h.since)
	if took < q.turn {
		return false
	}
	switch more := q.share(h, nil).compare(q.share(next, h)); {
	case more > 0:
		return true
	case more < 0:
		return false
	}
	return took >= q.longTurn || float64(h.bytes) < slowRate*took.Seconds()
}

// stop ends what runs in the background.
func (q *turns) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.alarm != nil {
		q.alarm.Stop()
	}
}
