package wasi

import (
	"bytes"
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// direntBuffer is how much of a directory is read from the kernel at once, in bytes.
const direntBuffer = 16 << 10

// Offsets in the kernel's linux_dirent64.
const (
	direntIno  = 0
	direntOff  = 8
	direntLen  = 16
	direntType = 18
	direntName = 19
)

// Entry is an entry of a directory.
type Entry struct {
	Next  uint64 // cookie of the entry after it
	Inode uint64
	Type  Type
	Name  []byte // valid until the listing moves
}

// Listing is a place in a directory's entries. Cookies are the kernel's own offsets, so they stay
// good for as long as the file system keeps its promise to telldir, whatever is kept here; the
// buffer only saves the way to the kernel when the guest continues where it stopped.
type Listing struct {
	dir    *Dir
	buffer []byte
	filled []byte // what the kernel gave last
	start  uint64 // cookie of the first entry in filled
	next   uint64 // cookie of the entry at rest
	rest   []byte // tail of filled that has not been given out
	end    bool   // behind filled the directory ends
}

// List returns the directory's listing at the entry with this cookie, 0 for the first as the
// directory is now. There is one listing for each Dir.
func (d *Dir) List(cookie uint64) (*Listing, error) {
	d.listing.dir = d
	return &d.listing, d.listing.move(cookie)
}

// move moves to the entry with this cookie.
func (l *Listing) move(cookie uint64) error {
	if cookie != 0 && cookie == l.next && (l.filled != nil || l.end) {
		return nil
	}
	if cookie != 0 && cookie == l.start && l.filled != nil {
		l.next, l.rest = l.start, l.filled
		return nil
	}
	for rest := l.filled; cookie != 0 && len(rest) > 0; {
		next := binary.LittleEndian.Uint64(rest[direntOff:])
		rest = rest[binary.LittleEndian.Uint16(rest[direntLen:]):]
		if next == cookie {
			l.next, l.rest = next, rest
			return nil
		}
	}
	if cookie > math.MaxInt64 {
		return unix.EINVAL
	}
	if _, err := unix.Seek(l.dir.host, int64(cookie), unix.SEEK_SET); err != nil {
		return err
	}
	l.filled, l.rest, l.start, l.next, l.end = nil, nil, cookie, cookie, false
	return nil
}

// fill reads on from the kernel when everything has been given out.
func (l *Listing) fill() error {
	if len(l.rest) > 0 || l.end {
		return nil
	}
	if l.buffer == nil {
		l.buffer = make([]byte, direntBuffer)
	}
	var n int
	err := retry(func() (err error) { n, err = unix.Getdents(l.dir.host, l.buffer); return })
	if err != nil {
		return err
	}
	if n == 0 {
		l.end = true
		return nil
	}
	l.start, l.filled = l.next, l.buffer[:n]
	l.rest = l.filled
	return nil
}

// Entry returns the entry that the listing is at, false at the end.
func (l *Listing) Entry() (Entry, bool, error) {
	if err := l.fill(); err != nil {
		return Entry{}, false, err
	}
	if len(l.rest) == 0 {
		l.filled, l.buffer = nil, nil
		return Entry{}, false, nil
	}
	raw := l.rest[:binary.LittleEndian.Uint16(l.rest[direntLen:])]
	e := Entry{
		Next:  binary.LittleEndian.Uint64(raw[direntOff:]),
		Inode: binary.LittleEndian.Uint64(raw[direntIno:]),
		Name:  raw[direntName:],
	}
	if i := bytes.IndexByte(e.Name, 0); i >= 0 {
		e.Name = e.Name[:i]
	}
	l.dir.complete(&e, raw[direntType])
	return e, true, nil
}

// Advance moves to the next entry, once Entry has returned this one.
func (l *Listing) Advance() {
	l.next = binary.LittleEndian.Uint64(l.rest[direntOff:])
	l.rest = l.rest[binary.LittleEndian.Uint16(l.rest[direntLen:]):]
}

// complete sets an entry's type. The parent of a preopen is the preopen itself: what lies above is
// not the guest's to know. What the file system does not tell is looked up.
func (d *Dir) complete(e *Entry, kernel byte) {
	if d.top && string(e.Name) == ".." {
		var st unix.Stat_t
		if unix.Fstat(d.host, &st) == nil {
			e.Inode = st.Ino
		}
		e.Type = TypeDirectory
		return
	}
	if kernel == unix.DT_UNKNOWN {
		var st unix.Stat_t
		if unix.Fstatat(d.host, string(e.Name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			e.Type = TypeOf(&st)
		}
		return
	}
	e.Type = typeOf(uint32(kernel) << 12) // DT_ numbers are the S_IF ones, shifted
}
