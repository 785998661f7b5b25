// Package address reads, writes and checks the addresses of wasi:sockets@0.2.
package address

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// The layout of an ip-socket-address in memory, in bytes.
const (
	Size  = 32
	Align = 4
)

// FromFlat reads an ip-socket-address from its 12 flat parameters. The first, its case, is 0 or 1.
func FromFlat(p []uint64) netip.AddrPort {
	port := uint16(p[1])
	if uint32(p[0]) == V4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(p[2]), byte(p[3]), byte(p[4]), byte(p[5])}), port)
	}
	var ip [16]byte
	for i := range 8 {
		binary.BigEndian.PutUint16(ip[2*i:], uint16(p[3+i]))
	}
	return netip.AddrPortFrom(wasi.Scoped(netip.AddrFrom16(ip), uint32(p[11])), port)
}

// FromMemory reads an ip-socket-address from Size bytes of memory. The first, its case, is 0 or 1.
func FromMemory(b []byte) netip.AddrPort {
	port := binary.LittleEndian.Uint16(b[4:])
	if b[0] == V4 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[6:10])), port)
	}
	var ip [16]byte
	for i := range 8 {
		binary.BigEndian.PutUint16(ip[2*i:], binary.LittleEndian.Uint16(b[12+2*i:]))
	}
	return netip.AddrPortFrom(wasi.Scoped(netip.AddrFrom16(ip), binary.LittleEndian.Uint32(b[28:])), port)
}

// Bytes are an ip-socket-address in memory.
func Bytes(a netip.AddrPort) [Size]byte {
	var b [Size]byte
	binary.LittleEndian.PutUint16(b[4:], a.Port())
	ip := a.Addr()
	if ip.Is4() {
		four := ip.As4()
		copy(b[6:], four[:])
		return b
	}
	b[0] = V6
	groups := Groups(ip)
	copy(b[12:], groups[:])
	binary.LittleEndian.PutUint32(b[28:], wasi.Scope(ip))
	return b
}

// Groups are the eight numbers of an IPv6 address in memory.
func Groups(ip netip.Addr) [16]byte {
	b := ip.As16()
	for i := 0; i < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	return b
}

// Cases of ip-address-family and ip-socket-address.
const (
	V4 = iota
	V6
)

// Family is an ip-address-family in the kernel's form.
func Family(v uint32) int {
	if v == V4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// OfFamily checks that an address is of a socket's family (AF_INET, AF_INET6).
func OfFamily(a netip.Addr, family int) error {
	if a.Is4() != (family == unix.AF_INET) || a.Is4In6() {
		return codes.InvalidArgument
	}
	return nil
}

// Unicast is OfFamily for a TCP socket, which takes no address of several machines.
func Unicast(a netip.Addr, family int) error {
	if a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return codes.InvalidArgument
	}
	return OfFamily(a, family)
}

// Reachable checks an address that is to be connected to.
func Reachable(a netip.AddrPort) error {
	if a.Addr().IsUnspecified() || a.Port() == 0 {
		return codes.InvalidArgument
	}
	return nil
}
