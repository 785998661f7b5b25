package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// maxRead is how much one read of a guest's moves, in bytes.
const maxRead = 64 << 10

// input is the resource input-stream.
type input struct {
	node   *node
	at     bool  // it has an offset of its own, else it reads where the open file stands
	offset int64 // of the next byte
	closed bool
}

func (s *input) drop() { s.node.release() }

// waitsFor is what makes the stream ready, false for one that always is.
func (s *input) waitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: s.node.file}, !s.closed && s.node.file.Kind() != wasi.KindFile
}

// read reads at most n bytes, without waiting unless block is set. The bytes are valid until the
// next read. None without an error are none so far.
func (s *input) read(h *Host, n uint64, block bool) ([]byte, error) {
	if s.closed {
		return nil, errClosed
	}
	if n == 0 {
		if subscription, waits := s.waitsFor(); block && waits {
			return nil, h.wait(subscription)
		}
		return nil, nil
	}
	b := h.scratch(n)
	count, err := s.transfer(h.buffers[:0].Add(b), block)
	switch {
	case err == unix.EAGAIN && !block:
		return nil, nil
	case err != nil:
		s.closed = true
		return nil, s.node.failed(err)
	case count == 0:
		s.closed = true
		return nil, errClosed
	}
	return b[:count], nil
}

// transfer reads once.
func (s *input) transfer(b wasi.Buffers, block bool) (int, error) {
	f := s.node.file
	if s.at {
		n, err := f.ReadAt(b, s.offset)
		if err != unix.ESPIPE || f.Kind() == wasi.KindFile {
			s.offset += int64(n)
			return n, err
		}
		s.at = false // a pipe or a terminal that was opened by its path
	}
	flags := f.Flags()
	how := flags &^ wasi.Nonblock
	if !block {
		how |= wasi.Nonblock
	}
	if err := f.SetFlags(how); err != nil {
		return 0, err
	}
	n, err := f.Read(b)
	_ = f.SetFlags(flags) // Nonblock is known to File only, and cannot fail
	return n, err
}

func inputRead(c *call, p []uint64, out uint32) error         { return readTo(c, p, out, false) }
func inputBlockingRead(c *call, p []uint64, out uint32) error { return readTo(c, p, out, true) }

func readTo(c *call, p []uint64, out uint32, block bool) error {
	b, err := get[*input](c.host, p[0]).read(c.host, p[1], block)
	if err != nil {
		return err
	}
	c.putBytes(out, b)
	return nil
}

func inputSkip(c *call, p []uint64, out uint32) error         { return skip(c, p, out, false) }
func inputBlockingSkip(c *call, p []uint64, out uint32) error { return skip(c, p, out, true) }

func skip(c *call, p []uint64, out uint32, block bool) error {
	b, err := get[*input](c.host, p[0]).read(c.host, p[1], block)
	if err != nil {
		return err
	}
	c.put64(out, uint64(len(b)))
	return nil
}
