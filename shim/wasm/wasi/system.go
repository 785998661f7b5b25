package wasi

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Fallbacks are ways around system calls that older kernels lack. A System finds out by itself what
// it needs; who sets one makes it act as on such a kernel.
type Fallbacks struct {
	Walk        bool // no openat2 (before 5.6): paths are resolved step by step
	PollEpoll   bool // no epoll_pwait2 (before 5.11): ppoll on the epoll descriptor
	TimesByName bool // utimensat takes no empty path (before 5.11)
}

// System is what one guest has of its host. A guest has one thread; Interrupt, Cancel and Hears may
// be called from others.
type System struct {
	Fallbacks Fallbacks

	// Parks has waits for clocks alone sleep without a thread, as those for events do. It is for a
	// process with many guests: with one, a thread wakes faster.
	Parks bool

	epoch  time.Time
	waiter waiter
	poller poller

	mu        sync.Mutex       // guards what Interrupt shares with the guest's thread:
	listeners map[*Socket]bool // open listeners; false once they refuse
	stdin     bool             // there is a standard input worth ending
	closed    bool

	devices []uint64 // file systems that guard has let pass

	// Scratch space, so that sending and receiving make no garbage.
	msg  unix.Msghdr
	name sockaddr
}

// New makes the System of a guest.
func New() *System {
	s := &System{epoch: time.Now(), listeners: map[*Socket]bool{}}
	s.poller = poller{sys: s, epoll: -1}
	s.waiter.bell.fd, s.waiter.alarm = -1, make(chan struct{}, 1)
	return s
}

// Interrupt asks the guest to end. From now on its listeners refuse connections (those that had
// arrived are still handed out, then Accept is EINVAL) and its standard input ends behind what lies
// in it. A call that is blocked at this moment returns, or if no call is blocked, the next one that
// would block:
//
//   - Poll with those listeners and the standard input ready, else with its clocks as if they had struck;
//     with neither it continues to wait;
//   - reading from a socket, pipe or terminal with ECANCELED.
//
// Writes continue: an answer in flight is worth the grace period. Interrupt may be called again;
// each call wakes once.
func (s *System) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.waiter.interrupted.Store(true)
	s.waiter.rung.Store(true)
	for l, listening := range s.listeners {
		if listening {
			l.stopListening()
			s.listeners[l] = false
		}
	}
	s.waiter.ring()
}

// Hears tells whether the guest has a listener or a standard input to notice Interrupt by.
// /dev/null is no standard input.
func (s *System) Hears() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdin || len(s.listeners) > 0
}

// Close releases what the System itself holds. The guest must have ended and its Files must be
// closed.
func (s *System) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.waiter.bell.close()
	s.poller.close()
}

// Random fills p with random bytes.
func (s *System) Random(p []byte) error {
	for len(p) > 0 {
		n, err := unix.Getrandom(p, 0)
		if err != nil && err != unix.EINTR {
			return err
		}
		p = p[max(n, 0):]
	}
	return nil
}

// retry repeats a system call that a signal of the Go runtime interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// result is the error of a raw system call, nil for 0.
func result(number unix.Errno) error {
	if number == 0 {
		return nil
	}
	return number
}
