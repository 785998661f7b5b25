package wasi

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// wake is why await returned.
type wake uint8

const (
	wakeReady     wake = iota // the descriptor is ready, or broken
	wakeTimeout               // the time is over
	wakeInterrupt             // System.Interrupt
	wakeEvent                 // an Event, perhaps one that is not waited for any more
)

// waiter waits for one descriptor at a time, and is woken by Interrupt, Cancel and events.
type waiter struct {
	bell        bell          // wakes a thread
	alarm       chan struct{} // wakes a wait without one
	interrupted atomic.Bool   // Interrupt was called
	rung        atomic.Bool   // it has rung, and no wait has heard it
	cancelled   atomic.Bool
	polls       [2]unix.PollFd // scratch space
}

// ring wakes a wait, or the next one.
func (w *waiter) ring() {
	select {
	case w.alarm <- struct{}{}:
	default: // it rings already
	}
	w.bell.ring()
}

// bell is an eventfd, made for the first wait that needs a descriptor: most guests that answer one
// request have none.
type bell struct {
	mu   sync.Mutex
	fd   int  // -1 until it is made
	rung bool // before that
}

// descriptor is readable once the bell has rung. Only the guest's thread asks.
func (b *bell) descriptor() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		return b.fd, nil
	}
	rings := uint(0)
	if b.rung {
		rings = 1
	}
	fd, err := unix.Eventfd(rings, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, err
	}
	b.fd = fd
	return fd, nil
}

// ring makes it readable.
func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd < 0 {
		b.rung = true
		return
	}
	_, _ = unix.Write(b.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		unix.Close(b.fd)
		b.fd = -1
	}
}

// muffle takes the bell's ring, and tells what it was for.
func (w *waiter) muffle() wake {
	var b [8]byte
	unix.Read(w.bell.fd, b[:])
	return w.heard()
}

// await sleeps in the kernel until fd is ready for events, or wait is over (nil: forever). A fd of
// -1 only sleeps. An Interrupt since the last wait ends it at once, once.
func (w *waiter) await(fd int, events int16, wait *unix.Timespec) (wake, error) {
	if err := w.canceled(); err != nil {
		return wakeTimeout, err
	}
	bell, err := w.bell.descriptor()
	if err != nil {
		return wakeTimeout, err
	}
	w.polls = [2]unix.PollFd{{Fd: int32(bell), Events: unix.POLLIN}, {Fd: int32(fd), Events: events}}
	n, err := unix.Ppoll(w.polls[:], wait, nil)
	switch {
	case err != nil:
		return wakeTimeout, err
	case n == 0:
		return wakeTimeout, nil
	case w.polls[1].Revents != 0:
		return wakeReady, nil
	}
	return w.muffle(), w.canceled()
}

// block waits for one descriptor. It answers EAGAIN in non-blocking mode and after the guest's own
// timeout, and ECANCELED when it was interrupted.
func (w *waiter) block(f *File, events int16) error {
	var none unix.Timespec
	wait := &none
	blocking := f.flags&Nonblock == 0 && !(f.stdin && w.interrupted.Load())
	if blocking {
		wait = patience(f, events)
	}
	for {
		why, err := w.await(f.host, events, wait)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case why == wakeReady:
			return nil
		case why == wakeInterrupt && blocking:
			return unix.ECANCELED
		case why == wakeTimeout:
			return unix.EAGAIN
		}
	}
}

// hasRoom reports whether f can be written to now.
func (w *waiter) hasRoom(f *File) bool {
	var none unix.Timespec
	w.polls[0] = unix.PollFd{Fd: int32(f.host), Events: unix.POLLOUT}
	n, err := unix.Ppoll(w.polls[:1], &none, nil)
	return err == nil && n > 0
}

// drain waits until there is room to write, deaf to Interrupt.
func (w *waiter) drain(f *File) error {
	for {
		w.polls[0] = unix.PollFd{Fd: int32(f.host), Events: unix.POLLOUT}
		n, err := unix.Ppoll(w.polls[:1], patience(f, unix.POLLOUT), nil)
		switch {
		case err == unix.EINTR:
		case err == nil && n == 0:
			return unix.EAGAIN
		default:
			return err
		}
	}
}

// patience is how long a blocking call waits for events: forever, unless the guest has set a
// timeout.
func patience(f *File, events int16) *unix.Timespec {
	if f.socket == nil {
		return nil
	}
	limit := f.socket.ReceiveTimeout
	if events&unix.POLLOUT != 0 {
		limit = f.socket.SendTimeout
	}
	if limit == 0 {
		return nil
	}
	t := unix.NsecToTimespec(int64(limit))
	return &t
}
