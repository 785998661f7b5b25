package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// output is an output-stream of an open file. What is written is with the kernel when the call
// returns: there is nothing to flush.
type output struct {
	node   *node
	mode   outputMode
	offset int64 // of the next byte, with atOffset
	closed bool
}

// outputMode is where a stream writes.
type outputMode uint8

const (
	asOpened outputMode = iota // where the open file stands
	atOffset
	atEnd
)

func newOutput(n *node, mode outputMode, offset int64) *output {
	return &output{node: n.use(), mode: mode, offset: offset}
}

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
		n, err := s.transfer(i.buffers[:0].Add(b))
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

// transfer writes once.
func (s *output) transfer(b wasi.Buffers) (int, error) {
	f := s.node.file
	seekable := f.Kind() == wasi.KindFile
	switch {
	case s.mode == atOffset:
		n, err := f.WriteAt(b, s.offset)
		if err != unix.ESPIPE || seekable {
			s.offset += int64(n)
			return n, err
		}
		s.mode = asOpened // a pipe or a terminal that was opened by its path
	case s.mode == atEnd && seekable && f.Flags()&wasi.Append == 0:
		// It stays: WriteAt lifts it, and nothing else writes into a file that was opened by path.
		if err := f.SetFlags(f.Flags() | wasi.Append); err != nil {
			return 0, err
		}
	}
	return f.Write(b)
}

// Flush implements OutputStream.
func (s *output) Flush(*Instance, bool) error {
	if s.closed {
		return ErrClosed
	}
	return nil
}
