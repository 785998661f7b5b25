package wasip2

import (
	"errors"

	"golang.org/x/sys/unix"
)

// code is an error-code of wasi:filesystem.
type code uint8

// The specification's error codes, in its order.
const (
	codeAccess code = iota
	codeWouldBlock
	codeAlready
	codeBadDescriptor
	codeBusy
	codeDeadlock
	codeQuota
	codeExist
	codeFileTooLarge
	codeIllegalByteSequence
	codeInProgress
	codeInterrupted
	codeInvalid
	codeIO
	codeIsDirectory
	codeLoop
	codeTooManyLinks
	codeMessageSize
	codeNameTooLong
	codeNoDevice
	codeNoEntry
	codeNoLock
	codeInsufficientMemory
	codeInsufficientSpace
	codeNotDirectory
	codeNotEmpty
	codeNotRecoverable
	codeUnsupported
	codeNoTTY
	codeNoSuchDevice
	codeOverflow
	codeNotPermitted
	codePipe
	codeReadOnly
	codeInvalidSeek
	codeTextFileBusy
	codeCrossDevice
)

// codes maps what the kernel answers. A number that is missing is io for the guest. There is no
// code for too many open files: they are a lack of memory for them.
var codes = map[unix.Errno]code{
	unix.EACCES:          codeAccess,
	unix.EAGAIN:          codeWouldBlock,
	unix.EALREADY:        codeAlready,
	unix.EBADF:           codeBadDescriptor,
	unix.EBUSY:           codeBusy,
	unix.EDEADLK:         codeDeadlock,
	unix.EDQUOT:          codeQuota,
	unix.EEXIST:          codeExist,
	unix.EFBIG:           codeFileTooLarge,
	unix.EILSEQ:          codeIllegalByteSequence,
	unix.EINPROGRESS:     codeInProgress,
	unix.EINTR:           codeInterrupted,
	unix.ECANCELED:       codeInterrupted,
	unix.EINVAL:          codeInvalid,
	unix.EIO:             codeIO,
	unix.EISDIR:          codeIsDirectory,
	unix.ELOOP:           codeLoop,
	unix.EMLINK:          codeTooManyLinks,
	unix.EMSGSIZE:        codeMessageSize,
	unix.ENAMETOOLONG:    codeNameTooLong,
	unix.ENODEV:          codeNoDevice,
	unix.ENOENT:          codeNoEntry,
	unix.ENOLCK:          codeNoLock,
	unix.ENOMEM:          codeInsufficientMemory,
	unix.EMFILE:          codeInsufficientMemory,
	unix.ENFILE:          codeInsufficientMemory,
	unix.ENOSPC:          codeInsufficientSpace,
	unix.ENOTDIR:         codeNotDirectory,
	unix.ENOTEMPTY:       codeNotEmpty,
	unix.ENOTRECOVERABLE: codeNotRecoverable,
	unix.EOPNOTSUPP:      codeUnsupported,
	unix.ENOSYS:          codeUnsupported,
	unix.ENOTTY:          codeNoTTY,
	unix.ENXIO:           codeNoSuchDevice,
	unix.EOVERFLOW:       codeOverflow,
	unix.EPERM:           codeNotPermitted,
	unix.EPIPE:           codePipe,
	unix.EROFS:           codeReadOnly,
	unix.ESPIPE:          codeInvalidSeek,
	unix.ETXTBSY:         codeTextFileBusy,
	unix.EXDEV:           codeCrossDevice,
}

// codeOf translates the error of an operation.
func codeOf(err error) code {
	var number unix.Errno
	if errors.As(err, &number) {
		if c, known := codes[number]; known {
			return c
		}
	}
	return codeIO
}

// errClosed is the stream-error closed.
var errClosed = errors.New("stream is closed")

// ioError is the resource error of wasi:io.
type ioError struct{ cause error }

func (*ioError) drop() {}

var errorFunctions = []function{
	{name: "[method]error.to-debug-string", params: "ii", answer: pointer, reallocs: true, call: errorText},
	{name: "[resource-drop]error", params: "i", call: drop[*ioError]},
}

func errorText(c *call, p []uint64, out uint32) error {
	c.putText(out, get[*ioError](c.host, p[0]).cause.Error())
	return nil
}

// filesystemErrorCode is the error-code of a stream that works on a file.
func filesystemErrorCode(c *call, p []uint64, out uint32) error {
	e := get[*ioError](c.host, p[0])
	var connection streamFailure
	if errors.As(e.cause, &connection) {
		c.put8(out, 0)
		return nil
	}
	c.put8(out, 1)
	c.put8(out+1, uint8(codeOf(e.cause)))
	return nil
}
