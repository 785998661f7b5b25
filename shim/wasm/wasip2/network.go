package wasip2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// socketCode is an error-code of wasi:sockets/network.
type socketCode uint8

// The specification's error codes, in its order.
const (
	socketUnknown socketCode = iota
	socketAccessDenied
	socketNotSupported
	socketInvalidArgument
	socketOutOfMemory
	socketTimeout
	socketConcurrencyConflict
	socketNotInProgress
	socketWouldBlock
	socketInvalidState
	socketNewSocketLimit
	socketAddressNotBindable
	socketAddressInUse
	socketRemoteUnreachable
	socketConnectionRefused
	socketConnectionReset
	socketConnectionAborted
	socketDatagramTooLarge
	socketNameUnresolvable
	socketTemporaryResolverFailure
	socketPermanentResolverFailure
)

func (c socketCode) Error() string { return fmt.Sprintf("error %d of wasi:sockets", uint8(c)) }

// socketCodes maps what the kernel answers, by the list in the specification.
var socketCodes = map[unix.Errno]socketCode{
	unix.EACCES:        socketAccessDenied,
	unix.EPERM:         socketAccessDenied,
	unix.EOPNOTSUPP:    socketNotSupported,
	unix.ENOPROTOOPT:   socketNotSupported,
	unix.EAFNOSUPPORT:  socketInvalidArgument,
	unix.EINVAL:        socketInvalidArgument,
	unix.EDESTADDRREQ:  socketInvalidArgument,
	unix.ENOMEM:        socketOutOfMemory,
	unix.ENOBUFS:       socketOutOfMemory,
	unix.ETIMEDOUT:     socketTimeout,
	unix.EALREADY:      socketConcurrencyConflict,
	unix.EAGAIN:        socketWouldBlock,
	unix.EISCONN:       socketInvalidState,
	unix.ENOTCONN:      socketInvalidState,
	unix.EMFILE:        socketNewSocketLimit,
	unix.ENFILE:        socketNewSocketLimit,
	unix.EADDRNOTAVAIL: socketAddressNotBindable,
	unix.EADDRINUSE:    socketAddressInUse,
	unix.EHOSTUNREACH:  socketRemoteUnreachable,
	unix.EHOSTDOWN:     socketRemoteUnreachable,
	unix.ENETUNREACH:   socketRemoteUnreachable,
	unix.ENETDOWN:      socketRemoteUnreachable,
	unix.ENONET:        socketRemoteUnreachable,
	unix.ECONNREFUSED:  socketConnectionRefused,
	unix.ECONNRESET:    socketConnectionReset,
	unix.ENETRESET:     socketConnectionReset,
	unix.ECONNABORTED:  socketConnectionAborted,
	unix.EMSGSIZE:      socketDatagramTooLarge,
}

// socketError translates the error of an operation on a socket.
func socketError(err error) error {
	var code socketCode
	var number unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code):
		return code
	case errors.As(err, &number):
		return socketCodes[number] // what is missing is unknown
	}
	return socketUnknown
}

// connectError is socketError of a connect: the kernel has no port left for it.
func connectError(err error) error {
	if err == unix.EADDRNOTAVAIL {
		return socketAddressInUse
	}
	return socketError(err)
}

// streamFailure is the error of a stream that is a connection.
type streamFailure struct{ error }

func (f streamFailure) Unwrap() error { return f.error }

// network is the resource of that name. A guest has the network of its pod.
type network struct{}

func (*network) drop() {}

func instanceNetwork(c *call, p []uint64, _ uint32) error {
	p[0] = uint64(c.host.handles.add(&network{}, 0))
	return nil
}

// networkErrorCode is the error-code of a stream that is a connection.
func networkErrorCode(c *call, p []uint64, out uint32) error {
	var failure streamFailure
	if !errors.As(get[*ioError](c.host, p[0]).cause, &failure) {
		c.put8(out, 0)
		return nil
	}
	c.put8(out, 1)
	c.put8(out+1, c.code(socketError(failure)))
	return nil
}

var networkFunctions = []function{
	{name: "network-error-code", params: "ii", answer: answer{size: 2, align: 1}, call: networkErrorCode},
	{name: "[resource-drop]network", params: "i", call: drop[*network]},
}

// The layout of an ip-socket-address in memory, in bytes.
const (
	addressSize  = 32
	addressAlign = 4
)

// flatAddress reads an ip-socket-address from its 12 flat parameters.
func flatAddress(p []uint64) netip.AddrPort {
	port := uint16(p[1])
	if discriminant(p[0], 2) == 0 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(p[2]), byte(p[3]), byte(p[4]), byte(p[5])}), port)
	}
	var ip [16]byte
	for i := range 8 {
		binary.BigEndian.PutUint16(ip[2*i:], uint16(p[3+i]))
	}
	return netip.AddrPortFrom(scoped(ip, uint32(p[11])), port)
}

// address reads an ip-socket-address from memory.
func (c *call) address(b []byte) netip.AddrPort {
	port := binary.LittleEndian.Uint16(b[4:])
	if discriminant(uint64(b[0]), 2) == 0 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[6:10])), port)
	}
	var ip [16]byte
	for i := range 8 {
		binary.BigEndian.PutUint16(ip[2*i:], binary.LittleEndian.Uint16(b[12+2*i:]))
	}
	return netip.AddrPortFrom(scoped(ip, binary.LittleEndian.Uint32(b[28:])), port)
}

// scoped is an IPv6 address in a zone, which is the number of an interface; 0 for none.
func scoped(ip [16]byte, zone uint32) netip.Addr {
	a := netip.AddrFrom16(ip)
	if zone != 0 {
		a = a.WithZone(strconv.FormatUint(uint64(zone), 10))
	}
	return a
}

// putAddress writes an ip-socket-address.
func (c *call) putAddress(at uint32, a netip.AddrPort) {
	c.mem.Write(at, make([]byte, addressSize))
	ip := a.Addr()
	if ip.Is4() {
		b := ip.As4()
		c.mem.WriteUint16Le(at+4, a.Port())
		c.mem.Write(at+6, b[:])
		return
	}
	c.put8(at, 1)
	c.mem.WriteUint16Le(at+4, a.Port())
	c.putGroups(at+12, ip)
	if zone, err := strconv.ParseUint(ip.Zone(), 10, 32); err == nil {
		c.put32(at+28, uint32(zone))
	}
}

// putGroups writes the eight numbers of an IPv6 address.
func (c *call) putGroups(at uint32, ip netip.Addr) {
	b := ip.As16()
	for i := range uint32(8) {
		c.mem.WriteUint16Le(at+2*i, binary.BigEndian.Uint16(b[2*i:]))
	}
}

// Address families.
const (
	ipv4 = iota
	ipv6
)

// family is an ip-address-family in the kernel's form.
func family(p uint64) int {
	if discriminant(p, 2) == ipv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// fits checks an address for a socket of a family.
func fits(a netip.Addr, family int) error {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if a.Is4() != (family == unix.AF_INET) || a.Is4In6() || a.IsMulticast() || a == broadcast {
		return socketInvalidArgument
	}
	return nil
}

// reachable checks an address that is to be connected to.
func reachable(a netip.AddrPort) error {
	if a.Addr().IsUnspecified() || a.Port() == 0 {
		return socketInvalidArgument
	}
	return nil
}

// newSocket makes a socket of the guest's, which never waits. One of IPv6 takes no IPv4.
func (h *Host) newSocket(family, kind int) (*wasi.Socket, error) {
	s, err := h.system.Socket(family, kind)
	if err != nil {
		return nil, socketError(err)
	}
	if family == unix.AF_INET6 {
		err = s.SetInt(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = s.SetFlags(wasi.Nonblock)
	}
	if err != nil {
		_ = s.Close() // it was never used
		return nil, socketError(err)
	}
	return s, nil
}
