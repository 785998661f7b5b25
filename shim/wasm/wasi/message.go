package wasi

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReceiveFlags say how Receive receives.
type ReceiveFlags uint8

const (
	Peek    ReceiveFlags = 1 << iota // leave what is received where it is
	WaitAll                          // wait until the buffers are full
)

// Receive receives a message, or what a stream has, and reports whether the rest of a message was
// cut off.
func (s *Socket) Receive(b Buffers, how ReceiveFlags) (n int, truncated bool, err error) {
	n, truncated, err = s.receiveAsked(b, how, 0)
	return n, truncated, s.ended(err)
}

// ReceiveFrom is Receive that tells the sender too; a stream's bytes have none.
func (s *Socket) ReceiveFrom(b Buffers, how ReceiveFlags) (n int, truncated bool, from netip.AddrPort, err error) {
	s.sys.name = sockaddr{}
	if n, truncated, err = s.receiveAsked(b, how, unix.SizeofSockaddrAny); err != nil {
		return n, truncated, from, err
	}
	return n, truncated, s.sys.name.get(), nil
}

// Send sends a message or bytes of a stream. n bytes have been sent also where there is an error.
func (s *Socket) Send(b Buffers) (n int, err error) { return s.send(b, 0) }

// SendTo sends a message to an address.
func (s *Socket) SendTo(b Buffers, to netip.AddrPort) (n int, err error) {
	size, err := s.sys.name.set(s.Family(), to)
	if err != nil {
		return 0, err
	}
	return s.send(b, size)
}

// receiveAsked receives as flags say. room is how much of the scratch address is for the sender's.
func (s *Socket) receiveAsked(b Buffers, how ReceiveFlags, room uint32) (n int, truncated bool, err error) {
	var out int
	wait := how&WaitAll != 0 && s.flags&Nonblock == 0 && s.filetype == TypeSocketStream
	peek := how&Peek != 0
	switch {
	case wait && !peek:
		n, out, err = s.receiveAll(b)
	case wait && !s.stdio:
		n, out, err = s.peekAll(b)
	case peek:
		n, out, err = s.receive(b, unix.MSG_PEEK, room)
	default:
		n, out, err = s.receive(b, 0, room)
	}
	return n, out&unix.MSG_TRUNC != 0, err
}

// receive is recvmsg, waiting in poll rather than in the kernel's receive so that Interrupt is
// heard.
func (s *Socket) receive(b Buffers, flags int, room uint32) (n, out int, err error) {
	if len(b) == 0 && s.filetype == TypeSocketStream {
		return 0, 0, nil
	}
	for {
		n, out, err := s.sys.message(unix.SYS_RECVMSG, s.host, b, flags|unix.MSG_DONTWAIT, room)
		if err != unix.EAGAIN || s.flags&Nonblock != 0 {
			return n, out, err
		}
		if err := s.sys.waiter.block(&s.File, unix.POLLIN); err != nil {
			return 0, 0, err
		}
	}
}

// receiveAll receives until the buffers are full, the stream ends or fails.
func (s *Socket) receiveAll(b Buffers) (done, out int, err error) {
	for len(b) > 0 {
		n, out, err := s.receive(b, 0, 0)
		if n == 0 || err != nil {
			if done > 0 {
				err = nil
			}
			return done, out, err
		}
		done += n
		b = b.advance(n)
	}
	return done, 0, nil
}

// peekAll waits for as much as the buffers hold without taking it. Only the kernel can wait for
// data that it is to keep; it does so only on a blocking socket, and does not hear Interrupt.
func (s *Socket) peekAll(b Buffers) (n, out int, err error) {
	if err := unix.SetNonblock(s.host, false); err != nil {
		return 0, 0, err
	}
	n, out, err = s.sys.message(unix.SYS_RECVMSG, s.host, b, unix.MSG_PEEK|unix.MSG_WAITALL, 0)
	_ = unix.SetNonblock(s.host, true)
	return n, out, err
}

// send is sendmsg, to the address in the first size bytes of the scratch address if there is one.
// It waits when the socket's buffer is full, and Interrupt does not end that: an answer in flight
// is worth its grace period.
func (s *Socket) send(b Buffers, size uint32) (done int, err error) {
	for {
		n, _, err := s.sys.message(unix.SYS_SENDMSG, s.host, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, size)
		done += n
		b = b.advance(n)
		if err == nil && len(b) > 0 && n > 0 && s.flags&Nonblock == 0 {
			continue
		}
		if err == unix.EAGAIN && s.flags&Nonblock == 0 {
			if err = s.sys.waiter.drain(&s.File); err == nil {
				continue
			}
		}
		if done > 0 {
			err = nil
		}
		return done, err
	}
}

// message is recvmsg or sendmsg, with the first size bytes of the scratch address.
func (s *System) message(call uintptr, fd int, b Buffers, flags int, size uint32) (n, out int, err error) {
	s.msg = unix.Msghdr{}
	if len(b) > 0 {
		s.msg.Iov = &b[0]
		s.msg.SetIovlen(len(b))
	}
	if size > 0 {
		s.msg.Name, s.msg.Namelen = (*byte)(s.name.pointer()), size
	}
	for {
		n, _, err := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&s.msg)), uintptr(flags))
		switch err {
		case 0:
			return int(n), int(s.msg.Flags), nil
		case unix.EINTR:
		default:
			return 0, 0, err
		}
	}
}
