package stdio

import (
	"slices"
	"sync"
	"time"
)

// AwaitAnnotation has a container's output wait for its first attacher if its value is "true".
const AwaitAnnotation = "io.sunaba.await-attach"

// awaitTime bounds how long output waits for its first attacher.
const awaitTime = 30 * time.Second

// gate holds output back until somebody has attached, so that an attacher misses nothing. A nil one
// holds nothing back.
type gate struct {
	mu     sync.Mutex
	taken  bool
	holds  bool // output waits by now
	opened chan struct{}
	once   sync.Once
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

// take says whether the caller is the first attacher, whose it is to open the gate.
func (g *gate) take() bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
		return false // it waited long enough
	default:
	}
	first := !g.taken
	g.taken = true
	return first
}

func (g *gate) open() {
	if g != nil {
		g.once.Do(func() { close(g.opened) })
	}
}

// start is called when there may be output.
func (g *gate) start() {
	if g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.holds = true
	}
}

// wait returns when the gate is open, which it is after awaitTime at the latest.
func (g *gate) wait() {
	if g == nil {
		return
	}
	select {
	case <-g.opened:
	case <-time.After(awaitTime):
		g.open()
	}
}

// Awaited returns once output does not wait for its first attacher, at once if it never did.
func (s *Streams) Awaited() {
	if s.gate == nil {
		return
	}
	s.gate.mu.Lock()
	holds := s.gate.holds
	s.gate.mu.Unlock()
	if holds {
		<-s.gate.opened
	}
}

// rush has output wait for nobody any more. What is left is queued for who reads it.
func (s *Streams) rush() {
	s.gate.open()
	for _, t := range s.taps {
		t.mu.Lock()
		for _, l := range t.listeners {
			l.release()
		}
		t.mu.Unlock()
	}
}

// room waits, without the lock, while the attacher that the output waits for is too far behind.
func (t *tap) room() {
	t.mu.Lock()
	first := slices.IndexFunc(t.listeners, func(l *listener) bool { return l.first })
	if first < 0 {
		t.mu.Unlock()
		return
	}
	l := t.listeners[first]
	t.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.holds && !l.gone && len(l.queue) > maxBehind {
		l.less.Wait()
	}
}

// hold has the output wait for the listener. It is called before the output starts.
func (l *listener) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.holds = true, true
}

func (l *listener) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = false
	l.less.Broadcast()
}
