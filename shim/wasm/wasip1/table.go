package wasip1

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// maxFiles bounds the table of one guest; the process's own RLIMIT_NOFILE may be lower.
const maxFiles = 1 << 16

// descriptor is an open descriptor of the guest.
type descriptor struct {
	file             *wasi.File
	base, inheriting rights
	preopen          bool   // given at the start: fd_prestat_get knows it
	name             string // a preopen's name
}

// table holds the guest's descriptors by number. Descriptor numbers of the host and the guest have
// nothing to do with each other.
type table struct {
	open   []*descriptor
	lowest int // no descriptor below it is free
}

// get returns the descriptor of a number if it has every right in need.
func (t *table) get(fd uint64, need rights) (*descriptor, error) {
	number := uint32(fd)
	if int64(number) >= int64(len(t.open)) || t.open[number] == nil {
		return nil, unix.EBADF
	}
	d := t.open[number]
	return d, d.check(need)
}

// seekable is get with a right to seek or to tell; to seek implies to tell.
func (t *table) seekable(fd uint64, need rights) (*descriptor, error) {
	d, err := t.get(fd, 0)
	if err != nil || d.base&rightFdSeek != 0 {
		return d, err
	}
	return d, d.check(need)
}

// directory returns the directory of a number if it has every right in need.
func (t *table) directory(fd uint64, need rights) (*wasi.Dir, error) {
	d, err := t.get(fd, need)
	if err != nil {
		return nil, err
	}
	return d.file.AsDir()
}

// socket returns the descriptor of a socket; other files are ENOTSOCK.
func (t *table) socket(fd uint64, need rights) (*descriptor, *wasi.Socket, error) {
	d, err := t.get(fd, 0)
	if err != nil {
		return nil, nil, err
	}
	s, err := d.file.AsSocket()
	if err != nil {
		return nil, nil, err
	}
	return d, s, d.check(need)
}

// add gives the guest a file with these rights and returns its number, the lowest that is free. A
// file that finds no room is closed.
func (t *table) add(f *wasi.File, base, inheriting rights) (uint32, error) {
	d := &descriptor{file: f, base: base, inheriting: inheriting}
	for i := t.lowest; i < len(t.open); i++ {
		if t.open[i] == nil {
			t.open[i], t.lowest = d, i+1
			return uint32(i), nil
		}
	}
	if len(t.open) >= maxFiles {
		f.Close()
		return 0, unix.EMFILE
	}
	t.append(d)
	return uint32(t.lowest - 1), nil
}

// append puts d behind all others, before the guest runs.
func (t *table) append(d *descriptor) {
	t.open = append(t.open, d)
	t.lowest = len(t.open)
}

// cut drops the descriptors from number n on.
func (t *table) cut(n int) { t.open, t.lowest = t.open[:n], n }

// remove takes a descriptor out of the table.
func (t *table) remove(fd uint64) {
	t.open[uint32(fd)] = nil
	t.lowest = min(t.lowest, int(uint32(fd)))
}

// Socket returns the socket of a guest's number; other files are ENOTSOCK.
func (h *Host) Socket(fd uint64) (*wasi.Socket, error) {
	_, s, err := h.table.socket(fd, 0)
	return s, err
}

// SocketToRead is Socket with the right to read, SocketToWrite with that to write.
func (h *Host) SocketToRead(fd uint64) (*wasi.Socket, error) {
	_, s, err := h.table.socket(fd, rightFdRead)
	return s, err
}

// SocketToWrite is Socket with the right to write.
func (h *Host) SocketToWrite(fd uint64) (*wasi.Socket, error) {
	_, s, err := h.table.socket(fd, rightFdWrite)
	return s, err
}

// AddSocket gives the guest a socket with every right that it has a use for, and returns its
// number. A socket that finds no room is closed.
func (h *Host) AddSocket(s *wasi.Socket) (uint32, error) {
	return h.table.add(&s.File, rightsSocket, rightsSocket)
}

// GrantListener gives a socket that listens from now on the rights of a listener.
func (h *Host) GrantListener(fd uint64) error {
	d, err := h.table.get(fd, 0)
	if err != nil {
		return err
	}
	d.base, d.inheriting = rightsListener, rightsSocket
	return nil
}
