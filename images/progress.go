package images

import (
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

// progressInterval is the least time between two reports of one phase.
const progressInterval = 100 * time.Millisecond

// meter adds up the progress of one pull and tells all who wait for it.
type meter struct {
	users int // guarded by meters.mu

	mu          sync.Mutex // also serialises the calls of subscribers
	now         Progress
	last        time.Time
	subscribers map[int]func(Progress)
	next        int
}

// meters finds the meter of a pull that is shared.
type meters struct {
	mu    sync.Mutex
	byKey map[string]*meter
}

// join returns the meter for a key and subscribes fn, if there is one, until
// leave is called; fn is not called after leave has returned.
func (ms *meters) join(key string, fn func(Progress)) (m *meter, leave func()) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.byKey == nil {
		ms.byKey = make(map[string]*meter)
	}
	m = ms.byKey[key]
	if m == nil {
		m = &meter{subscribers: make(map[int]func(Progress))}
		ms.byKey[key] = m
	}
	m.users++
	id := m.subscribe(fn)
	return m, func() {
		m.unsubscribe(id)
		ms.mu.Lock()
		defer ms.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(ms.byKey, key)
		}
	}
}

func (m *meter) subscribe(fn func(Progress)) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	if fn != nil {
		m.subscribers[m.next] = fn
	}
	return m.next
}

func (m *meter) unsubscribe(id int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.subscribers, id)
}

// update changes the progress and reports it, unless that was done just now and
// the phase is the same. A nil meter does nothing.
func (m *meter) update(change func(*Progress)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	phase := m.now.Phase
	change(&m.now)
	if m.now.Phase == phase && time.Since(m.last) < progressInterval {
		return
	}
	m.last = time.Now()
	now := m.now
	now.Parts = slices.Clone(now.Parts)
	for _, fn := range m.subscribers {
		fn(now)
	}
}

// part changes the progress of one part, and with it the whole.
func (m *meter) part(d digest.Digest, change func(*Progress, *Part)) {
	m.update(func(p *Progress) {
		for i := range p.Parts {
			if p.Parts[i].Digest == d {
				change(p, &p.Parts[i])
				return
			}
		}
	})
}
