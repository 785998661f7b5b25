package wasihttp

import (
	"errors"
	"io"
	"sync"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// pipeSize is how much of a body is under way between a guest and a connection, in bytes, at most.
const pipeSize = 64 << 10

// errUnread is what a writer gets whose reader is gone.
var errUnread = errors.New("nobody reads the body any more")

// pipe carries a body between a guest, which asks and never blocks here, and a goroutine of the
// HTTP side, which may wait in Read, Write and Await. Each side has one end. Either end may be
// closed from any goroutine.
type pipe struct {
	readable, writable wasi.Event // for the guest; set where an answer is more than "not yet"

	moved chan struct{} // something changed: for the HTTP side, which waits here

	mu    sync.Mutex
	ring  []byte // grows up to pipeSize
	start int    // of what was written and not read
	n     int
	large func() // called once, when a quarter of the room is taken
	end   error  // the writer's: io.EOF for a complete body; nil = more may come
	gone  error  // the reader's: nil = it reads
}

func newPipe() *pipe {
	p := &pipe{moved: make(chan struct{}, 1)}
	p.writable.Set()
	return p
}

// tryRead reads what is there. Without an error, 0 bytes are none so far. What was written before
// the end is read before the end's error is told.
func (p *pipe) tryRead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		return 0, p.end
	}
	n := copy(b, p.ring[p.start:min(p.start+p.n, len(p.ring))])
	if n < len(b) && n < p.n {
		n += copy(b[n:], p.ring[:p.n-n])
	}
	p.start, p.n = (p.start+n)%len(p.ring), p.n-n
	if p.n == 0 {
		p.start = 0
	}
	p.told()
	return n, nil
}

// tryWrite writes what there is room for.
func (p *pipe) tryWrite(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone != nil:
		return 0, p.gone
	case p.end != nil:
		return 0, io.ErrClosedPipe
	}
	b = b[:min(len(b), pipeSize-p.n)]
	p.reserve(p.n + len(b))
	if len(b) > 0 {
		at := (p.start + p.n) % len(p.ring)
		copy(p.ring, b[copy(p.ring[at:], b):])
	}
	p.n += len(b)
	p.told()
	p.tellLarge()
	return len(b), nil
}

// whenLarge has f called as soon as a quarter of the room is taken.
func (p *pipe) whenLarge(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.large = f
	p.tellLarge()
}

func (p *pipe) tellLarge() {
	if p.large != nil && p.n >= pipeSize/4 {
		p.large()
		p.large = nil
	}
}

// reserve makes the ring hold n bytes.
func (p *pipe) reserve(n int) {
	size := max(len(p.ring), 2<<10)
	for size < n {
		size *= 2
	}
	if size == len(p.ring) {
		return
	}
	ring := make([]byte, size)
	head := copy(ring, p.ring[p.start:min(p.start+p.n, len(p.ring))])
	copy(ring[head:], p.ring[:p.n-head])
	p.ring, p.start = ring, 0
}

// room is how much tryWrite takes.
func (p *pipe) room() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone != nil:
		return 0, p.gone
	case p.end != nil:
		return 0, io.ErrClosedPipe
	}
	return pipeSize - p.n, nil
}

// closeWrite ends the body: with io.EOF where it is complete. The first end counts.
func (p *pipe) closeWrite(end error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = end
		p.told()
	}
}

// closeRead tells the writer, with this error, that nothing is read any more. The last error
// counts.
func (p *pipe) closeRead(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != err {
		p.gone, p.ring, p.start, p.n = err, nil, 0, 0
		p.told()
	}
}

// told tells both sides of a change. The caller holds mu.
func (p *pipe) told() {
	set(&p.readable, p.n > 0 || p.end != nil)
	set(&p.writable, p.n < pipeSize || p.end != nil || p.gone != nil)
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

func set(e *wasi.Event, to bool) {
	switch {
	case to == e.IsSet():
	case to:
		e.Set()
	default:
		e.Clear()
	}
}

// Read waits for bytes or the end.
func (p *pipe) Read(b []byte) (int, error) {
	for {
		if n, err := p.tryRead(b); n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		<-p.moved
	}
}

// Write waits until all is written, or the reader is gone.
func (p *pipe) Write(b []byte) (int, error) {
	written := 0
	for {
		n, err := p.tryWrite(b[written:])
		if written += n; err != nil || written == len(b) {
			return written, err
		}
		<-p.moved
	}
}
