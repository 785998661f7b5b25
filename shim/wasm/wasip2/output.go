package wasip2

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

const (
	// maxPermit is how much a guest may write into a file at once, and into any stream before it
	// has asked check-write, in bytes.
	maxPermit = 1 << 20

	// maxBlocking is the specification's limit of one blocking-write-and-flush, in bytes.
	maxBlocking = 4096
)

// output is the resource output-stream. What is written is with the kernel when the call returns:
// there is nothing to flush.
type output struct {
	node   *node
	mode   outputMode
	offset int64  // of the next byte, with atOffset
	permit uint64 // what may be written before the next check-write
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
	return &output{node: n.use(), mode: mode, offset: offset, permit: maxPermit}
}

func (s *output) drop() { s.node.release() }

// waitsFor is what makes the stream ready, false for one that always is.
func (s *output) waitsFor() (wasi.Subscription, bool) {
	kind := s.node.file.Kind()
	return wasi.Subscription{File: s.node.file, Write: true}, !s.closed && (kind == wasi.KindStream || kind == wasi.KindSocket)
}

// check is check-write.
func (s *output) check() (uint64, error) {
	if s.closed {
		return 0, errClosed
	}
	s.permit = maxPermit
	if _, waits := s.waitsFor(); waits {
		s.permit = 0
		if s.node.file.HasRoom() {
			s.permit = wasi.Room
		}
	}
	return s.permit, nil
}

// spend takes n bytes from what check-write permitted.
func (s *output) spend(n uint64) error {
	if s.closed {
		return errClosed
	}
	if n > s.permit {
		trapf("%d bytes written where check-write permits %d", n, s.permit)
	}
	s.permit -= n
	return nil
}

// put writes all of b.
func (s *output) put(h *Host, b []byte) error {
	for len(b) > 0 {
		n, err := s.transfer(h.buffers[:0].Add(b))
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

// flush is what blocking-flush and flush do. A guest that flushes has waited, or will.
func (s *output) flush() error {
	if s.closed {
		return errClosed
	}
	s.permit = maxPermit
	return nil
}

func outputCheckWrite(c *call, p []uint64, out uint32) error {
	n, err := get[*output](c.host, p[0]).check()
	if err != nil {
		return err
	}
	c.put64(out, n)
	return nil
}

func outputWrite(c *call, p []uint64, _ uint32) error {
	s := get[*output](c.host, p[0])
	b := c.list(p[1], p[2], 1, 1)
	if err := s.spend(uint64(len(b))); err != nil {
		return err
	}
	return s.put(c.host, b)
}

func outputBlockingWrite(c *call, p []uint64, _ uint32) error {
	s := get[*output](c.host, p[0])
	b := c.list(p[1], p[2], 1, 1)
	if len(b) > maxBlocking {
		trapf("%d bytes written where %d are permitted", len(b), maxBlocking)
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.put(c.host, b)
}

func outputFlush(c *call, p []uint64, _ uint32) error {
	return get[*output](c.host, p[0]).flush()
}

// zeroes is what write-zeroes writes.
var zeroes [maxBlocking]byte

func outputWriteZeroes(c *call, p []uint64, _ uint32) error {
	s := get[*output](c.host, p[0])
	if err := s.spend(p[1]); err != nil {
		return err
	}
	return s.putZeroes(c.host, p[1])
}

func outputBlockingWriteZeroes(c *call, p []uint64, _ uint32) error {
	s := get[*output](c.host, p[0])
	if p[1] > maxBlocking {
		trapf("%d zeroes written where %d are permitted", p[1], maxBlocking)
	}
	if err := s.flush(); err != nil {
		return err
	}
	return s.putZeroes(c.host, p[1])
}

func (s *output) putZeroes(h *Host, n uint64) error {
	for n > 0 {
		part := min(n, maxBlocking)
		if err := s.put(h, zeroes[:part]); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

func outputSplice(c *call, p []uint64, out uint32) error         { return splice(c, p, out, false) }
func outputBlockingSplice(c *call, p []uint64, out uint32) error { return splice(c, p, out, true) }

// splice moves bytes from one stream to another.
func splice(c *call, p []uint64, out uint32, block bool) error {
	to, from := get[*output](c.host, p[0]), get[*input](c.host, p[1])
	permit, err := to.check()
	for block && err == nil && permit == 0 {
		subscription, _ := to.waitsFor()
		if err = c.host.wait(subscription); err == nil {
			permit, err = to.check()
		}
	}
	if err != nil {
		return err
	}
	n := min(p[2], permit)
	if n > 0 {
		b, err := from.read(c.host, n, block)
		if err != nil {
			return err
		}
		n = uint64(len(b))
		if err := to.put(c.host, b); err != nil {
			return err
		}
		to.permit -= n
	}
	c.put64(out, n)
	return nil
}
