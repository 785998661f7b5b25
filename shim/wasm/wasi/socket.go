package wasi

import (
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is a socket of the guest.
type Socket struct {
	File

	// How long blocking calls wait, 0 for ever. The kernel's own timeouts would not count, because
	// every wait is in poll.
	ReceiveTimeout, SendTimeout time.Duration

	family  int   // address family, 0 if not yet known
	backlog []int // a listener's connections that Interrupt saved, guarded by System.mu
}

// newSocket makes a Socket of a host descriptor of this type (SOCK_DGRAM, ...).
func (s *System) newSocket(fd int, kind Kind, socketType int) *Socket {
	filetype := TypeSocketStream
	if socketType == unix.SOCK_DGRAM {
		filetype = TypeSocketDatagram
	}
	sock := &Socket{File: File{sys: s, host: fd, kind: kind, filetype: filetype}}
	sock.socket = sock
	return sock
}

// Socket makes a socket of this address family (AF_INET, AF_INET6) and type (SOCK_STREAM,
// SOCK_DGRAM).
func (s *System) Socket(family, socketType int) (*Socket, error) {
	fd, err := unix.Socket(family, socketType|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if socketType == unix.SOCK_STREAM {
		setNoDelay(fd)
	}
	sock := s.newSocket(fd, KindSocket, socketType)
	sock.owned, sock.family = true, family
	return sock, nil
}

// setNoDelay sends small writes at once. Connections inherit it. WASI gives a guest no way to ask
// for it, and every server has it on.
func setNoDelay(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// SetInt sets an option of any level that is a number (setsockopt(2)).
func (s *Socket) SetInt(level, name, value int) error {
	return unix.SetsockoptInt(s.host, level, name, value)
}

// Int reads an option of any level that is a number.
func (s *Socket) Int(level, name int) (int, error) { return unix.GetsockoptInt(s.host, level, name) }

// Failure takes the error that an operation in the background ended with, a connect for instance.
func (s *Socket) Failure() error {
	number, err := s.Int(unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && number != 0 {
		err = unix.Errno(number)
	}
	return err
}

// Disconnect has a datagram socket take from and send to any address again.
func (s *Socket) Disconnect() error {
	s.sys.name = sockaddr{}
	s.sys.name.raw.Addr.Family = unix.AF_UNSPEC
	return s.sys.name.call(unix.SYS_CONNECT, s.host, unix.SizeofSockaddrInet6)
}

// Family is the address family (AF_INET, AF_INET6), 0 if it cannot be told.
func (s *Socket) Family() int {
	if s.family == 0 {
		s.family, _ = unix.GetsockoptInt(s.host, unix.SOL_SOCKET, unix.SO_DOMAIN)
	}
	return s.family
}

// Bind gives the socket an address. An IPv4 address fits a socket of IPv6 too.
func (s *Socket) Bind(to netip.AddrPort) error {
	size, err := s.sys.name.set(s.Family(), to)
	if err != nil {
		return err
	}
	return s.sys.name.call(unix.SYS_BIND, s.host, size)
}

// Connect connects the socket. A guest that blocks waits for the outcome.
func (s *Socket) Connect(to netip.AddrPort) error {
	name := &s.sys.name
	size, err := name.set(s.Family(), to)
	if err != nil {
		return err
	}
	err = name.call(unix.SYS_CONNECT, s.host, size)
	if err != unix.EINPROGRESS && err != unix.EINTR || s.flags&Nonblock != 0 {
		return err
	}
	switch err := s.sys.waiter.block(&s.File, unix.POLLOUT); err {
	case nil:
	case unix.EAGAIN:
		return unix.ETIMEDOUT
	default:
		return err
	}
	if err := s.Failure(); err != nil {
		return err
	}
	// The kernel tells the outcome to one more connect; a later one of the guest's is to be
	// EISCONN.
	if err := name.call(unix.SYS_CONNECT, s.host, size); err != unix.EISCONN {
		return err
	}
	return nil
}

// LocalAddr is the socket's own address, PeerAddr that of its other end; the zero one where that is
// no address of IP.
func (s *Socket) LocalAddr() (netip.AddrPort, error) {
	return s.sys.name.ask(unix.SYS_GETSOCKNAME, s.host)
}

// PeerAddr is the address of the socket's other end.
func (s *Socket) PeerAddr() (netip.AddrPort, error) {
	return s.sys.name.ask(unix.SYS_GETPEERNAME, s.host)
}

// Shutdown ends a direction of a connection (SHUT_RD, SHUT_WR, SHUT_RDWR).
func (s *Socket) Shutdown(how int) error { return unix.Shutdown(s.host, how) }

// SetOption sets an option of SOL_SOCKET, in the kernel's form.
func (s *Socket) SetOption(name int, value []byte) error {
	return unix.SetsockoptString(s.host, unix.SOL_SOCKET, name, string(value))
}

// Option reads an option of SOL_SOCKET, in the kernel's form, into value and returns its size.
func (s *Socket) Option(name int, value []byte) (int, error) {
	size := uint32(len(value))
	_, _, err := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.host), unix.SOL_SOCKET, uintptr(name),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	return int(size), result(err)
}
