package run

import (
	"context"
	"io"
	"sync"
)

// input is the command's stdin for one container after the other: what one has not taken is the
// next one's. It is read from the first use on.
type input struct {
	from   io.Reader
	chunks chan []byte // closed at the end of stdin
	once   sync.Once

	mu   sync.Mutex
	rest []byte
}

const inputChunk = 32 << 10

// until returns a reader of stdin that ends with the context, and unless open is set with stdin.
func (i *input) until(ctx context.Context, open bool) io.Reader {
	i.once.Do(func() { go i.read() })
	return inputReader{i, ctx, open}
}

func (i *input) read() {
	defer close(i.chunks)
	for {
		buf := make([]byte, inputChunk)
		n, err := i.from.Read(buf)
		if n > 0 {
			i.chunks <- buf[:n] // at the end of the run nobody takes it
		}
		if err != nil {
			return
		}
	}
}

type inputReader struct {
	*input
	ctx  context.Context
	open bool
}

func (r inputReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if len(r.rest) == 0 {
		select {
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		case chunk, ok := <-r.chunks:
			if !ok && r.open {
				<-r.ctx.Done()
				return 0, r.ctx.Err()
			}
			if !ok {
				return 0, io.EOF
			}
			r.rest = chunk
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
