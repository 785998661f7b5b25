package wasip1

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// The numbers below are those of the specification's typenames.witx.

// File types.
const (
	typeUnknown uint8 = iota
	typeBlockDevice
	typeCharacterDevice
	typeDirectory
	typeRegularFile
	typeSocketDgram
	typeSocketStream
	typeSymbolicLink
)

// Descriptor flags.
const (
	flagAppend uint16 = 1 << iota
	flagDsync
	flagNonblock
	flagRsync
	flagSync

	flagsAll = flagAppend | flagDsync | flagNonblock | flagRsync | flagSync
)

// Flags of path_open.
const (
	openCreate uint16 = 1 << iota
	openDirectory
	openExclusive
	openTruncate

	openAll = openCreate | openDirectory | openExclusive | openTruncate
)

// lookupFollow expands a symbolic link in the last component of a path.
const lookupFollow uint32 = 1

// Clocks.
const (
	clockRealtime uint32 = iota
	clockMonotonic
	clockProcess
	clockThread
)

// Origins of fd_seek.
const (
	seekSet uint8 = iota
	seekCurrent
	seekEnd
)

// Which times fd_filestat_set_times and path_filestat_set_times set, and to what.
const (
	timeAccess uint16 = 1 << iota
	timeAccessNow
	timeModify
	timeModifyNow

	timesAll = timeAccess | timeAccessNow | timeModify | timeModifyNow
)

// Kinds of poll_oneoff's subscriptions and events, and flags in them.
const (
	eventClock uint8 = iota
	eventRead
	eventWrite

	eventHangup   uint16 = 1
	clockAbsolute uint16 = 1
)

// Flags of sock_recv and sock_shutdown.
const (
	recvPeek    uint16 = 1
	recvWaitAll uint16 = 2

	recvTruncated uint16 = 1

	shutRead  uint8 = 1
	shutWrite uint8 = 2
)

// Tags of fd_prestat_get. The specification knows directories only; any other tag makes a guest's
// library continue with the next descriptor, where an error would make it stop.
const (
	prestatDirectory uint32 = 0
	prestatListener  uint32 = 1
)

// Sizes of the records in guest memory, in bytes.
const (
	sizeIovec        = 8
	sizeDirent       = 24
	sizeFdstat       = 24
	sizeFilestat     = 64
	sizePrestat      = 8
	sizeSubscription = 48
	sizeEvent        = 32
)

// filetypes maps types of files to the specification's.
var filetypes = [...]uint8{
	wasi.TypeUnknown:         typeUnknown,
	wasi.TypeBlockDevice:     typeBlockDevice,
	wasi.TypeCharacterDevice: typeCharacterDevice,
	wasi.TypeDirectory:       typeDirectory,
	wasi.TypeRegularFile:     typeRegularFile,
	wasi.TypeSocketDatagram:  typeSocketDgram,
	wasi.TypeSocketStream:    typeSocketStream,
	wasi.TypeSymbolicLink:    typeSymbolicLink,
	wasi.TypeFIFO:            typeUnknown, // the specification has no pipes
}

// fileFlags pairs flags of files with the specification's.
var fileFlags = [...]struct {
	flag   wasi.Flags
	number uint16
}{
	{wasi.Append, flagAppend}, {wasi.Dsync, flagDsync}, {wasi.Nonblock, flagNonblock}, {wasi.Rsync, flagRsync}, {wasi.Sync, flagSync},
}

// getFlags reads descriptor flags; unknown ones are EINVAL.
func getFlags(param uint64) (wasi.Flags, error) {
	if uint32(param)&^uint32(flagsAll) != 0 {
		return 0, unix.EINVAL
	}
	var flags wasi.Flags
	for _, f := range fileFlags {
		if uint16(param)&f.number != 0 {
			flags |= f.flag
		}
	}
	return flags, nil
}

// putFlags is the reverse of getFlags.
func putFlags(flags wasi.Flags) uint16 {
	var all uint16
	for _, f := range fileFlags {
		if flags&f.flag != 0 {
			all |= f.number
		}
	}
	return all
}

// getLookup reads the flags of a path's lookup: whether its last component is followed.
func getLookup(param uint64) (follow bool, err error) {
	if uint32(param)&^lookupFollow != 0 {
		return false, unix.EINVAL
	}
	return uint32(param)&lookupFollow != 0, nil
}
