package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// mostViewers is how many streams there are at one time.
const mostViewers = 16

// hub reads the state while somebody looks, once for all viewers.
type hub struct {
	ctx   context.Context // of the server
	stop  context.CancelFunc
	read  func(context.Context) State
	every time.Duration

	mu      sync.Mutex
	viewers map[*viewer]struct{}
	working sync.WaitGroup // the viewers' streams and the sampler
	reads   bool           // the sampler runs
	newest  []byte         // nil before the first sample
	serial  int64
}

// viewer is one stream.
type viewer struct {
	news chan []byte // the newest message, if it is not taken yet
}

// join adds a viewer, who gets the newest state at once if there is one; false if there are too
// many.
func (h *hub) join() (*viewer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= mostViewers || h.ctx.Err() != nil {
		return nil, false
	}
	v := &viewer{news: make(chan []byte, 1)}
	h.viewers[v] = struct{}{}
	h.working.Add(1)
	if h.newest != nil {
		v.news <- h.newest
	}
	if !h.reads {
		h.reads = true
		h.working.Go(h.sample)
	}
	return v, true
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
	h.working.Done()
}

// close has no more viewers join.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stop()
}

// share is the part of the time that the sampler may take: one tenth of one processor.
const share = 10

// sample reads the state again and again until nobody looks.
func (h *hub) sample() {
	var before []byte
	for {
		started := time.Now()
		before = h.tell(h.read(h.ctx), before)
		select {
		case <-time.After(max(h.every, share*time.Since(started))):
		case <-h.ctx.Done():
		}
		if h.rest() {
			return
		}
	}
}

// rest says whether nobody looks any more. What was read is old then.
func (h *hub) rest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) > 0 && h.ctx.Err() == nil {
		return false
	}
	h.reads, h.newest = false, nil
	return true
}

func encode(s State) ([]byte, error) {
	bound(&s)
	return json.Marshal(s)
}

// tell sends a state to all if it is not the one before, and returns it encoded.
func (h *hub) tell(s State, before []byte) []byte {
	data, err := encode(s)
	if err != nil { // a figure that JSON has not
		data, _ = encode(State{Problems: []string{"encode the state: " + err.Error()}})
	}
	if bytes.Equal(data, before) {
		return before
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serial++
	h.newest = fmt.Appendf(nil, "id: %d\nevent: state\ndata: {\"now\":%d,\"state\":%s}\n\n", h.serial, time.Now().UnixMilli(), data)
	for v := range h.viewers {
		select {
		case <-v.news: // a slow viewer gets the newest one only
		default:
		}
		v.news <- h.newest
	}
	return data
}
