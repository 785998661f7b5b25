package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// output is an output-stream of an open file. What is written is with the kernel when the call
// returns: there is nothing to flush.
type output struct {
	node   *node
	place  Place
	closed bool
}

func newOutput(n *node, place Place) *output { return &output{node: n.use(), place: place} }

// Drop implements canonical.Resource.
func (s *output) Drop() { s.node.release() }

// WaitsFor implements Waiter.
func (s *output) WaitsFor() (wasi.Subscription, bool) {
	kind := s.node.file.Kind()
	return wasi.Subscription{File: s.node.file, Write: true}, !s.closed && (kind == wasi.KindStream || kind == wasi.KindSocket)
}

// Check implements OutputStream.
func (s *output) Check() (uint64, error) {
	if s.closed {
		return 0, ErrClosed
	}
	if _, waits := s.WaitsFor(); !waits {
		return maxPermit, nil
	}
	if s.node.file.HasRoom() {
		return wasi.Room, nil
	}
	return 0, nil
}

// Write implements OutputStream.
func (s *output) Write(i *Instance, b []byte) error {
	if s.closed {
		return ErrClosed
	}
	for len(b) > 0 {
		n, err := s.place.Write(s.node.file, i.buffers[:0].Add(b), s.node.file.Write)
		if err == nil && n == 0 {
			err = unix.EIO // the kernel takes nothing and says nothing
		}
		if err != nil {
			s.closed = true
			return s.node.failed(err)
		}
		b = b[n:]
	}
	return nil
}

// Flush implements OutputStream.
func (s *output) Flush(*Instance, bool) error {
	if s.closed {
		return ErrClosed
	}
	return nil
}
