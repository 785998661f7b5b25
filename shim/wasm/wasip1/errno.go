package wasip1

import (
	"errors"
	"strconv"
	"syscall"
)

// Errno is a result of the specification; 0 is success.
type Errno uint16

// The specification's errors, in its order.
const (
	success Errno = iota
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

// errNotCapable is the one error of the specification that the host does not have.
const errNotCapable = enotcapable

// Error makes an Errno an error that a function may return.
func (e Errno) Error() string { return "errno " + strconv.Itoa(int(e)) + " of WASI preview 1" }

// hostErrnos maps what the kernel answers. A number that is missing is EIO for the guest.
var hostErrnos = [...]Errno{
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

// ErrnoOf translates the error of an operation. An Errno is passed on.
func ErrnoOf(err error) Errno {
	switch err := err.(type) {
	case nil:
		return success
	case syscall.Errno:
		return hostErrno(err)
	case Errno:
		return err
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return hostErrno(number)
	}
	return eio
}

// hostErrno translates what the kernel answers.
func hostErrno(number syscall.Errno) Errno {
	if number == 0 {
		return success
	}
	if int(number) < len(hostErrnos) && hostErrnos[number] != success {
		return hostErrnos[number]
	}
	return eio
}
