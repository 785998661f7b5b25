package wasi

import "golang.org/x/sys/unix"

// Subscription is one thing that Poll waits for: a clock, a file that has something to read or room
// to write, or an event. The caller sets Err for one that is wrong; Poll returns it at once.
type Subscription struct {
	File  *File // nil for a clock or an event
	Write bool
	Event *Event
	Due   int64 // a clock's time of System.Monotonic

	// Answers of Poll.
	Err    error
	Ready  bool
	Bytes  uint64 // how many can be read or written, at least
	Hangup bool   // the other end is closed
}

// waiting is what Poll knows of a file. A file stays registered with epoll between calls, so that a
// guest that asks for the same descriptors again and again, as Go's does, costs no system call for
// each of them.
type waiting struct {
	armed  uint32 // events registered with epoll, 0 = not registered
	wanted uint32 // events this call subscribes to
	got    uint32 // events this call has seen
	round  uint64 // the call that wanted and got belong to
	never  bool   // epoll does not take it: it is always ready
}

// hangs are the events that come unasked.
const hangs = unix.EPOLLERR | unix.EPOLLHUP

// poller waits for many files and clocks at once.
type poller struct {
	sys     *System
	epoll   int     // -1 until Poll needs it
	watched []*File // by host descriptor, what epoll knows
	round   uint64  // count of Poll calls
	events  [64]unix.EpollEvent
	wait    timespec64
}

// Poll waits until a subscription is ready, and returns how many are. After an Interrupt that
// nothing else answers to, every clock is said to have struck: a guest in a sleep gets the chance
// to look around.
func (s *System) Poll(subs []Subscription) (int, error) {
	p := &s.poller
	p.subscribe(subs)
	if s.joinEvents(subs) {
		defer s.leaveEvents(subs)
	}
	for {
		woken, err := p.sleep(subs)
		if err != nil {
			return 0, err
		}
		if n := p.answer(subs, woken); n > 0 {
			return n, nil
		}
	}
}

// subscribe registers the files with epoll.
func (p *poller) subscribe(subs []Subscription) {
	p.round++
	for i := range subs {
		s := &subs[i]
		if s.File == nil || s.Err != nil {
			continue
		}
		w := &s.File.waiting
		if s.File.kind != KindStream && s.File.socket == nil {
			w.never = true
		}
		if w.round != p.round {
			w.round, w.wanted, w.got = p.round, 0, 0
		}
		if s.Write {
			w.wanted |= unix.EPOLLOUT
		} else {
			w.wanted |= unix.EPOLLIN | unix.EPOLLRDHUP
		}
	}
	for i := range subs {
		f := subs[i].File
		if f == nil || subs[i].Err != nil || f.waiting.never || f.waiting.wanted&^f.waiting.armed == 0 {
			continue
		}
		if err := p.watch(f, f.waiting.armed|f.waiting.wanted); err != nil {
			subs[i].Err = err
		}
	}
}

// sleep waits until one of subs may have something to say, and tells whether Interrupt ended it.
func (p *poller) sleep(subs []Subscription) (bool, error) {
	due, polls, events := int64(Forever), false, false
	for i := range subs {
		s := &subs[i]
		switch {
		case s.Err != nil || s.File != nil && p.always(s.File):
			due = 0
		case s.File != nil:
			polls = true
		case s.Event != nil:
			events = true
			if s.Event.IsSet() {
				due = 0
			}
		default:
			due = min(due, s.Due)
		}
	}
	if !polls && due == 0 {
		return false, nil
	}
	for {
		left := max(due-p.sys.Monotonic(), 0)
		if due == 0 {
			left = 0
		} else if due == Forever {
			left = Forever
		}
		woken, seen, err := p.pause(polls, events || p.sys.Parks, left)
		if err != nil && err != unix.EINTR {
			return false, err
		}
		if woken || seen || events && anySet(subs) || due != Forever && p.sys.Monotonic() >= due {
			return woken, nil
		}
	}
}

// always reports whether f is ready without asking the kernel.
func (p *poller) always(f *File) bool {
	return f.waiting.never || f.stdin && p.sys.waiter.interrupted.Load()
}

// pause sleeps once, for at most left nanoseconds. It tells whether Interrupt rang, and whether a
// subscribed descriptor is ready.
func (p *poller) pause(polls, parks bool, left int64) (woken, seen bool, err error) {
	if err := p.sys.waiter.canceled(); err != nil {
		return false, false, err
	}
	if !polls && parks {
		return p.sys.waiter.park(left) == wakeInterrupt, false, p.sys.waiter.canceled()
	}
	if !polls {
		why, err := p.sys.waiter.await(-1, 0, timespec(left))
		return why == wakeInterrupt, false, err
	}
	n, err := p.epollWait(left)
	if err != nil {
		return false, false, err
	}
	for i := range p.events[:n] {
		event := &p.events[i]
		if int(event.Fd) == p.sys.waiter.bell.fd {
			woken = p.sys.waiter.muffle() == wakeInterrupt
			continue
		}
		f := p.watched[event.Fd]
		w := &f.waiting
		if w.round != p.round {
			p.unwatch(f) // of an earlier call, and noisy
			continue
		}
		if got := event.Events & (w.wanted | hangs); got != 0 {
			w.got |= got
			seen = true
		}
		if event.Events&^(w.wanted|hangs) != 0 {
			p.watch(f, w.wanted)
		}
	}
	return woken, seen, nil
}

// answer marks the subscriptions that are ready and returns how many are.
func (p *poller) answer(subs []Subscription, woken bool) int {
	now := p.sys.Monotonic()
	n := 0
	for pass := 0; pass < 2 && n == 0; pass++ {
		for i := range subs {
			s := &subs[i]
			switch {
			case s.Err != nil:
				s.Ready = true
			case s.Event != nil:
				s.Ready = s.Event.IsSet()
			case s.File == nil:
				s.Ready = s.Due <= now || pass == 1 && woken
			default:
				p.readiness(s)
			}
			if s.Ready {
				n++
			}
		}
	}
	return n
}

// readiness tells whether a file has what s waits for, how many bytes, and whether its other end is
// gone.
func (p *poller) readiness(s *Subscription) {
	f, w := s.File, &s.File.waiting
	if s.Write {
		if s.Ready = w.never || w.got&(unix.EPOLLOUT|hangs) != 0; s.Ready {
			s.Bytes, s.Hangup = Room, w.got&hangs != 0
		}
		return
	}
	s.Ready = true
	switch {
	case f.stdin && p.sys.waiter.interrupted.Load():
		s.Bytes, s.Hangup = pending(f), true
	case w.never && f.kind == KindNull:
		s.Hangup = true
	case w.never:
		s.Bytes = remaining(f)
	case w.got&(unix.EPOLLIN|unix.EPOLLRDHUP|hangs) == 0:
		s.Ready = false
	default:
		s.Bytes, s.Hangup = pending(f), w.got&(unix.EPOLLRDHUP|hangs) != 0
	}
}

// pending is how much a stream or socket holds; a listener says 1 for "a connection".
func pending(f *File) uint64 {
	if f.kind == KindListener {
		return 1
	}
	n, err := unix.IoctlGetInt(f.host, unix.TIOCINQ /* FIONREAD */)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n)
}

// remaining is how much of a regular file lies behind its offset.
func remaining(f *File) uint64 {
	var st unix.Stat_t
	if f.kind != KindFile || unix.Fstat(f.host, &st) != nil {
		return 0
	}
	position, err := unix.Seek(f.host, 0, unix.SEEK_CUR)
	if err != nil || position > st.Size {
		return 0
	}
	return uint64(st.Size - position)
}
