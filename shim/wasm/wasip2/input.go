package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// input is an input-stream of an open file.
type input struct {
	node   *node
	place  Place
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
	count, err := s.place.Read(s.node.file, i.buffers[:0].Add(b), func(b wasi.Buffers) (int, error) { return s.read(b, block) })
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

// read reads once where the open file stands.
func (s *input) read(b wasi.Buffers, block bool) (int, error) {
	f := s.node.file
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
