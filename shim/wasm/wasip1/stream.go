package wasip1

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pipeBuf is how much room a pipe has at least when it says that it has room (PIPE_BUF).
const pipeBuf = 4096

// wake is why await returned.
type wake uint8

const (
	wakeReady     wake = iota // the descriptor is ready, or broken
	wakeTimeout               // the time is over
	wakeInterrupt             // Host.Interrupt
)

// await sleeps in the kernel until fd is ready for events, or wait is over (nil: forever). A fd of -1
// only sleeps. An Interrupt since the last wait ends it at once, once.
func (h *Host) await(fd int, events int16, wait *unix.Timespec) (wake, errno) {
	h.polls = [2]unix.PollFd{{Fd: int32(h.bell), Events: unix.POLLIN}, {Fd: int32(fd), Events: events}}
	n, err := unix.Ppoll(h.polls[:], wait, nil)
	switch {
	case err == unix.EINTR:
		return wakeTimeout, eintr
	case err != nil:
		return wakeTimeout, toErrno(err)
	case n == 0:
		return wakeTimeout, success
	case h.polls[1].Revents != 0:
		return wakeReady, success
	}
	h.muffle()
	return wakeInterrupt, success
}

// muffle takes the bell's ring.
func (h *Host) muffle() {
	var b [8]byte
	unix.Read(h.bell, b[:])
}

// block waits for one descriptor. It answers EAGAIN in non-blocking mode and after the guest's own
// timeout, and ECANCELED when it was interrupted.
func (h *Host) block(f *file, events int16) errno {
	var none unix.Timespec
	wait := &none
	blocking := f.flags&flagNonblock == 0 && !(f.stdin && h.interrupted.Load())
	if blocking {
		wait = f.patience(events)
	}
	for {
		why, e := h.await(f.host, events, wait)
		switch {
		case e == eintr:
		case e != success:
			return e
		case why == wakeReady:
			return success
		case why == wakeInterrupt && blocking:
			return ecanceled
		case why == wakeTimeout:
			return eagain
		}
	}
}

// read is readv on any kind of file. The standard input ends with an Interrupt, once what lies in it
// has been read.
func (h *Host) read(f *file, iovs []unix.Iovec) (uint32, errno) {
	switch f.kind {
	case kindNull:
		return 0, success
	case kindSocket, kindListener:
		n, _, e := h.receive(f, iovs, 0, 0)
		return n, h.ended(f, e)
	case kindStream:
		for len(iovs) > 0 {
			if e := h.block(f, unix.POLLIN); e != success {
				return 0, h.ended(f, e)
			}
			n, e := transfer(unix.SYS_READ, unix.SYS_READV, f.host, iovs)
			if e != eagain || f.flags&flagNonblock != 0 {
				return n, e
			}
			// Another reader of the same pipe was faster.
		}
		return 0, success
	}
	return transfer(unix.SYS_READ, unix.SYS_READV, f.host, iovs)
}

// ended turns "nothing there" into the end of the input for the standard input after an Interrupt.
func (h *Host) ended(f *file, e errno) errno {
	if (e == eagain || e == ecanceled) && f.stdin && h.interrupted.Load() {
		return success
	}
	return e
}

// write is writev on any kind of file.
func (h *Host) write(f *file, iovs []unix.Iovec) (uint32, errno) {
	switch f.kind {
	case kindNull:
		return total(iovs), success
	case kindSocket, kindListener:
		return h.send(f, iovs, 0)
	case kindStream:
		return h.writeStream(f, iovs)
	}
	n, e := transfer(unix.SYS_WRITE, unix.SYS_WRITEV, f.host, iovs)
	if e == success && f.flags&flagsSync != f.hostSync {
		e = f.settle()
	}
	return n, e
}

// writeStream writes to a pipe or a terminal, whose own non-blocking mode is not ours to change and not
// ours to rely on.
func (h *Host) writeStream(f *file, iovs []unix.Iovec) (uint32, errno) {
	if f.flags&flagNonblock != 0 {
		var none unix.Timespec
		h.polls[0] = unix.PollFd{Fd: int32(f.host), Events: unix.POLLOUT}
		n, err := unix.Ppoll(h.polls[:1], &none, nil)
		if err != nil || n == 0 {
			return 0, eagain
		}
		iovs = shorten(iovs, pipeBuf)
	}
	for {
		n, e := transfer(unix.SYS_WRITE, unix.SYS_WRITEV, f.host, iovs)
		if e != eagain || f.flags&flagNonblock != 0 {
			return n, e
		}
		if e := h.drain(f); e != success {
			return 0, e
		}
	}
}

// drain waits until there is room to write, deaf to Interrupt.
func (h *Host) drain(f *file) errno {
	for {
		h.polls[0] = unix.PollFd{Fd: int32(f.host), Events: unix.POLLOUT}
		n, err := unix.Ppoll(h.polls[:1], f.patience(unix.POLLOUT), nil)
		switch {
		case err == unix.EINTR:
		case err == nil && n == 0:
			return eagain
		default:
			return toErrno(err)
		}
	}
}

// patience is how long a blocking call waits for events: forever, unless the guest has set a timeout.
func (f *file) patience(events int16) *unix.Timespec {
	limit := f.receiveLimit
	if events&unix.POLLOUT != 0 {
		limit = f.sendLimit
	}
	if limit == 0 {
		return nil
	}
	t := unix.NsecToTimespec(int64(limit))
	return &t
}

// shorten cuts a list of buffers to at most limit bytes.
func shorten(iovs []unix.Iovec, limit int) []unix.Iovec {
	for i := range iovs {
		if size := int(iovs[i].Len); size >= limit {
			iovs[i].SetLen(limit)
			return iovs[:i+1]
		}
		limit -= int(iovs[i].Len)
	}
	return iovs
}

// advance drops n bytes from the front of a list of buffers.
func advance(iovs []unix.Iovec, n uint32) []unix.Iovec {
	for len(iovs) > 0 && uint64(n) >= uint64(iovs[0].Len) {
		n -= uint32(iovs[0].Len)
		iovs = iovs[1:]
	}
	if len(iovs) > 0 && n > 0 {
		size := int(iovs[0].Len) - int(n)
		iovs[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(iovs[0].Base), n))
		iovs[0].SetLen(size)
	}
	return iovs
}

// total is the number of bytes in a list of buffers, cut to what a result can hold.
func total(iovs []unix.Iovec) uint32 {
	var sum uint64
	for i := range iovs {
		sum += uint64(iovs[i].Len)
	}
	return uint32(min(sum, maxTransfer))
}
