package wasip1

import (
	"errors"
	"syscall"
)

// errno is a result of the specification; 0 is success.
type errno uint16

// The specification's errors, in its order.
const (
	success errno = iota
	e2big
	eacces
	eaddrinuse
	eaddrnotavail
	eafnosupport
	eagain
	ealready
	ebadf
	ebadmsg
	ebusy
	ecanceled
	echild
	econnaborted
	econnrefused
	econnreset
	edeadlk
	edestaddrreq
	edom
	edquot
	eexist
	efault
	efbig
	ehostunreach
	eidrm
	eilseq
	einprogress
	eintr
	einval
	eio
	eisconn
	eisdir
	eloop
	emfile
	emlink
	emsgsize
	emultihop
	enametoolong
	enetdown
	enetreset
	enetunreach
	enfile
	enobufs
	enodev
	enoent
	enoexec
	enolck
	enolink
	enomem
	enomsg
	enoprotoopt
	enospc
	enosys
	enotconn
	enotdir
	enotempty
	enotrecoverable
	enotsock
	enotsup
	enotty
	enxio
	eoverflow
	eownerdead
	eperm
	epipe
	eproto
	eprotonosupport
	eprototype
	erange
	erofs
	espipe
	esrch
	estale
	etimedout
	etxtbsy
	exdev
	enotcapable
)

// Errors of sock_getaddrinfo, which the socket extension puts behind the specification's.
const (
	eaiAgain    errno = 78
	eaiBadFlags errno = 79
	eaiFail     errno = 80
	eaiFamily   errno = 81
	eaiMemory   errno = 82
	eaiNoName   errno = 84
	eaiService  errno = 85
	eaiSockType errno = 86
)

// hostErrnos maps what the kernel answers. A number that is missing is EIO for the guest.
var hostErrnos = map[syscall.Errno]errno{
	syscall.E2BIG:           e2big,
	syscall.EACCES:          eacces,
	syscall.EADDRINUSE:      eaddrinuse,
	syscall.EADDRNOTAVAIL:   eaddrnotavail,
	syscall.EAFNOSUPPORT:    eafnosupport,
	syscall.EAGAIN:          eagain,
	syscall.EALREADY:        ealready,
	syscall.EBADF:           ebadf,
	syscall.EBADMSG:         ebadmsg,
	syscall.EBUSY:           ebusy,
	syscall.ECANCELED:       ecanceled,
	syscall.ECHILD:          echild,
	syscall.ECONNABORTED:    econnaborted,
	syscall.ECONNREFUSED:    econnrefused,
	syscall.ECONNRESET:      econnreset,
	syscall.EDEADLK:         edeadlk,
	syscall.EDESTADDRREQ:    edestaddrreq,
	syscall.EDOM:            edom,
	syscall.EDQUOT:          edquot,
	syscall.EEXIST:          eexist,
	syscall.EFAULT:          efault,
	syscall.EFBIG:           efbig,
	syscall.EHOSTDOWN:       ehostunreach,
	syscall.EHOSTUNREACH:    ehostunreach,
	syscall.EIDRM:           eidrm,
	syscall.EILSEQ:          eilseq,
	syscall.EINPROGRESS:     einprogress,
	syscall.EINTR:           eintr,
	syscall.EINVAL:          einval,
	syscall.EIO:             eio,
	syscall.EISCONN:         eisconn,
	syscall.EISDIR:          eisdir,
	syscall.ELOOP:           eloop,
	syscall.EMFILE:          emfile,
	syscall.EMLINK:          emlink,
	syscall.EMSGSIZE:        emsgsize,
	syscall.EMULTIHOP:       emultihop,
	syscall.ENAMETOOLONG:    enametoolong,
	syscall.ENETDOWN:        enetdown,
	syscall.ENETRESET:       enetreset,
	syscall.ENETUNREACH:     enetunreach,
	syscall.ENFILE:          enfile,
	syscall.ENOBUFS:         enobufs,
	syscall.ENODEV:          enodev,
	syscall.ENOENT:          enoent,
	syscall.ENOEXEC:         enoexec,
	syscall.ENOLCK:          enolck,
	syscall.ENOLINK:         enolink,
	syscall.ENOMEM:          enomem,
	syscall.ENOMSG:          enomsg,
	syscall.ENOPROTOOPT:     enoprotoopt,
	syscall.ENOSPC:          enospc,
	syscall.ENOSYS:          enosys,
	syscall.ENOTCONN:        enotconn,
	syscall.ENOTDIR:         enotdir,
	syscall.ENOTEMPTY:       enotempty,
	syscall.ENOTRECOVERABLE: enotrecoverable,
	syscall.ENOTSOCK:        enotsock,
	syscall.EOPNOTSUPP:      enotsup,
	syscall.ENOTTY:          enotty,
	syscall.ENXIO:           enxio,
	syscall.EOVERFLOW:       eoverflow,
	syscall.EOWNERDEAD:      eownerdead,
	syscall.EPERM:           eperm,
	syscall.EPFNOSUPPORT:    eafnosupport,
	syscall.EPIPE:           epipe,
	syscall.EPROTO:          eproto,
	syscall.EPROTONOSUPPORT: eprotonosupport,
	syscall.EPROTOTYPE:      eprototype,
	syscall.ERANGE:          erange,
	syscall.EROFS:           erofs,
	syscall.ESOCKTNOSUPPORT: eprotonosupport,
	syscall.ESPIPE:          espipe,
	syscall.ESRCH:           esrch,
	syscall.ESTALE:          estale,
	syscall.ETIMEDOUT:       etimedout,
	syscall.ETXTBSY:         etxtbsy,
	syscall.EXDEV:           exdev,
}

// toErrno translates the error of a system call.
func toErrno(err error) errno {
	if err == nil {
		return success
	}
	var number syscall.Errno
	if !errors.As(err, &number) {
		return eio
	}
	if number == 0 {
		return success
	}
	if e, ok := hostErrnos[number]; ok {
		return e
	}
	return eio
}
