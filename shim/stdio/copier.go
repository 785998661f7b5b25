package stdio

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is how much a copier reads at once.
const chunk = 16 << 10

// buffers are taken only while there is something to move: an idle stream has none.
var buffers = sync.Pool{New: func() any { return new([chunk]byte) }}

// copier moves bytes from a pipe, FIFO or pty into a sink until the end of the source.
type copier struct {
	stream string // its name
	src    *os.File
	dst    sink
	fifo   bool // the source is a FIFO that may not have a writer yet

	once     sync.Once
	done     chan struct{}
	stopping atomic.Bool
}

func newCopier(stream string, src *os.File, dst sink, fifo bool) *copier {
	return &copier{stream: stream, src: src, dst: dst, fifo: fifo, done: make(chan struct{})}
}

// run copies until end of file, finish or stop, and closes both sides.
func (c *copier) run() {
	c.once.Do(func() {
		defer close(c.done)
		defer c.src.Close()
		defer c.dst.Close()
		raw, err := c.src.SyscallConn()
		if err != nil {
			return
		}
		broken := false
		for {
			more, err := c.step(raw, &broken)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.rest(raw, &broken)
				return
			}
			if !more || err != nil {
				return
			}
		}
	})
}

// step waits until the source can be read and moves what one read gives. more is false at the end.
func (c *copier) step(raw syscall.RawConn, broken *bool) (more bool, err error) {
	err = raw.Read(func(fd uintptr) bool {
		if c.fifo && !ready(int(fd)) {
			return false
		}
		var again bool
		more, again = c.move(int(fd), broken)
		return !again
	})
	return more, err
}

// rest moves what can be read without waiting.
func (c *copier) rest(raw syscall.RawConn, broken *bool) {
	_ = raw.Control(func(fd uintptr) {
		for {
			if more, again := c.move(int(fd), broken); !more || again {
				return
			}
		}
	})
}

// move does one read and passes it on. A sink that takes no more does not stop the reading:
// a program must not block because of its log.
func (c *copier) move(fd int, broken *bool) (more, again bool) {
	buf := buffers.Get().(*[chunk]byte)
	defer buffers.Put(buf)
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return true, true
		case err != nil || n <= 0: // EIO is a pty without slaves
			return false, false
		}
		if !*broken {
			if _, err := c.dst.Write(buf[:n]); err != nil {
				*broken = true
			}
		}
		return true, false
	}
}

// ready says whether a FIFO has bytes, or had a writer that closed it. Reading one that
// nobody opened for writing yet would look like its end.
func ready(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil
}

// finish ends the copying after what the source holds now.
func (c *copier) finish() {
	_ = c.src.SetReadDeadline(time.Unix(1, 0))
}

// stop ends the copying for good: what the source holds is passed on if the sink takes it at once.
func (c *copier) stop() {
	if c.stopping.Swap(true) || c.src == nil {
		return
	}
	c.finish()
	select {
	case <-c.done:
		return
	default:
	}
	if f, ok := c.dst.(*fileSink); ok {
		_ = f.SetWriteDeadline(time.Now().Add(stopGrace))
	}
	<-c.done
}

// stopGrace is how long a FIFO without an attentive reader may hold up the end of a process.
const stopGrace = 100 * time.Millisecond

// abandon closes both sides of a copier that never ran.
func (c *copier) abandon() {
	c.once.Do(func() {
		if c.src != nil {
			c.src.Close()
		}
		c.dst.Close()
		close(c.done)
	})
}
