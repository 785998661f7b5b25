package serve

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// maxConns bounds the connections of a server: more wait to be accepted.
const maxConns = 4096

// errDrained says that the last connection that had arrived was accepted.
var errDrained = errors.New("listener is drained")

// listener accepts connections of a bounded number. After drain it accepts those that have arrived,
// which closing a socket would reset, and then no more.
type listener struct {
	*net.TCPListener
	places   chan struct{}
	draining atomic.Bool
	stop     chan struct{} // closed by drain
}

func newListener(l *net.TCPListener, most int) *listener {
	return &listener{TCPListener: l, places: make(chan struct{}, most), stop: make(chan struct{})}
}

// drain is called once.
func (l *listener) drain() {
	l.draining.Store(true)
	close(l.stop)
	_ = l.SetDeadline(time.Unix(1, 0)) // ends Accept
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.stop:
		l.places <- struct{}{} // those that were accepted end in their time
	}
	c, err := l.accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &conn{Conn: c, born: time.Now(), free: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *listener) accept() (net.Conn, error) {
	for !l.draining.Load() {
		c, err := l.TCPListener.AcceptTCP()
		if err == nil {
			return c, nil
		}
		if !l.draining.Load() {
			return nil, err
		}
	}
	return l.arrived()
}

// arrived accepts a connection that is there already.
func (l *listener) arrived() (net.Conn, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if controlErr := raw.Control(func(at uintptr) {
		for {
			fd, _, err = unix.Accept4(int(at), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err != unix.EINTR && err != unix.ECONNABORTED {
				return
			}
		}
	}); controlErr != nil {
		return nil, controlErr
	}
	if err != nil {
		return nil, errDrained // there is none, or no descriptor for it
	}
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	return net.FileConn(f)
}

// conn is a connection that has a place.
type conn struct {
	net.Conn
	free   func()
	after  func()       // called when a response was sent; nil for nothing
	sent   atomic.Int64 // bytes
	born   time.Time
	last   atomic.Int64 // when the last ones were sent, in ns since born
	broken atomic.Bool  // a Write failed
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	c.last.Store(int64(time.Since(c.born)))
	if err != nil {
		c.broken.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
