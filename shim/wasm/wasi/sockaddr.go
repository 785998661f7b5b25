package wasi

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockaddr is an address in the kernel's form.
type sockaddr struct{ raw unix.RawSockaddrAny }

// pointer is what system calls take.
func (a *sockaddr) pointer() unsafe.Pointer { return unsafe.Pointer(&a.raw) }

// set puts an address in, as a socket of this domain understands it, and returns its size.
func (a *sockaddr) set(domain int, to netip.AddrPort) (uint32, error) {
	ip := to.Addr()
	switch domain {
	case unix.AF_INET:
		if ip = ip.Unmap(); !ip.Is4() {
			return 0, unix.EAFNOSUPPORT
		}
		name := (*unix.RawSockaddrInet4)(a.pointer())
		*name = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip.As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], to.Port())
		return unix.SizeofSockaddrInet4, nil
	case unix.AF_INET6:
		name := (*unix.RawSockaddrInet6)(a.pointer())
		*name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: ip.As16()}
		name.Scope_id = Scope(ip)
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], to.Port())
		return unix.SizeofSockaddrInet6, nil
	}
	return 0, unix.EAFNOSUPPORT
}

// get reads the address, the zero one if it is not one of IP.
func (a *sockaddr) get() netip.AddrPort {
	var ip netip.Addr
	switch a.raw.Addr.Family {
	case unix.AF_INET:
		ip = netip.AddrFrom4((*unix.RawSockaddrInet4)(a.pointer()).Addr)
	case unix.AF_INET6:
		name := (*unix.RawSockaddrInet6)(a.pointer())
		ip = Scoped(netip.AddrFrom16(name.Addr), name.Scope_id)
	default:
		return netip.AddrPort{}
	}
	// Both kinds have their port at the same place.
	port := (*unix.RawSockaddrInet4)(a.pointer()).Port
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&port))[:]))
}

// call makes a system call that takes a descriptor and the first size bytes of the address.
func (a *sockaddr) call(number uintptr, fd int, size uint32) error {
	_, _, err := unix.Syscall(number, uintptr(fd), uintptr(a.pointer()), uintptr(size))
	return result(err)
}

// ask makes a system call that answers with an address.
func (a *sockaddr) ask(number uintptr, fd int) (netip.AddrPort, error) {
	size := uint32(unix.SizeofSockaddrAny)
	_, _, err := unix.Syscall(number, uintptr(fd), uintptr(a.pointer()), uintptr(unsafe.Pointer(&size)))
	if err != 0 {
		return netip.AddrPort{}, err
	}
	return a.get(), nil
}

// Scope is the number of the interface that an IPv6 address is of, which is its zone; 0 for none.
func Scope(ip netip.Addr) uint32 {
	n, err := strconv.ParseUint(ip.Zone(), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// Scoped is an IPv6 address of an interface, see Scope.
func Scoped(ip netip.Addr, scope uint32) netip.Addr {
	if scope != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(scope), 10))
	}
	return ip
}
