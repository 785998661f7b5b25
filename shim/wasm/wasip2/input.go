package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// input is an input-stream of an open file.
type input struct {
	node   *node
	at     bool  // it has an offset of its own, else it reads where the open file stands
	offset int64 // of the next byte
	closed bool
}

// Drop implements canonical.Resource.
func (s *input) Drop() { s.node.release() }

// WaitsFor implements Waiter.
func (s *input) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{File: s.node.file}, !s.closed && s.node.file.Kind() != wasi.KindFile
}

// Read implements InputStream.
func (s *input) Read(i *Instance, n uint64, block bool) ([]byte, error) {
	if s.closed {
		return nil, ErrClosed
	}
	if n == 0 {
		if subscription, waits := s.WaitsFor(); block && waits {
			return nil, i.Wait(subscription)
		}
		return nil, nil
	}
	b := i.scratch(n)
	count, err := s.transfer(i.buffers[:0].Add(b), block)
	switch {
	case err == unix.EAGAIN && !block:
		return nil, nil
	case err != nil:
		s.closed = true
		return nil, s.node.failed(err)
	case count == 0:
		s.closed = true
		return nil, ErrClosed
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
