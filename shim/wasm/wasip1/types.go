package wasip1

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

	flagsSync = flagDsync | flagRsync | flagSync
	flagsAll  = flagAppend | flagNonblock | flagsSync
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
// library go on to the next descriptor, where an error would make it stop.
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
