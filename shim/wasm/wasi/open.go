package wasi

import "golang.org/x/sys/unix"

// OpenOptions say how Dir.Open opens a path.
type OpenOptions struct {
	Read, Write bool
	Follow      bool // a symbolic link in the last component
	Create      bool // a regular file, if there is nothing
	Exclusive   bool // with Create: fail if there is something
	Truncate    bool
	Directory   bool // fail if it is not a directory
	Flags       Flags
}

// hostFlags are the flags of open(2), and those of syncFlags that they cover.
func (o OpenOptions) hostFlags() (flags int, covered Flags) {
	flags = unix.O_NOCTTY
	switch {
	case o.Read && o.Write:
		flags |= unix.O_RDWR
	case o.Write:
		flags |= unix.O_WRONLY
	default:
		flags |= unix.O_RDONLY
	}
	for _, pair := range [...]struct {
		set  bool
		flag int
	}{
		{!o.Follow, unix.O_NOFOLLOW},
		{o.Create, unix.O_CREAT},
		{o.Directory, unix.O_DIRECTORY},
		{o.Exclusive && o.Create, unix.O_EXCL},
		{o.Truncate, unix.O_TRUNC},
		{o.Flags&Append != 0, unix.O_APPEND},
		{o.Flags&Nonblock != 0, unix.O_NONBLOCK},
		{o.Flags&Dsync != 0, unix.O_DSYNC},
		{o.Flags&(Sync|Rsync) != 0, unix.O_SYNC},
	} {
		if pair.set {
			flags |= pair.flag
		}
	}
	switch {
	case flags&unix.O_SYNC == unix.O_SYNC:
		covered = syncFlags
	case flags&unix.O_DSYNC != 0:
		covered = Dsync
	}
	return flags, covered
}

// Open opens a path below the directory. Create with Directory is EINVAL, what lies in procfs
// EACCES.
func (d *Dir) Open(path string, o OpenOptions) (*File, error) {
	if o.Create && o.Directory {
		return nil, unix.EINVAL
	}
	flags, covered := o.hostFlags()
	fd, err := d.openHost(path, flags, o)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = d.sys.guard(fd, uint64(st.Dev))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := d.sys.newFile(fd, &st)
	f.owned, f.flags, f.hostSync, f.readOnly = true, o.Flags, covered, d.readOnly
	return f, nil
}

// openHost opens a host descriptor. A read-only directory refuses what would change it, in the
// words of a read-only file system.
func (d *Dir) openHost(path string, flags int, o OpenOptions) (int, error) {
	if d.readOnly {
		if flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0 {
			return -1, unix.EROFS
		}
		flags &^= unix.O_CREAT | unix.O_EXCL
	}
	fd, err := d.paths().Open(path, flags, 0o666)
	if !d.readOnly || !o.Create {
		return fd, err
	}
	switch {
	case err == unix.ENOENT:
		return -1, unix.EROFS
	case err == nil && o.Exclusive:
		unix.Close(fd)
		return -1, unix.EEXIST
	}
	return fd, err
}

// ReadFile reads a regular file, as much of it as limit says, nil if it cannot.
func (d *Dir) ReadFile(path string, limit int64) []byte {
	f, err := d.Open(path, OpenOptions{Read: true, Follow: true, Flags: Nonblock})
	if err != nil {
		return nil
	}
	defer f.Close()
	var st unix.Stat_t
	if f.Type() != TypeRegularFile || f.Stat(&st) != nil {
		return nil
	}
	content := make([]byte, min(st.Size, limit))
	n := 0
	for n < len(content) {
		m, err := f.Read(Buffers{}.Add(content[n:]))
		if err != nil || m == 0 {
			break
		}
		n += m
	}
	return content[:n]
}
