package wasi

import "slices"

import "golang.org/x/sys/unix"

// Kind is how a file is read, written and waited for.
type Kind uint8

const (
	KindNull      Kind = iota // an absent standard stream: reads end, writes vanish
	KindFile                  // a regular file or block device: never waits
	KindDirectory             // a directory
	KindStream                // a pipe, terminal or character device: wait, then read
	KindSocket                // a connection or datagram socket
	KindListener              // a listening socket
)

// Type is a file's type in the file system.
type Type uint8

const (
	TypeUnknown Type = iota
	TypeBlockDevice
	TypeCharacterDevice
	TypeDirectory
	TypeRegularFile
	TypeSocketDatagram
	TypeSocketStream
	TypeSymbolicLink
	TypeFIFO // a pipe, with or without a name
)

// Flags are how a file is written and waited for.
type Flags uint8

const (
	Append   Flags = 1 << iota
	Dsync          // a write returns when its data is on disk
	Nonblock       // known here only, not in the kernel
	Rsync          // as Sync, in Linux
	Sync           // a write returns when its data and the file's metadata are on disk

	syncFlags = Dsync | Rsync | Sync
)

// File is one open file of the guest. It has a host descriptor of its own.
type File struct {
	sys      *System
	host     int // host descriptor, -1 for KindNull
	kind     Kind
	filetype Type
	flags    Flags // as the guest sees them
	hostSync Flags // those of syncFlags that the kernel takes care of

	readOnly bool // below a read-only preopen
	terminal bool
	stdio    bool // a standard stream: its open file is shared with others, who keep it
	stdin    bool
	owned    bool // close host with the File

	waiting waiting // Poll's
	dir     *Dir    // that this is part of, nil for other kinds
	socket  *Socket // that this is part of, nil for other kinds
}

// Kind is how the file is read, written and waited for.
func (f *File) Kind() Kind { return f.kind }

// Type is the file's type.
func (f *File) Type() Type { return f.filetype }

// Terminal reports whether the file is a terminal.
func (f *File) Terminal() bool { return f.terminal }

// Flags are the file's flags.
func (f *File) Flags() Flags { return f.flags }

// FD is the host descriptor, -1 for KindNull. It remains the File's.
func (f *File) FD() int { return f.host }

// AsDir returns what can be done with directories only. Other files are ENOTDIR.
func (f *File) AsDir() (*Dir, error) {
	if f.dir == nil {
		return nil, unix.ENOTDIR
	}
	return f.dir, nil
}

// AsSocket returns what can be done with sockets only. Other files are ENOTSOCK.
func (f *File) AsSocket() (*Socket, error) {
	if f.socket == nil {
		return nil, unix.ENOTSOCK
	}
	return f.socket, nil
}

// SetFlags sets the file's flags. Append of a standard stream's regular file cannot change
// (ENOTSUP): the open file is not the guest's alone.
func (f *File) SetFlags(flags Flags) error {
	if (flags^f.flags)&Append != 0 && f.kind == KindFile {
		if f.stdio {
			return unix.ENOTSUP
		}
		if err := setAppend(f.host, flags&Append != 0); err != nil {
			return err
		}
	}
	f.flags = flags
	return nil
}

// setAppend switches O_APPEND of an open file.
func setAppend(fd int, on bool) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	flags &^= unix.O_APPEND
	if on {
		flags |= unix.O_APPEND
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return err
}

// Disown leaves the host descriptor to the caller: Close will not close it.
func (f *File) Disown() { f.owned = false }

// Close releases what the file holds. The host descriptor of a standard stream stays open.
func (f *File) Close() error {
	f.sys.poller.unwatch(f)
	f.sys.mu.Lock()
	defer f.sys.mu.Unlock()
	f.sys.stdin = f.sys.stdin && !f.stdin
	if f.socket != nil {
		delete(f.sys.listeners, f.socket)
		for _, conn := range f.socket.backlog {
			unix.Close(conn)
		}
		f.socket.backlog = nil
	}
	if f.dir != nil {
		f.dir.listing = Listing{}
	}
	if !f.owned || f.host < 0 {
		return nil
	}
	host := f.host
	f.host = -1
	// Linux has released the descriptor even when close answers an error.
	if err := unix.Close(host); err != nil && err != unix.EINTR {
		return err
	}
	return nil
}

// newFile makes a File of a host descriptor that is no socket.
func (s *System) newFile(fd int, st *unix.Stat_t) *File {
	filetype := typeOf(uint32(st.Mode))
	if filetype == TypeDirectory {
		d := &Dir{File: File{sys: s, host: fd, kind: KindDirectory, filetype: filetype}}
		d.dir = d
		return &d.File
	}
	f := &File{sys: s, host: fd, kind: KindStream, filetype: filetype}
	switch filetype {
	case TypeRegularFile, TypeBlockDevice:
		f.kind = KindFile
	case TypeCharacterDevice:
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		f.terminal = err == nil
	}
	return f
}

// procfsMagic is the type that statfs gives for procfs.
const procfsMagic = 0x9fa0

// guard refuses what must not be opened although it lies beneath a preopen: procfs. It tells about,
// and through files such as mem gives power over, the process the guest runs in, which is not the
// guest's.
func (s *System) guard(fd int, dev uint64) error {
	if slices.Contains(s.devices, dev) {
		return nil
	}
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return err
	}
	if int64(fs.Type) == procfsMagic {
		return unix.EACCES
	}
	s.devices = append(s.devices, dev)
	return nil
}
