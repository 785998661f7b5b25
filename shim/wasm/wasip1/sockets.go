package wasip1

import (
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// receive is recvmsg, waiting in await rather than in the kernel's receive so that Interrupt is heard.
// The sender's address is put into h.name if there is room given for it.
func (h *Host) receive(f *file, iovs []unix.Iovec, flags int, room uint32) (uint32, int, errno) {
	if len(iovs) == 0 && f.filetype == typeSocketStream {
		return 0, 0, success
	}
	for {
		n, out, e := h.message(unix.SYS_RECVMSG, f.host, iovs, flags|unix.MSG_DONTWAIT, room)
		if e != eagain || f.flags&flagNonblock != 0 {
			return n, out, e
		}
		if e := h.block(f, unix.POLLIN); e != success {
			return 0, 0, e
		}
	}
}

// receiveAll receives until the buffers are full, the stream ends or fails.
func (h *Host) receiveAll(f *file, iovs []unix.Iovec) (uint32, int, errno) {
	var done uint32
	for len(iovs) > 0 {
		n, out, e := h.receive(f, iovs, 0, 0)
		if n == 0 || e != success {
			if done > 0 {
				e = success
			}
			return done, out, e
		}
		done += n
		iovs = advance(iovs, n)
	}
	return done, 0, success
}

// send is sendmsg, to the address in the first size bytes of h.name if there is one. It waits when the
// socket's buffer is full, and Interrupt does not end that: an answer under way is worth its grace
// period.
func (h *Host) send(f *file, iovs []unix.Iovec, size uint32) (uint32, errno) {
	var done uint32
	for {
		n, _, e := h.message(unix.SYS_SENDMSG, f.host, iovs, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, size)
		done += n
		iovs = advance(iovs, n)
		if e == success && len(iovs) > 0 && n > 0 && f.flags&flagNonblock == 0 {
			continue
		}
		if e == eagain && f.flags&flagNonblock == 0 {
			if e = h.drain(f); e == success {
				continue
			}
		}
		if done > 0 {
			e = success
		}
		return done, e
	}
}

// message is recvmsg or sendmsg, with the first size bytes of h.name for the address.
func (h *Host) message(call uintptr, fd int, iovs []unix.Iovec, flags int, size uint32) (uint32, int, errno) {
	h.msg = unix.Msghdr{}
	if len(iovs) > 0 {
		h.msg.Iov = &iovs[0]
		h.msg.SetIovlen(len(iovs))
	}
	if size > 0 {
		h.msg.Name, h.msg.Namelen = (*byte)(unsafe.Pointer(&h.name)), size
	}
	for {
		n, _, err := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&h.msg)), uintptr(flags))
		switch err {
		case 0:
			return uint32(n), int(h.msg.Flags), success
		case unix.EINTR:
		default:
			return 0, 0, toErrno(err)
		}
	}
}

// socketFile returns the socket of a guest's descriptor; other files are ENOTSOCK.
func (h *Host) socketFile(fd uint64, need rights) (*file, errno) {
	f, e := h.get(fd, 0)
	if e != success {
		return nil, e
	}
	if !f.socket() {
		return nil, enotsock
	}
	return f, f.check(need)
}

func sockRecv(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.socketFile(p[0], rightFdRead)
	if e != success {
		return e
	}
	size, e := record(mem, p[4], 4)
	if e != success {
		return e
	}
	result, e := record(mem, p[5], 2)
	if e != success {
		return e
	}
	iovs, e := h.vectors(mem, p[1], p[2])
	if e != success {
		return e
	}
	n, out, e := h.receiveAsked(f, iovs, p[3], 0)
	h.release()
	put32(size, n)
	put16(result, out)
	return h.ended(f, e)
}

// receiveAsked receives as a guest's flags say, and gives the flags of the answer.
func (h *Host) receiveAsked(f *file, iovs []unix.Iovec, asked uint64, room uint32) (n uint32, result uint16, e errno) {
	if uint32(asked)&^uint32(recvPeek|recvWaitAll) != 0 {
		return 0, 0, einval
	}
	var out int
	peek, all := uint16(asked)&recvPeek != 0, uint16(asked)&recvWaitAll != 0
	switch {
	case all && !peek && f.flags&flagNonblock == 0 && f.filetype == typeSocketStream:
		n, out, e = h.receiveAll(f, iovs)
	case all && peek && f.flags&flagNonblock == 0 && f.filetype == typeSocketStream && !f.stdio:
		n, out, e = h.peekAll(f, iovs)
	case peek:
		n, out, e = h.receive(f, iovs, unix.MSG_PEEK, room)
	default:
		n, out, e = h.receive(f, iovs, 0, room)
	}
	if out&unix.MSG_TRUNC != 0 {
		result = recvTruncated
	}
	return n, result, e
}

// peekAll waits for as much as the buffers hold without taking it. Only the kernel can wait for data
// that it is to keep; it does so only on a blocking socket, and does not hear Interrupt.
func (h *Host) peekAll(f *file, iovs []unix.Iovec) (uint32, int, errno) {
	if err := unix.SetNonblock(f.host, false); err != nil {
		return 0, 0, toErrno(err)
	}
	n, out, e := h.message(unix.SYS_RECVMSG, f.host, iovs, unix.MSG_PEEK|unix.MSG_WAITALL, 0)
	_ = unix.SetNonblock(f.host, true)
	return n, out, e
}

func sockSend(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.socketFile(p[0], rightFdWrite)
	if e != success {
		return e
	}
	size, e := record(mem, p[4], 4)
	if e != success {
		return e
	}
	if uint32(p[3]) != 0 {
		return einval // no flag is defined
	}
	iovs, e := h.vectors(mem, p[1], p[2])
	if e != success {
		return e
	}
	n, e := h.send(f, iovs, 0)
	h.release()
	put32(size, n)
	return e
}

func sockShutdown(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.socketFile(p[0], rightSockShutdown)
	if e != success {
		return e
	}
	how := 0
	switch uint32(p[1]) {
	case uint32(shutRead):
		how = unix.SHUT_RD
	case uint32(shutWrite):
		how = unix.SHUT_WR
	case uint32(shutRead | shutWrite):
		how = unix.SHUT_RDWR
	default:
		return einval
	}
	return toErrno(unix.Shutdown(f.host, how))
}

func sockAccept(h *Host, mem api.Memory, p []uint64) errno {
	if uint32(p[1])&^uint32(flagNonblock) != 0 {
		return einval
	}
	return h.acceptInto(mem, p[0], uint16(p[1]), p[2])
}

// acceptInto accepts a connection and writes its descriptor to guest memory.
func (h *Host) acceptInto(mem api.Memory, fd uint64, flags uint16, result uint64) errno {
	f, e := h.socketFile(fd, rightSockAccept)
	if e != success {
		return e
	}
	out, e := record(mem, result, 4)
	if e != success {
		return e
	}
	conn, e := h.accept(f)
	if e != success {
		return e
	}
	number, e := h.add(&file{
		host: conn, owned: true, kind: kindSocket, filetype: f.filetype, flags: flags,
		base: f.inheriting & rightsSocket, inheriting: f.inheriting, family: f.family,
	})
	if e != success {
		unix.Close(conn)
		return e
	}
	put32(out, number)
	return success
}

// accept takes a connection from a listener. After Interrupt it hands out what had already arrived and
// then answers EINVAL, the kernel's own word for a socket that no longer listens: Go's http.Serve ends
// with it, where it would try again after ECONNABORTED.
func (h *Host) accept(f *file) (int, errno) {
	for {
		if conn, ok := h.saved(f); ok {
			return conn, success
		}
		conn, _, err := unix.Accept4(f.host, unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			return conn, success
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EAGAIN:
		case unix.EINVAL:
			if conn, ok := h.saved(f); ok {
				return conn, success
			}
			return -1, einval
		default:
			return -1, toErrno(err)
		}
		switch e := h.block(f, unix.POLLIN); e {
		case success:
		case ecanceled:
			if h.isListening(f) {
				return -1, e
			}
		default:
			return -1, e
		}
	}
}

// saved returns a connection that Interrupt took from the kernel's queue.
func (h *Host) saved(f *file) (int, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(f.backlog) == 0 {
		return -1, false
	}
	conn := f.backlog[0]
	f.backlog = f.backlog[1:]
	return conn, true
}

// isListening reports whether Interrupt has left f alone.
func (h *Host) isListening(f *file) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listeners[f]
}

// hush makes a listener refuse connections. Those that the kernel has already accepted on the guest's
// behalf are saved first: their clients think themselves connected. Called with mu held.
func (f *file) hush() {
	for {
		conn, _, err := unix.Accept4(f.host, unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			break
		}
		f.backlog = append(f.backlog, conn)
	}
	// On a listening TCP socket this ends listening without giving up the descriptor, on which the
	// guest may be waiting.
	_ = unix.Shutdown(f.host, unix.SHUT_RD)
}
