package wasi

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// timespec64 is the kernel's timespec of new system calls, on every architecture.
type timespec64 struct{ seconds, nanoseconds int64 }

// timespec is how long ppoll waits, nil for Forever.
func timespec(left int64) *unix.Timespec {
	if left == Forever {
		return nil
	}
	t := unix.NsecToTimespec(left)
	return &t
}

// watch registers f with epoll for events; none takes it out.
func (p *poller) watch(f *File, events uint32) error {
	if p.epoll < 0 {
		if err := p.open(); err != nil {
			return err
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
	switch err := unix.EpollCtl(p.epoll, op, f.host, &event); err {
	case nil:
	case unix.EPERM: // a file that is never not ready
		f.waiting.never = true
		return nil
	default:
		return err
	}
	f.waiting.armed = events
	for len(p.watched) <= f.host {
		p.watched = append(p.watched, nil)
	}
	p.watched[f.host] = f
	return nil
}

// unwatch forgets f. A standard stream's open file outlives its descriptor, and epoll would keep
// it.
func (p *poller) unwatch(f *File) {
	if f.waiting.armed == 0 {
		return
	}
	p.watch(f, 0)
	p.watched[f.host] = nil
}

// open makes the epoll descriptor, with the bell in it.
func (p *poller) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	bell, err := p.sys.waiter.bell.descriptor()
	if err != nil {
		unix.Close(fd)
		return err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(bell)}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, bell, &event); err != nil {
		unix.Close(fd)
		return err
	}
	p.epoll = fd
	return nil
}

// close releases the epoll descriptor.
func (p *poller) close() {
	if p.epoll >= 0 {
		unix.Close(p.epoll)
		p.epoll = -1
	}
}

// epollWait is epoll_pwait2, which knows nanoseconds, or on kernels before 5.11 ppoll on the epoll
// descriptor itself.
func (p *poller) epollWait(left int64) (int, error) {
	if left > 0 && p.sys.Fallbacks.PollEpoll {
		polls := p.sys.waiter.polls[:1]
		polls[0] = unix.PollFd{Fd: int32(p.epoll), Events: unix.POLLIN}
		if n, err := unix.Ppoll(polls, timespec(left), nil); err != nil || n == 0 {
			return 0, err
		}
		left = 0
	}
	if left == 0 {
		n, _, err := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events[0])),
			uintptr(len(p.events)), 0, 0, 0)
		if err != 0 {
			return 0, err
		}
		return int(n), nil
	}
	var wait *timespec64
	if left != Forever {
		p.wait = timespec64{left / 1e9, left % 1e9}
		wait = &p.wait
	}
	n, _, err := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(unsafe.Pointer(wait)), 0, 0)
	switch err {
	case 0:
		return int(n), nil
	case unix.ENOSYS, unix.EPERM:
		p.sys.Fallbacks.PollEpoll = true
		return 0, nil
	}
	return 0, err
}
