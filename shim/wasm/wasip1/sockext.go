package wasip1

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// The functions here and in the other files named after sockets of the extension are those that WasmEdge
// adds to the module, as its guests (the crate wasmedge_wasi_socket and C libraries) import them. They
// come in two generations, some with different parameters under the same name; InstantiateFor looks at
// what the guest imports.

// Address families and socket types of the extension.
const (
	familyUnspec uint8 = 0
	familyInet4  uint8 = 1
	familyInet6  uint8 = 2

	socketAny      uint8 = 0
	socketDatagram uint8 = 1
	socketStream   uint8 = 2
)

// sizeStorage is the size of an address that says its family: two bytes of family, then the address.
const sizeStorage = 128

// addressBuffer returns the buffer that an address record {pointer, size} points to.
func addressBuffer(mem api.Memory, at uint64) ([]byte, errno) {
	head, e := record(mem, at, 8)
	if e != success {
		return nil, e
	}
	size := binary.LittleEndian.Uint32(head[4:])
	switch size {
	case 4, 16, sizeStorage:
		return record(mem, uint64(binary.LittleEndian.Uint32(head)), int(size))
	}
	return nil, einval
}

// address reads an address and a port of the guest.
func address(mem api.Memory, at, port uint64) (netip.AddrPort, errno) {
	b, e := addressBuffer(mem, at)
	if e != success {
		return netip.AddrPort{}, e
	}
	if len(b) == sizeStorage {
		switch binary.LittleEndian.Uint16(b) {
		case uint16(familyInet4):
			b = b[2:6]
		case uint16(familyInet6):
			b = b[2:18]
		default:
			return netip.AddrPort{}, eafnosupport
		}
	}
	if uint32(port) > 0xffff {
		return netip.AddrPort{}, einval
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip, uint16(port)), success
}

// putAddress writes an address where the guest has room for it, with its family if the room is that
// large. It returns the family.
func putAddress(b []byte, ip netip.Addr) (uint8, errno) {
	family := familyInet6
	if ip.Is4() {
		family = familyInet4
	}
	if len(b) == sizeStorage {
		put16(b, uint16(family))
		b = b[2:]
	}
	raw := ip.AsSlice()
	if len(b) < len(raw) {
		return family, enomem
	}
	copy(b, raw)
	return family, success
}

// domain is the address family of a socket.
func (f *file) domain() int {
	if f.family == 0 {
		f.family, _ = unix.GetsockoptInt(f.host, unix.SOL_SOCKET, unix.SO_DOMAIN)
	}
	return f.family
}

// setName puts an address into h.name as a socket of this domain understands it, and returns its size.
func (h *Host) setName(domain int, to netip.AddrPort) (uint32, errno) {
	ip := to.Addr()
	switch domain {
	case unix.AF_INET:
		if ip = ip.Unmap(); !ip.Is4() {
			return 0, eafnosupport
		}
		name := (*unix.RawSockaddrInet4)(unsafe.Pointer(&h.name))
		*name = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip.As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], to.Port())
		return unix.SizeofSockaddrInet4, success
	case unix.AF_INET6:
		name := (*unix.RawSockaddrInet6)(unsafe.Pointer(&h.name))
		*name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: ip.As16()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], to.Port())
		return unix.SizeofSockaddrInet6, success
	}
	return 0, eafnosupport
}

// getName reads the address in h.name.
func (h *Host) getName() netip.AddrPort {
	var ip netip.Addr
	switch h.name.Addr.Family {
	case unix.AF_INET:
		ip = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&h.name)).Addr)
	case unix.AF_INET6:
		ip = netip.AddrFrom16((*unix.RawSockaddrInet6)(unsafe.Pointer(&h.name)).Addr)
	default:
		return netip.AddrPort{}
	}
	// Both kinds have their port at the same place.
	port := (*unix.RawSockaddrInet4)(unsafe.Pointer(&h.name)).Port
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&port))[:]))
}

// named makes a system call that takes a descriptor and the address in h.name.
func (h *Host) named(call uintptr, fd int, size uint32) error {
	_, _, err := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&h.name)), uintptr(size))
	if err != 0 {
		return err
	}
	return nil
}

// sockOpen makes a socket. The kernel's is non-blocking; whether the guest's is, its flags say.
func sockOpen(h *Host, mem api.Memory, p []uint64) errno {
	out, e := record(mem, p[2], 4)
	if e != success {
		return e
	}
	f := &file{owned: true, kind: kindSocket, base: rightsSocket, inheriting: rightsSocket}
	switch uint32(p[0]) {
	case uint32(familyInet4):
		f.family = unix.AF_INET
	case uint32(familyInet6):
		f.family = unix.AF_INET6
	default:
		return eafnosupport
	}
	kind := 0
	switch uint32(p[1]) {
	case uint32(socketDatagram):
		kind, f.filetype = unix.SOCK_DGRAM, typeSocketDgram
	case uint32(socketStream):
		kind, f.filetype = unix.SOCK_STREAM, typeSocketStream
	default:
		return einval
	}
	var err error
	if f.host, err = unix.Socket(f.family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return toErrno(err)
	}
	if kind == unix.SOCK_STREAM {
		_ = unix.SetsockoptInt(f.host, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	number, e := h.add(f)
	if e != success {
		h.closeFile(f)
		return e
	}
	put32(out, number)
	return success
}

func sockBind(h *Host, mem api.Memory, p []uint64) errno {
	f, size, e := h.nameSocket(mem, p)
	if e != success {
		return e
	}
	return toErrno(h.named(unix.SYS_BIND, f.host, size))
}

// nameSocket reads what bind and connect are given: a socket, and an address, which goes into h.name and has this size.
func (h *Host) nameSocket(mem api.Memory, p []uint64) (f *file, size uint32, e errno) {
	if f, e = h.socketFile(p[0], 0); e != success {
		return nil, 0, e
	}
	to, e := address(mem, p[1], p[2])
	if e != success {
		return nil, 0, e
	}
	size, e = h.setName(f.domain(), to)
	return f, size, e
}

// sockListen makes a listener, which Interrupt knows of from then on.
func sockListen(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.socketFile(p[0], 0)
	if e != success {
		return e
	}
	if err := unix.Listen(f.host, int(int32(p[1]))); err != nil {
		return toErrno(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f.kind, f.base, f.inheriting = kindListener, rightsListener, rightsSocket
	h.listeners[f] = !h.interrupted.Load()
	if h.interrupted.Load() {
		f.hush()
	}
	return success
}

func sockConnect(h *Host, mem api.Memory, p []uint64) errno {
	f, size, e := h.nameSocket(mem, p)
	if e != success {
		return e
	}
	return h.connect(f, size)
}

// connect connects a non-blocking socket of the kernel to the address in h.name. A guest that blocks
// waits for the outcome.
func (h *Host) connect(f *file, size uint32) errno {
	err := h.named(unix.SYS_CONNECT, f.host, size)
	if err != unix.EINPROGRESS && err != unix.EINTR || f.flags&flagNonblock != 0 {
		return toErrno(err)
	}
	switch e := h.block(f, unix.POLLOUT); e {
	case success:
	case eagain:
		return etimedout
	default:
		return e
	}
	number, err := unix.GetsockoptInt(f.host, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || number != 0 {
		return max(toErrno(err), toErrno(unix.Errno(number)))
	}
	// The kernel tells the outcome to one more connect; a later one of the guest's is to be EISCONN.
	if err := h.named(unix.SYS_CONNECT, f.host, size); err != unix.EISCONN {
		return toErrno(err)
	}
	return success
}

// sockGetlocaladdr and sockGetpeeraddr are the first generation: an address, 4 or 6 for its family, and
// a port.
func sockGetlocaladdr(h *Host, mem api.Memory, p []uint64) errno {
	return h.whoIs(unix.SYS_GETSOCKNAME, mem, p[0], p[1], p[3], func() ([]byte, errno) { return record(mem, p[2], 4) })
}

func sockGetpeeraddr(h *Host, mem api.Memory, p []uint64) errno {
	return h.whoIs(unix.SYS_GETPEERNAME, mem, p[0], p[1], p[3], func() ([]byte, errno) { return record(mem, p[2], 4) })
}

// The second generation has the family in the address.
func sockGetlocaladdrV2(h *Host, mem api.Memory, p []uint64) errno {
	return h.whoIs(unix.SYS_GETSOCKNAME, mem, p[0], p[1], p[2], nil)
}

func sockGetpeeraddrV2(h *Host, mem api.Memory, p []uint64) errno {
	return h.whoIs(unix.SYS_GETPEERNAME, mem, p[0], p[1], p[2], nil)
}

func (h *Host) whoIs(call uintptr, mem api.Memory, fd, at, port uint64, family func() ([]byte, errno)) errno {
	f, e := h.socketFile(fd, 0)
	if e != success {
		return e
	}
	b, e := addressBuffer(mem, at)
	if e != success {
		return e
	}
	out, e := record(mem, port, 4)
	if e != success {
		return e
	}
	var kind []byte
	if family != nil {
		if kind, e = family(); e != success {
			return e
		}
	} else if len(b) != sizeStorage {
		return einval
	}
	size := uint32(unix.SizeofSockaddrAny)
	_, _, err := unix.Syscall(call, uintptr(f.host), uintptr(unsafe.Pointer(&h.name)), uintptr(unsafe.Pointer(&size)))
	if err != 0 {
		return toErrno(err)
	}
	name := h.getName()
	number, e := putAddress(b, name.Addr())
	if e != success {
		return e
	}
	if kind != nil {
		put32(kind, map[uint8]uint32{familyInet4: 4, familyInet6: 6}[number])
	}
	put32(out, uint32(name.Port()))
	return success
}
