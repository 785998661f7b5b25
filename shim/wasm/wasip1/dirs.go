package wasip1

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero/api"
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

// directory is the state of fd_readdir on one descriptor. Cookies are the kernel's own offsets, so they
// stay good for as long as the file system keeps its promise to telldir, whatever is kept here; the
// buffer only saves the way to the kernel when the guest goes on where it stopped.
type directory struct {
	buffer []byte
	filled []byte // what the kernel gave last
	start  uint64 // cookie of the first entry in filled
	next   uint64 // cookie of the entry at rest
	rest   []byte // tail of filled that has not been given out
	end    bool   // behind filled the directory ends
}

// at goes to the entry with this cookie.
func (d *directory) at(fd int, cookie uint64) errno {
	if cookie != 0 && cookie == d.next && (d.filled != nil || d.end) {
		return success
	}
	if cookie != 0 && cookie == d.start && d.filled != nil {
		d.next, d.rest = d.start, d.filled
		return success
	}
	for rest := d.filled; cookie != 0 && len(rest) > 0; {
		next := binary.LittleEndian.Uint64(rest[direntOff:])
		rest = rest[binary.LittleEndian.Uint16(rest[direntLen:]):]
		if next == cookie {
			d.next, d.rest = next, rest
			return success
		}
	}
	if cookie > math.MaxInt64 {
		return einval
	}
	if _, err := unix.Seek(fd, int64(cookie), unix.SEEK_SET); err != nil {
		return toErrno(err)
	}
	d.filled, d.rest, d.start, d.next, d.end = nil, nil, cookie, cookie, false
	return success
}

// fill reads on from the kernel when everything has been given out.
func (d *directory) fill(fd int) errno {
	if len(d.rest) > 0 || d.end {
		return success
	}
	if d.buffer == nil {
		d.buffer = make([]byte, direntBuffer)
	}
	var n int
	err := retry(func() (err error) { n, err = unix.Getdents(fd, d.buffer); return })
	if err != nil {
		return toErrno(err)
	}
	if n == 0 {
		d.end = true
		return success
	}
	d.start, d.filled = d.next, d.buffer[:n]
	d.rest = d.filled
	return success
}

func fdReaddir(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdReaddir)
	if e != success {
		return e
	}
	out, e := record(mem, p[1], int(uint32(p[2])))
	if e != success {
		return e
	}
	result, e := record(mem, p[4], 4)
	if e != success {
		return e
	}
	if f.dir == nil {
		f.dir = &directory{}
	}
	d := f.dir
	if e := d.at(f.host, p[3]); e != success {
		return e
	}
	used := 0
	for used < len(out) {
		if e := d.fill(f.host); e != success {
			if used > 0 {
				break
			}
			return e
		}
		if len(d.rest) == 0 {
			d.filled, d.buffer = nil, nil
			break
		}
		entry := d.rest[:binary.LittleEndian.Uint16(d.rest[direntLen:])]
		n, whole := f.putDirent(out[used:], entry)
		used += n
		if !whole {
			break // the guest asks for this one again
		}
		d.next = binary.LittleEndian.Uint64(entry[direntOff:])
		d.rest = d.rest[len(entry):]
	}
	put32(result, uint32(used))
	return success
}

// putDirent writes an entry, as much of it as there is room for.
func (f *file) putDirent(out, entry []byte) (int, bool) {
	name := entry[direntName:]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	ino := binary.LittleEndian.Uint64(entry[direntIno:])
	filetype := f.direntType(entry[direntType], string(name), &ino)
	var head [sizeDirent]byte
	put64(head[:], binary.LittleEndian.Uint64(entry[direntOff:]))
	put64(head[8:], ino)
	put32(head[16:], uint32(len(name)))
	head[20] = filetype
	n := copy(out, head[:])
	n += copy(out[n:], name)
	return n, n == len(head)+len(name)
}

// direntType is an entry's type. The parent of a preopen is the preopen itself: what lies above is not
// the guest's to know. Sockets and what the file system does not tell are looked up.
func (f *file) direntType(kernel byte, name string, ino *uint64) uint8 {
	if name == ".." && f.preopen {
		var st unix.Stat_t
		if unix.Fstat(f.host, &st) == nil {
			*ino = st.Ino
		}
		return typeDirectory
	}
	switch kernel {
	case unix.DT_REG:
		return typeRegularFile
	case unix.DT_DIR:
		return typeDirectory
	case unix.DT_LNK:
		return typeSymbolicLink
	case unix.DT_CHR:
		return typeCharacterDevice
	case unix.DT_BLK:
		return typeBlockDevice
	case unix.DT_SOCK:
		return typeSocketStream
	case unix.DT_UNKNOWN:
		var st unix.Stat_t
		if unix.Fstatat(f.host, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return modeType(st.Mode)
		}
	}
	return typeUnknown
}
