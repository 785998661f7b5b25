package wasip1

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// rights say which functions may be used on a descriptor.
type rights uint64

// The specification's rights, in its order.
const (
	rightFdDatasync rights = 1 << iota
	rightFdRead
	rightFdSeek
	rightFdFdstatSetFlags
	rightFdSync
	rightFdTell
	rightFdWrite
	rightFdAdvise
	rightFdAllocate
	rightPathCreateDirectory
	rightPathCreateFile
	rightPathLinkSource
	rightPathLinkTarget
	rightPathOpen
	rightFdReaddir
	rightPathReadlink
	rightPathRenameSource
	rightPathRenameTarget
	rightPathFilestatGet
	rightPathFilestatSetSize
	rightPathFilestatSetTimes
	rightFdFilestatGet
	rightFdFilestatSetSize
	rightFdFilestatSetTimes
	rightPathSymlink
	rightPathRemoveDirectory
	rightPathUnlinkFile
	rightPollFdReadwrite
	rightSockShutdown
	rightSockAccept

	rightsAll = rightSockAccept<<1 - 1
)

// What each type of file can do at all. A right outside of its type's set is dropped when it is
// asked for, as the specification allows; one inside it that the directory does not pass on is
// refused.
const (
	rightsFile = rightFdDatasync | rightFdRead | rightFdSeek | rightFdFdstatSetFlags | rightFdSync |
		rightFdTell | rightFdWrite | rightFdAdvise | rightFdAllocate | rightFdFilestatGet |
		rightFdFilestatSetSize | rightFdFilestatSetTimes | rightPollFdReadwrite

	rightsDirectory = rightFdDatasync | rightFdFdstatSetFlags | rightFdSync | rightPathCreateDirectory |
		rightPathCreateFile | rightPathLinkSource | rightPathLinkTarget | rightPathOpen |
		rightFdReaddir | rightPathReadlink | rightPathRenameSource | rightPathRenameTarget |
		rightPathFilestatGet | rightPathFilestatSetSize | rightPathFilestatSetTimes |
		rightFdFilestatGet | rightFdFilestatSetTimes | rightPathSymlink | rightPathRemoveDirectory |
		rightPathUnlinkFile | rightPollFdReadwrite

	// rightsStream are those of pipes and terminals. A terminal is told from other character
	// devices by its lack of seek and tell: this is how a guest's isatty works.
	rightsStream = rightFdRead | rightFdWrite | rightFdFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite

	rightsDevice = rightsStream | rightFdSeek | rightFdTell

	rightsSocket   = rightsStream | rightSockShutdown
	rightsListener = rightFdFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite | rightFdRead |
		rightSockAccept | rightSockShutdown

	rightsPath = rightPathCreateDirectory | rightPathCreateFile | rightPathLinkSource |
		rightPathLinkTarget | rightPathOpen | rightFdReaddir | rightPathReadlink |
		rightPathRenameSource | rightPathRenameTarget | rightPathFilestatGet |
		rightPathFilestatSetSize | rightPathFilestatSetTimes | rightPathSymlink |
		rightPathRemoveDirectory | rightPathUnlinkFile
)

// able is what a file can do at all, whatever its open file allows.
func able(f *wasi.File) rights {
	switch f.Kind() {
	case wasi.KindFile:
		return rightsFile
	case wasi.KindDirectory:
		return rightsDirectory
	case wasi.KindSocket:
		return rightsSocket
	case wasi.KindListener:
		return rightsListener
	}
	if f.Type() == wasi.TypeCharacterDevice && !f.Terminal() {
		return rightsDevice
	}
	return rightsStream
}

// check answers nil if d has every right in need, else the error that a POSIX program expects for
// this type of file, or ENOTCAPABLE where POSIX has none.
func (d *descriptor) check(need rights) error {
	missing := need &^ d.base
	if missing == 0 {
		return nil
	}
	kind := d.file.Kind()
	socket := kind == wasi.KindSocket || kind == wasi.KindListener
	switch {
	case missing&rightsPath != 0 && kind != wasi.KindDirectory:
		return unix.ENOTDIR
	case missing&(rightSockAccept|rightSockShutdown) != 0 && !socket:
		return unix.ENOTSOCK
	case missing&rightSockAccept != 0 && kind == wasi.KindSocket:
		return unix.EINVAL
	case kind == wasi.KindDirectory && missing&(rightsFile&^rightsDirectory) != 0:
		return unix.EISDIR
	case missing&(rightFdSeek|rightFdTell) != 0 && kind != wasi.KindFile:
		return unix.ESPIPE
	case missing&(rightFdRead|rightFdWrite) != 0:
		return unix.EBADF
	}
	return errNotCapable
}
