package wasip1

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

// What each type of file can do at all. A right outside of its type's set is dropped when it is asked
// for, as the specification allows; one inside it that the directory does not pass on is refused.
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

// check answers success if f has every right in need, else the error that a POSIX program expects for
// this type of file, or ENOTCAPABLE where POSIX has none.
func (f *file) check(need rights) errno {
	missing := need &^ f.base
	switch {
	case missing == 0:
		return success
	case missing&rightsPath != 0 && f.kind != kindDirectory:
		return enotdir
	case missing&(rightSockAccept|rightSockShutdown) != 0 && !f.socket():
		return enotsock
	case missing&rightSockAccept != 0 && f.kind == kindSocket:
		return einval
	case f.kind == kindDirectory && missing&(rightsFile&^rightsDirectory) != 0:
		return eisdir
	case missing&(rightFdSeek|rightFdTell) != 0 && f.kind != kindFile:
		return espipe
	case missing&(rightFdRead|rightFdWrite) != 0:
		return ebadf
	}
	return enotcapable
}
