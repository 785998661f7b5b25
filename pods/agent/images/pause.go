package images

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// firstPause follows the first failure of a pull; each further one doubles it up to
	// longestPause.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// forgetAfter is how long after the last failure the next pause is the first again.
	forgetAfter = 10 * time.Minute
)

// pauseKey is whose pause it is: each pod has its own for each image.
type pauseKey struct {
	uid   types.UID
	image string
}

// pause is the time between a failed pull and the next try.
type pause struct {
	since time.Time
	delay time.Duration
	last  string // what went wrong
}

func (p pause) until() time.Time { return p.since.Add(p.delay) }

// pausing is how long the pause still lasts, and the failure before it.
func (m *Manager) pausing(key pauseKey) (time.Duration, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := m.pauses[key], m.o.Now()
	if now.Before(p.since) { // the clock was set back: a pause is never longer than its own length
		p.since = now
		m.pauses[key] = p
	}
	return p.until().Sub(now), p.last
}

// failed starts the back-off after a failure and returns its length.
func (m *Manager) failed(key pauseKey, why string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Now()
	p := m.pauses[key]
	switch {
	case p.delay == 0 || now.Sub(p.since) > forgetAfter:
		p.delay = firstPause
	default:
		p.delay = min(2*p.delay, longestPause)
	}
	p.since, p.last = now, why
	m.pauses[key] = p
	return p.delay
}

func (m *Manager) succeeded(key pauseKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pauses, key)
}

// Forget ends the pauses of a pod: it is over, or somebody asked for it to be tried now.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.pauses {
		if k.uid == uid {
			delete(m.pauses, k)
		}
	}
}
