// Package pipe carries bodies between guests and HTTP.
package pipe

import (
	"errors"
	"io"
	"sync"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Size is how much of a body is under way between a guest and a connection, in bytes, at most.
const Size = 64 << 10

// ErrUnread is what a writer gets whose reader has closed its end.
var ErrUnread = errors.New("nobody reads the body any more")

// Pipe carries a body between a guest, which asks and never blocks here, and a goroutine of the
// HTTP side, which may wait in Read, Write and Await. Each side has one end. Either end may be
// closed from any goroutine.
type Pipe struct {
	Readable, Writable wasi.Event // for the guest; set where an answer is more than "not yet"
	Settled            wasi.Event // the reader has read the end, or closed its own

	Moved chan struct{} // something changed: for the HTTP side, which waits here

	mu    sync.Mutex
	ring  []byte // grows up to Size
	start int    // of what was written and not read
	n     int
	large func() // called once, when a quarter of the room is taken
	end   error  // the writer's: io.EOF for a complete body; nil = more may come
	gone  error  // the reader's: nil = it reads
	whole bool   // the reader has read a complete body
}

func New() *Pipe {
	p := &Pipe{Moved: make(chan struct{}, 1)}
	p.Writable.Set()
	return p
}

// TryRead reads what is there. Without an error, 0 bytes are none so far. What was written before
// the end is read before the end's error is told.
func (p *Pipe) TryRead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		if p.end != nil {
			p.whole = p.whole || p.end == io.EOF && p.gone == nil
			p.Settled.Set()
			p.ring = nil
		}
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

// TryWrite writes as much as the pipe has room for.
func (p *Pipe) TryWrite(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	room, err := p.room()
	if err != nil {
		return 0, err
	}
	b = b[:min(len(b), room)]
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

// WhenLarge has f called as soon as a quarter of the room is taken.
func (p *Pipe) WhenLarge(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.large = f
	p.tellLarge()
}

func (p *Pipe) tellLarge() {
	if p.large != nil && p.n >= Size/4 {
		p.large()
		p.large = nil
	}
}

// reserve makes the ring hold n bytes.
func (p *Pipe) reserve(n int) {
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

// Held is what it holds of the host's memory.
func (p *Pipe) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ring)
}

// Room is how much TryWrite takes.
func (p *Pipe) Room() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.room()
}

func (p *Pipe) room() (int, error) {
	switch {
	case p.gone != nil:
		return 0, p.gone
	case p.end != nil:
		return 0, io.ErrClosedPipe
	}
	return Size - p.n, nil
}

// CloseWrite ends the body: with io.EOF where it is complete. The first end counts.
func (p *Pipe) CloseWrite(end error) { p.finish(end, func() {}) }

// Finish is CloseWrite of a complete body. before is called first, unless the body has an end
// already: who reads the end sees what it does.
func (p *Pipe) Finish(before func()) { p.finish(io.EOF, before) }

func (p *Pipe) finish(end error, before func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		before()
		p.end = end
		p.told()
	}
}

// CloseRead tells the writer, with this error, that nothing is read any more. The last error
// counts.
func (p *Pipe) CloseRead(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != err {
		p.gone, p.ring, p.start, p.n = err, nil, 0, 0
		p.Settled.Set()
		p.told()
	}
}

// Accept is for a reader that has what it needs without the body.
func (p *Pipe) Accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole = true
	p.Settled.Set()
}

// Complete says whether the writer has ended the body, and it is complete.
func (p *Pipe) Complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end == io.EOF
}

// Whole is whether a complete body was read, valid when it is settled.
func (p *Pipe) Whole() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole
}

// told tells both sides of a change. The caller holds mu.
func (p *Pipe) told() {
	set(&p.Readable, p.n > 0 || p.end != nil)
	set(&p.Writable, p.n < Size || p.end != nil || p.gone != nil)
	select {
	case p.Moved <- struct{}{}:
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

// Read waits for bytes or the end, or until CloseRead, whose error it returns then.
func (p *Pipe) Read(b []byte) (int, error) {
	for {
		if n, err := p.TryRead(b); n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		if gone := p.closedRead(); gone != nil {
			return 0, gone
		}
		<-p.Moved
	}
}

func (p *Pipe) closedRead() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// Write waits until all is written, or the reader has closed its end.
func (p *Pipe) Write(b []byte) (int, error) {
	written := 0
	for {
		n, err := p.TryWrite(b[written:])
		if written += n; err != nil || written == len(b) {
			return written, err
		}
		<-p.Moved
	}
}
