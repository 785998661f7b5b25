package wasip1

import (
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// request is what path_open is asked for.
type request struct {
	path             string
	follow           bool
	oflags, flags    uint16
	base, inheriting rights
}

func pathOpen(h *Host, mem api.Memory, p []uint64) errno {
	// Check the descriptor's existence and type before its rights: a file is ENOTDIR.
	d, e := h.get(p[0], rightPathOpen)
	if e != success {
		return e
	}
	path, e := text(mem, p[2], p[3])
	if e != success {
		return e
	}
	out, e := record(mem, p[8], 4)
	if e != success {
		return e
	}
	if uint32(p[1])&^lookupFollow != 0 || uint32(p[4])&^uint32(openAll) != 0 || uint32(p[7])&^uint32(flagsAll) != 0 {
		return einval
	}
	r := request{
		path: path, follow: uint32(p[1])&lookupFollow != 0, oflags: uint16(p[4]), flags: uint16(p[7]),
		base: rights(p[5]) & rightsAll, inheriting: rights(p[6]) & rightsAll,
	}
	if e := d.permits(r); e != success {
		return e
	}
	f, e := h.openFile(d, r)
	if e != success {
		return e
	}
	number, e := h.add(f)
	if e != success {
		h.closeFile(f)
		return e
	}
	put32(out, number)
	return success
}

// permits checks the rights that the flags need beyond path_open itself.
func (f *file) permits(r request) errno {
	var need, pass rights
	if r.oflags&openCreate != 0 {
		need |= rightPathCreateFile
	}
	if r.oflags&openTruncate != 0 {
		need |= rightPathFilestatSetSize
	}
	if r.flags&flagDsync != 0 {
		pass |= rightFdDatasync
	}
	if r.flags&(flagSync|flagRsync) != 0 {
		pass |= rightFdSync
	}
	if r.oflags&(openCreate|openTruncate) != 0 {
		pass |= r.base & rightsFile // nothing else is created or cut off
	}
	if f.base&need != need || f.inheriting&pass != pass {
		return enotcapable
	}
	if r.oflags&(openCreate|openDirectory) == openCreate|openDirectory {
		return einval
	}
	return success
}

// hostFlags are the flags of open for a request, and those of flagsSync that they cover.
func (r request) hostFlags() (flags int, covered uint16) {
	flags = unix.O_NOCTTY
	switch read, write := r.base&(rightFdRead|rightFdReaddir) != 0, r.base&rightFdWrite != 0; {
	case read && write:
		flags |= unix.O_RDWR
	case write:
		flags |= unix.O_WRONLY
	default:
		flags |= unix.O_RDONLY
	}
	for _, pair := range [...]struct {
		set  bool
		flag int
	}{
		{!r.follow, unix.O_NOFOLLOW},
		{r.oflags&openCreate != 0, unix.O_CREAT},
		{r.oflags&openDirectory != 0, unix.O_DIRECTORY},
		{r.oflags&(openExclusive|openCreate) == openExclusive|openCreate, unix.O_EXCL},
		{r.oflags&openTruncate != 0, unix.O_TRUNC},
		{r.flags&flagAppend != 0, unix.O_APPEND},
		{r.flags&flagNonblock != 0, unix.O_NONBLOCK},
		{r.flags&flagDsync != 0, unix.O_DSYNC},
		{r.flags&(flagSync|flagRsync) != 0, unix.O_SYNC},
	} {
		if pair.set {
			flags |= pair.flag
		}
	}
	switch {
	case flags&unix.O_SYNC == unix.O_SYNC:
		covered = flagsSync
	case flags&unix.O_DSYNC != 0:
		covered = flagDsync
	}
	return flags, covered
}

// openFile opens a path below d and makes a file of it.
func (h *Host) openFile(d *file, r request) (*file, errno) {
	flags, covered := r.hostFlags()
	if d.readOnly {
		if flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0 {
			return nil, erofs
		}
		flags &^= unix.O_CREAT | unix.O_EXCL
	}
	fd, e := h.open(d, r.path, flags, 0o666)
	if d.readOnly && r.oflags&openCreate != 0 {
		switch {
		case e == enoent:
			return nil, erofs
		case e == success && r.oflags&openExclusive != 0:
			unix.Close(fd)
			return nil, eexist
		}
	}
	if e != success {
		return nil, e
	}
	f := &file{host: fd, owned: true, flags: r.flags, hostSync: covered, readOnly: d.readOnly}
	if e := h.identify(f, d, r); e != success {
		unix.Close(fd)
		return nil, e
	}
	return f, success
}

// identify finds out what was opened and which rights it gets.
func (h *Host) identify(f, d *file, r request) errno {
	var st unix.Stat_t
	if err := unix.Fstat(f.host, &st); err != nil {
		return toErrno(err)
	}
	if e := h.guard(f.host, uint64(st.Dev)); e != success {
		return e
	}
	able := f.classify(&st)
	base := r.base & able
	inheriting := rights(0)
	if f.kind == kindDirectory {
		inheriting = r.inheriting
	}
	if (base|inheriting)&^d.inheriting != 0 {
		return enotcapable
	}
	f.base, f.inheriting = base, inheriting
	return success
}

// classify sets the kind and type of a file that is not a socket, and returns the rights it can have.
func (f *file) classify(st *unix.Stat_t) rights {
	f.filetype = modeType(uint32(st.Mode))
	switch f.filetype {
	case typeRegularFile, typeBlockDevice:
		f.kind = kindFile
		return rightsFile
	case typeDirectory:
		f.kind = kindDirectory
		return rightsDirectory
	case typeCharacterDevice:
		f.kind = kindStream
		if _, err := unix.IoctlGetTermios(f.host, unix.TCGETS); err != nil {
			return rightsDevice
		}
	default:
		f.kind = kindStream
	}
	return rightsStream
}
