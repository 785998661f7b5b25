package wasip1

import (
	"encoding/binary"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// maxSubscriptions bounds the host memory that one poll_oneoff needs.
const maxSubscriptions = 1 << 16

// subscription is one of poll_oneoff's, as the host sees it.
type subscription struct {
	userdata uint64
	kind     uint8
	err      errno
	due      int64 // a clock's
	file     *file // a descriptor's
}

// waiting is what poll_oneoff knows of a file. A file stays registered with epoll between calls, so that
// a guest that asks for the same descriptors again and again, as Go's does, costs no system call for
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

func pollOneoff(h *Host, mem api.Memory, p []uint64) errno {
	count := uint32(p[2])
	if count == 0 {
		return einval
	}
	if count > maxSubscriptions {
		return enomem
	}
	in, e := array(mem, p[0], p[2], sizeSubscription)
	if e != success {
		return e
	}
	out, e := array(mem, p[1], p[2], sizeEvent)
	if e != success {
		return e
	}
	result, e := record(mem, p[3], 4)
	if e != success {
		return e
	}
	h.subscribe(in)
	for {
		woken, e := h.sleep()
		if e != success {
			return e
		}
		if n := h.emit(out, woken); n > 0 {
			put32(result, n)
			return success
		}
	}
}

// subscribe reads the subscriptions into h.subs and registers their descriptors.
func (h *Host) subscribe(in []byte) {
	h.round++
	h.subs = h.subs[:0]
	for ; len(in) > 0; in = in[sizeSubscription:] {
		s := subscription{userdata: binary.LittleEndian.Uint64(in), kind: in[8], due: forever}
		switch s.kind {
		case eventClock:
			s.due, s.err = h.deadline(binary.LittleEndian.Uint32(in[16:]),
				binary.LittleEndian.Uint64(in[24:]), binary.LittleEndian.Uint16(in[40:]))
		case eventRead:
			h.subscribeFile(&s, binary.LittleEndian.Uint32(in[16:]), rightFdRead, unix.EPOLLIN|unix.EPOLLRDHUP)
		case eventWrite:
			h.subscribeFile(&s, binary.LittleEndian.Uint32(in[16:]), rightFdWrite, unix.EPOLLOUT)
		default:
			s.err = einval
		}
		h.subs = append(h.subs, s)
	}
	for i := range h.subs {
		f := h.subs[i].file
		if f == nil || h.subs[i].err != success || f.waiting.never || f.waiting.wanted&^f.waiting.armed == 0 {
			continue
		}
		if e := h.watch(f, f.waiting.armed|f.waiting.wanted); e != success {
			h.subs[i].err = e
		}
	}
}

func (h *Host) subscribeFile(s *subscription, fd uint32, need rights, events uint32) {
	f, e := h.get(uint64(fd), 0)
	if e != success {
		s.err = e
		return
	}
	if f.base&(need|rightPollFdReadwrite) != need|rightPollFdReadwrite {
		s.err = enotcapable
		return
	}
	s.file = f
	w := &f.waiting
	if f.kind != kindStream && !f.socket() {
		w.never = true
	}
	if w.round != h.round {
		w.round, w.wanted, w.got = h.round, 0, 0
	}
	w.wanted |= events
}

// watch registers f with epoll for events; none takes it out.
func (h *Host) watch(f *file, events uint32) errno {
	if h.epoll < 0 {
		if e := h.openEpoll(); e != success {
			return e
		}
	}
	op := unix.EPOLL_CTL_MOD
	switch {
	case events == 0:
		op = unix.EPOLL_CTL_DEL
	case f.waiting.armed == 0:
		op = unix.EPOLL_CTL_ADD
	}
	event := unix.EpollEvent{Events: events, Fd: int32(f.host)}
	switch err := unix.EpollCtl(h.epoll, op, f.host, &event); err {
	case nil:
	case unix.EPERM: // a file that is never not ready
		f.waiting.never = true
		return success
	default:
		return toErrno(err)
	}
	f.waiting.armed = events
	for len(h.watched) <= f.host {
		h.watched = append(h.watched, nil)
	}
	h.watched[f.host] = f
	return success
}

// unwatch forgets f. A standard stream's open file outlives its descriptor, and epoll would keep it.
func (h *Host) unwatch(f *file) {
	if f.waiting.armed == 0 {
		return
	}
	h.watch(f, 0)
	h.watched[f.host] = nil
}

func (h *Host) openEpoll() errno {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return toErrno(err)
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(h.bell)}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, h.bell, &event); err != nil {
		unix.Close(fd)
		return toErrno(err)
	}
	h.epoll = fd
	return success
}

// sleep waits until one of h.subs may have something to say, and tells whether Interrupt ended it.
func (h *Host) sleep() (bool, errno) {
	due, polls := int64(forever), false
	for i := range h.subs {
		s := &h.subs[i]
		if s.err != success || s.file != nil && h.always(s.file) {
			due = 0
			continue
		}
		if s.file != nil {
			polls = true
		}
		due = min(due, s.due)
	}
	if !polls && due == 0 {
		return false, success
	}
	for {
		left := max(due-h.monotonic(), 0)
		if due == 0 {
			left = 0
		} else if due == forever {
			left = forever
		}
		woken, seen, e := h.pause(polls, left)
		if e != success && e != eintr {
			return false, e
		}
		if woken || seen || due != forever && h.monotonic() >= due {
			return woken, success
		}
	}
}

// always reports whether f is ready without asking the kernel.
func (h *Host) always(f *file) bool {
	return f.waiting.never || f.stdin && h.interrupted.Load()
}

// pause sleeps once, for at most left nanoseconds. It tells whether Interrupt rang, and whether a
// subscribed descriptor is ready.
func (h *Host) pause(polls bool, left int64) (woken, seen bool, e errno) {
	if !polls {
		var wait *unix.Timespec
		if left != forever {
			t := unix.NsecToTimespec(left)
			wait = &t
		}
		why, e := h.await(-1, 0, wait)
		return why == wakeInterrupt, false, e
	}
	n, e := h.epollWait(left)
	if e != success {
		return false, false, e
	}
	for i := range h.events[:n] {
		event := &h.events[i]
		if int(event.Fd) == h.bell {
			h.muffle()
			woken = true
			continue
		}
		f := h.watched[event.Fd]
		w := &f.waiting
		if w.round != h.round {
			h.unwatch(f) // of an earlier call, and noisy
			continue
		}
		if got := event.Events & (w.wanted | hangs); got != 0 {
			w.got |= got
			seen = true
		}
		if event.Events&^(w.wanted|hangs) != 0 {
			h.watch(f, w.wanted)
		}
	}
	return woken, seen, success
}

// timespec64 is the kernel's timespec of new system calls, on every architecture.
type timespec64 struct{ seconds, nanoseconds int64 }

// epollWait is epoll_pwait2, which knows nanoseconds, or on kernels before 5.11 ppoll on the epoll
// descriptor itself.
func (h *Host) epollWait(left int64) (int, errno) {
	if left > 0 && h.oldEpoll {
		var wait *unix.Timespec
		if left != forever {
			t := unix.NsecToTimespec(left)
			wait = &t
		}
		h.polls[0] = unix.PollFd{Fd: int32(h.epoll), Events: unix.POLLIN}
		if n, err := unix.Ppoll(h.polls[:1], wait, nil); err != nil || n == 0 {
			return 0, toErrno(err)
		}
		left = 0
	}
	events := uintptr(unsafe.Pointer(&h.events[0]))
	if left == 0 {
		n, _, err := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(h.epoll), events, uintptr(len(h.events)), 0, 0, 0)
		if err != 0 {
			return 0, toErrno(err)
		}
		return int(n), success
	}
	var wait *timespec64
	if left != forever {
		h.wait = timespec64{left / 1e9, left % 1e9}
		wait = &h.wait
	}
	n, _, err := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(h.epoll), uintptr(unsafe.Pointer(&h.events[0])),
		uintptr(len(h.events)), uintptr(unsafe.Pointer(wait)), 0, 0)
	switch err {
	case 0:
		return int(n), success
	case unix.ENOSYS, unix.EPERM:
		h.oldEpoll = true
		return 0, success
	}
	return 0, toErrno(err)
}

// emit writes the events that have come. After an Interrupt that nothing else answers to, every clock
// is said to have struck: a guest in a sleep gets the chance to look around.
func (h *Host) emit(out []byte, woken bool) uint32 {
	now := h.monotonic()
	n := uint32(0)
	for pass := 0; pass < 2 && n == 0; pass++ {
		for i := range h.subs {
			s := &h.subs[i]
			nbytes, flags := uint64(0), uint16(0)
			switch {
			case s.err != success:
			case s.kind == eventClock:
				if s.due > now && (pass == 0 || !woken) {
					continue
				}
			default:
				var ready bool
				if nbytes, flags, ready = h.readiness(s); !ready {
					continue
				}
			}
			event := out[n*sizeEvent:][:sizeEvent]
			clear(event)
			put64(event, s.userdata)
			put16(event[8:], uint16(s.err))
			event[10] = s.kind
			put64(event[16:], nbytes)
			put16(event[24:], flags)
			n++
		}
	}
	return n
}

// readiness tells whether a descriptor has what s waits for, how many bytes, and whether its other end
// is gone.
func (h *Host) readiness(s *subscription) (nbytes uint64, flags uint16, ready bool) {
	f, w := s.file, &s.file.waiting
	if s.kind == eventRead {
		switch {
		case f.stdin && h.interrupted.Load():
			return pending(f), eventHangup, true
		case w.never && f.kind == kindNull:
			return 0, eventHangup, true
		case w.never:
			return remaining(f), 0, true
		case w.got&(unix.EPOLLIN|unix.EPOLLRDHUP|hangs) == 0:
			return 0, 0, false
		}
		if w.got&(unix.EPOLLRDHUP|hangs) != 0 {
			flags = eventHangup
		}
		return pending(f), flags, true
	}
	if !w.never && w.got&(unix.EPOLLOUT|hangs) == 0 {
		return 0, 0, false
	}
	if w.got&hangs != 0 {
		flags = eventHangup
	}
	return pipeBuf, flags, true
}

// pending is how much a stream or socket holds; a listener says 1 for "a connection".
func pending(f *file) uint64 {
	if f.kind == kindListener {
		return 1
	}
	n, err := unix.IoctlGetInt(f.host, unix.TIOCINQ /* FIONREAD */)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n)
}

// remaining is how much of a regular file lies behind its offset.
func remaining(f *file) uint64 {
	var st unix.Stat_t
	if f.kind != kindFile || unix.Fstat(f.host, &st) != nil {
		return 0
	}
	position, err := unix.Seek(f.host, 0, unix.SEEK_CUR)
	if err != nil || position > st.Size {
		return 0
	}
	return uint64(st.Size - position)
}
