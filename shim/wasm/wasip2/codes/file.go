// Package codes has the error-codes of WASI 0.2, and what of the kernel's errors becomes which of them.
package codes

import (
	"errors"

	"golang.org/x/sys/unix"
)

// File is an error-code of wasi:filesystem.
type File uint8

// The specification's error codes, in its order.
const (
	codeAccess     File = iota
	WouldBlockFile      // no code of WASI 0.3
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

// files maps what the kernel answers. A number that is missing is io for the guest. There is no
// code for too many open files: they are a lack of memory for them.
var files = map[unix.Errno]File{
	unix.EACCES:          codeAccess,
	unix.EAGAIN:          WouldBlockFile,
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

// OfFile translates the error of an operation on a file.
func OfFile(err error) File {
	if number, ok := errors.AsType[unix.Errno](err); ok {
		if c, known := files[number]; known {
			return c
		}
	}
	return codeIO
}
