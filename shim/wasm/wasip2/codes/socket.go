package codes

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Socket is an error-code of wasi:sockets/network.
type Socket uint8

// The specification's error codes, in its order.
const (
	Unknown Socket = iota
	AccessDenied
	NotSupported
	InvalidArgument
	OutOfMemory
	Timeout
	ConcurrencyConflict
	NotInProgress
	WouldBlock
	InvalidState
	NewSocketLimit
	AddressNotBindable
	AddressInUse
	RemoteUnreachable
	ConnectionRefused
	ConnectionReset
	ConnectionAborted
	DatagramTooLarge
	NameUnresolvable
	TemporaryResolverFailure
	PermanentResolverFailure
)

func (c Socket) Error() string { return fmt.Sprintf("error %d of wasi:sockets", uint8(c)) }

// sockets maps what the kernel answers, by the list in the specification.
var sockets = map[unix.Errno]Socket{
	unix.EACCES:        AccessDenied,
	unix.EPERM:         AccessDenied,
	unix.EOPNOTSUPP:    NotSupported,
	unix.ENOPROTOOPT:   NotSupported,
	unix.EAFNOSUPPORT:  InvalidArgument,
	unix.EINVAL:        InvalidArgument,
	unix.EDESTADDRREQ:  InvalidArgument,
	unix.ENOMEM:        OutOfMemory,
	unix.ENOBUFS:       OutOfMemory,
	unix.ETIMEDOUT:     Timeout,
	unix.EALREADY:      ConcurrencyConflict,
	unix.EAGAIN:        WouldBlock,
	unix.EISCONN:       InvalidState,
	unix.ENOTCONN:      InvalidState,
	unix.EMFILE:        NewSocketLimit,
	unix.ENFILE:        NewSocketLimit,
	unix.EADDRNOTAVAIL: AddressNotBindable,
	unix.EADDRINUSE:    AddressInUse,
	unix.EHOSTUNREACH:  RemoteUnreachable,
	unix.EHOSTDOWN:     RemoteUnreachable,
	unix.ENETUNREACH:   RemoteUnreachable,
	unix.ENETDOWN:      RemoteUnreachable,
	unix.ENONET:        RemoteUnreachable,
	unix.ECONNREFUSED:  ConnectionRefused,
	unix.ECONNRESET:    ConnectionReset,
	unix.ENETRESET:     ConnectionReset,
	unix.ECONNABORTED:  ConnectionAborted,
	unix.EMSGSIZE:      DatagramTooLarge,
}

// OfSocket translates the error of an operation on a socket to a Socket.
func OfSocket(err error) error {
	var code Socket
	var number unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code):
		return code
	case errors.As(err, &number):
		return sockets[number] // what is missing is unknown
	}
	return Unknown
}

// OfConnect is OfSocket of a connect: the kernel has no port left for it.
func OfConnect(err error) error {
	if err == unix.EADDRNOTAVAIL {
		return AddressInUse
	}
	return OfSocket(err)
}
