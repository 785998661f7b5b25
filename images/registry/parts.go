package registry

import (
	"context"
	"errors"
	"io"
	"sync"
)

// partPool hands out the memory for parts that wait for those before them.
type partPool struct {
	size   int64
	tokens chan struct{}

	mu    sync.Mutex
	free  [][]byte
	taken int
}

func newPartPool(size, memory int64) *partPool {
	return &partPool{size: size, tokens: make(chan struct{}, max(1, memory/size))}
}

// get hands out a buffer once there is one, or none to who cannot wait for it.
func (p *partPool) get(ctx context.Context, hungry <-chan struct{}) ([]byte, error) {
	select {
	case p.tokens <- struct{}{}:
	default:
		select {
		case p.tokens <- struct{}{}:
		case <-hungry:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken++
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b, nil
	}
	return make([]byte, p.size), nil
}

// put takes a buffer back. What nobody uses is given up.
func (p *partPool) put(b []byte) {
	if b == nil {
		return
	}
	p.mu.Lock()
	p.taken--
	if p.taken == 0 {
		p.free = nil
	} else {
		p.free = append(p.free, b)
	}
	p.mu.Unlock()
	<-p.tokens
}

// part is a piece of a blob that is fetched ahead, or, without a buffer, is read as it comes.
type part struct {
	buf  []byte
	live *stream
	n    int
	err  error
	done chan struct{}
}

// parts reads a blob in order, while those parts that come next are fetched into memory, as much as
// the pool has. Buffers are taken in the order of the parts, so that somebody can always continue.
type parts struct {
	r      *Repository
	ctx    context.Context
	cancel context.CancelFunc
	whole  *stream // what is read from, if parts cannot be had; else for its end
	head   *stream // the first part, read as it comes
	pos    int64   // next byte to give
	queue  chan *part
	hungry chan struct{} // received from when a part is wanted and the pool has no memory for it
	now    *part
	read   int // of now
	work   sync.WaitGroup
}

// fetchParts starts with a request for the first part: its answer shows whether
// the server gives parts.
func (r *Repository) fetchParts(s *stream) (io.ReadCloser, error) {
	size := r.client.options.RangeSize
	ctx, cancel := context.WithCancel(s.ctx)
	head := r.newStream(ctx, s.desc, s.pos, min(s.pos+size, s.end))
	head.insist = true
	err := head.request()
	if errors.Is(err, errNoRanges) {
		cancel()
		return s, s.start()
	}
	if err != nil {
		cancel()
		s.Close()
		return nil, r.wrap(s.ctx, r.doing(s.desc), err)
	}
	p := &parts{
		r: r, ctx: ctx, cancel: cancel, whole: s, head: head, pos: s.pos,
		queue: make(chan *part, r.client.parts.ahead()), hungry: make(chan struct{}),
	}
	p.work.Go(func() { p.schedule(head.end) })
	return p, nil
}

// ahead is how many parts of one blob are fetched ahead at most.
func (p *partPool) ahead() int { return max(1, cap(p.tokens)/2) }

// schedule fetches the parts from a position on.
func (p *parts) schedule(from int64) {
	defer close(p.queue)
	size := p.r.client.options.RangeSize
	for ; from < p.whole.end; from += size {
		buf, err := p.r.client.parts.get(p.ctx, p.hungry)
		if err != nil {
			return
		}
		s := p.r.newStream(p.ctx, p.whole.desc, from, min(from+size, p.whole.end))
		s.insist = true
		next := &part{buf: buf, done: make(chan struct{})}
		if buf == nil {
			next.live = s
			close(next.done)
		} else {
			p.work.Go(func() {
				defer close(next.done)
				defer s.Close()
				next.n, next.err = io.ReadFull(s, buf[:s.end-s.pos])
			})
		}
		select {
		case p.queue <- next:
		case <-p.ctx.Done():
			<-next.done
			p.r.client.parts.put(buf)
			return
		}
	}
}

func (p *parts) Read(b []byte) (int, error) {
	for {
		n, err := p.next(b)
		p.pos += int64(n)
		if n > 0 || err == nil {
			return n, nil
		}
		if !errors.Is(err, errNoRanges) {
			return 0, err
		}
		// The server has changed its mind: the rest comes in one piece.
		p.stop()
		p.whole.pos, p.whole.ranges = p.pos, true
		p.head = nil
		p.queue = nil
	}
}

// next gives what comes next, io.EOF at the end.
func (p *parts) next(b []byte) (int, error) {
	for {
		switch {
		case p.queue == nil:
			return p.whole.Read(b)
		case p.head != nil:
			n, err := p.head.Read(b)
			if err != io.EOF || p.head.pos < p.head.end {
				return n, err
			}
			p.head.Close()
			p.head = nil
		case p.now == nil:
			next, ok := p.take()
			if !ok {
				return 0, p.end()
			}
			if next.live != nil {
				p.head = next.live
				continue
			}
			p.now, p.read = next, 0
			select {
			case <-next.done:
			case <-p.ctx.Done():
				return 0, p.r.wrap(p.ctx, p.r.doing(p.whole.desc), context.Cause(p.ctx))
			}
		case p.read < p.now.n:
			n := copy(b, p.now.buf[p.read:p.now.n])
			p.read += n
			return n, nil
		default:
			err := p.now.err
			<-p.now.done
			p.r.client.parts.put(p.now.buf)
			p.now = nil
			switch {
			case err == nil:
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return 0, io.EOF // truncated
			default:
				return 0, err
			}
		}
	}
}

// take waits for the next part. Where the pool has no memory, because others are slow to give
// theirs back, a part comes without.
func (p *parts) take() (*part, bool) {
	for {
		select {
		case next, ok := <-p.queue:
			return next, ok
		case p.hungry <- struct{}{}:
		}
	}
}

// end is why no part comes any more.
func (p *parts) end() error {
	if p.ctx.Err() != nil {
		return p.r.wrap(p.ctx, p.r.doing(p.whole.desc), context.Cause(p.ctx))
	}
	return io.EOF
}

// stop ends what is fetched ahead and gives its memory back.
func (p *parts) stop() {
	p.cancel()
	if p.head != nil {
		p.head.Close()
	}
	p.work.Wait()
	if p.now != nil {
		p.r.client.parts.put(p.now.buf)
		p.now = nil
	}
	if p.queue == nil {
		return
	}
	for next := range p.queue {
		p.r.client.parts.put(next.buf)
	}
}

func (p *parts) Close() error {
	p.stop()
	return p.whole.Close()
}
