// Package progress adds up how far a pull is and tells those who wait for it.
package progress

import (
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

// progressInterval is the least time between two reports of one phase.
const progressInterval = 100 * time.Millisecond

// Progress is the state of a pull.
type Progress struct {
	// Phase is "resolve", "fetch", "unpack", "compile" (of a WebAssembly module) or "done".
	Phase string
	// Layers counts layers to fetch; LayersDone those fetched and unpacked.
	Layers, LayersDone int
	// Bytes of BytesTotal have been fetched.
	Bytes, BytesTotal int64
	// Compiling is the size of the module that is compiled, in bytes.
	Compiling int64
	// Parts are the layers, in the order of the image.
	Parts []Part
}

// Part is the progress of one layer or module.
type Part struct {
	Digest digest.Digest
	// Bytes of Total have been fetched.
	Bytes, Total int64
	// Done is set once it is unpacked too.
	Done bool
}

// Meter adds up the progress of one pull and tells all who wait for it.
type Meter struct {
	users int // guarded by Meters.mu

	mu          sync.Mutex // also serialises the calls of subscribers
	now         Progress
	last        time.Time
	subscribers map[int]func(Progress)
	next        int
}

// Meters finds the meter of a pull that is shared.
type Meters struct {
	mu    sync.Mutex
	byKey map[string]*Meter
}

// Join returns the meter for a key and subscribes fn, if there is one, until
// leave is called; fn is not called after leave has returned.
func (ms *Meters) Join(key string, fn func(Progress)) (m *Meter, leave func()) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.byKey == nil {
		ms.byKey = make(map[string]*Meter)
	}
	m = ms.byKey[key]
	if m == nil {
		m = &Meter{subscribers: make(map[int]func(Progress))}
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

// Len returns how many pulls have a meter now.
func (ms *Meters) Len() int {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return len(ms.byKey)
}

func (m *Meter) subscribe(fn func(Progress)) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	if fn != nil {
		m.subscribers[m.next] = fn
	}
	return m.next
}

func (m *Meter) unsubscribe(id int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.subscribers, id)
}

// Update changes the progress and reports it, unless that was done just now and
// the phase is the same. A nil meter does nothing.
func (m *Meter) Update(change func(*Progress)) {
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

// Part changes the progress of one part, and with it the whole.
func (m *Meter) Part(d digest.Digest, change func(*Progress, *Part)) {
	m.Update(func(p *Progress) {
		for i := range p.Parts {
			if p.Parts[i].Digest == d {
				change(p, &p.Parts[i])
				return
			}
		}
	})
}
