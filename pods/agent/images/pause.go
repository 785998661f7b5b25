package images

import (
	"fmt"
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

// backOff is the error of a pull during a pause, nil at other times.
func (m *Manager) backOff(r Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pausing(r)
}

// pausing is backOff while m.mu is held.
func (m *Manager) pausing(r Request) error {
	key := pauseKey{r.Pod.UID, r.Image}
	p, now := m.pauses[key], m.o.Now()
	if now.Before(p.since) { // the clock was set back: a pause is never longer than its own length
		p.since = now
		m.pauses[key] = p
	}
	if left := p.until().Sub(now); left > 0 {
		return &Error{Reason: ImagePullBackOff, Message: fmt.Sprintf("Back-off pulling image %q: %s", r.Image, p.last), Retry: left}
	}
	return nil
}

// failed starts the back-off after a failure and returns its length. A flight starts one for each
// pod, however many of its containers waited.
func (m *Manager) failed(f *flight, key pauseKey, why string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Now()
	p := m.pauses[key]
	if f != nil {
		if f.paused[key] && p.delay > 0 {
			return p.delay
		}
		f.paused[key] = true
	}
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
