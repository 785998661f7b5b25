package wasip1

import (
	"time"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// kind is how a descriptor is read, written and waited for.
type kind uint8

const (
	kindNull      kind = iota // an absent standard stream: reads end, writes vanish
	kindFile                  // a regular file or block device: never waits
	kindDirectory             // a directory
	kindStream                // a pipe, terminal or character device: wait, then read
	kindSocket                // a connection or datagram socket
	kindListener              // a listening socket
)

// maxFiles bounds the table of one guest; the process's own RLIMIT_NOFILE may be lower.
const maxFiles = 1 << 16

// file is one open descriptor of the guest. Descriptor numbers of the host and the guest have nothing
// to do with each other; each file has a host descriptor of its own.
type file struct {
	host             int // host descriptor, -1 for kindNull
	kind             kind
	filetype         uint8
	flags            uint16 // as the guest sees them; NONBLOCK exists only here, not in the kernel
	hostSync         uint16 // those of flagsSync that the kernel takes care of
	base, inheriting rights

	preopen  bool   // given at the start: fd_prestat_get knows it
	name     string // a preopen's name
	root     bool   // the preopen "/": absolute symbolic links lead back into it
	readOnly bool   // below a read-only preopen
	stdio    bool   // a standard stream: its open file is shared with others, who keep it
	stdin    bool
	owned    bool // close host with the descriptor

	waiting waiting    // poll_oneoff's
	dir     *directory // fd_readdir's, nil until used
	backlog []int      // a listener's connections that Interrupt saved, guarded by Host.mu

	family                  int           // a socket's address family, 0 if not yet known
	receiveLimit, sendLimit time.Duration // timeouts of sock_setsockopt, 0 = none
}

// socket reports whether f is a socket of any kind.
func (f *file) socket() bool { return f.kind == kindSocket || f.kind == kindListener }

// get returns the file of a guest's descriptor if it has every right in need.
func (h *Host) get(fd uint64, need rights) (*file, errno) {
	number := uint32(fd)
	if int64(number) >= int64(len(h.files)) || h.files[number] == nil {
		return nil, ebadf
	}
	f := h.files[number]
	return f, f.check(need)
}

// add puts f at the lowest free descriptor.
func (h *Host) add(f *file) (uint32, errno) {
	for i := h.lowest; i < len(h.files); i++ {
		if h.files[i] == nil {
			h.files[i], h.lowest = f, i+1
			return uint32(i), success
		}
	}
	if len(h.files) >= maxFiles {
		return 0, emfile
	}
	h.files = append(h.files, f)
	h.lowest = len(h.files)
	return uint32(h.lowest - 1), success
}

// remove takes a descriptor out of the table.
func (h *Host) remove(fd uint32) {
	h.files[fd] = nil
	h.lowest = min(h.lowest, int(fd))
}

// closeFile releases what f holds.
func (h *Host) closeFile(f *file) errno {
	h.unwatch(f)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, f)
	h.stdin = h.stdin && !f.stdin
	for _, conn := range f.backlog {
		unix.Close(conn)
	}
	f.backlog, f.dir = nil, nil
	if !f.owned || f.host < 0 {
		return success
	}
	host := f.host
	f.host = -1
	// Linux has released the descriptor even when close answers an error.
	if err := unix.Close(host); err != nil && err != unix.EINTR {
		return toErrno(err)
	}
	return success
}

func fdClose(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	h.remove(uint32(p[0]))
	return h.closeFile(f)
}

// fdRenumber moves a file, with everything that belongs to it (also that it is a preopen or a standard
// stream), to another open descriptor.
func fdRenumber(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	old, e := h.get(p[1], 0)
	if e != success || f == old {
		return e
	}
	h.files[uint32(p[1])] = f
	h.remove(uint32(p[0]))
	h.closeFile(old)
	return success
}

func fdFdstatGet(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	out, e := record(mem, p[1], sizeFdstat)
	if e != success {
		return e
	}
	clear(out)
	out[0] = f.filetype
	put16(out[2:], f.flags)
	put64(out[8:], uint64(f.base))
	put64(out[16:], uint64(f.inheriting))
	return success
}

func fdFdstatSetFlags(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdFdstatSetFlags)
	if e != success {
		return e
	}
	flags := uint16(p[1])
	if uint32(p[1])&^uint32(flagsAll) != 0 {
		return einval
	}
	if (flags^f.flags)&flagAppend != 0 && f.kind == kindFile {
		if f.stdio {
			return enotsup // the open file is not the guest's alone
		}
		if err := setAppend(f.host, flags&flagAppend != 0); err != nil {
			return toErrno(err)
		}
	}
	f.flags = flags
	return success
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

func fdFdstatSetRights(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	base, inheriting := rights(p[1]), rights(p[2])
	if base&^f.base != 0 || inheriting&^f.inheriting != 0 {
		return enotcapable
	}
	f.base, f.inheriting = base, inheriting
	return success
}

// fdPrestatGet describes a preopen. Any other descriptor is EBADF: guests count upwards from 3 until
// they meet it.
func fdPrestatGet(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	if !f.preopen {
		return ebadf
	}
	out, e := record(mem, p[1], sizePrestat)
	if e != success {
		return e
	}
	put32(out, prestatDirectory)
	put32(out[4:], uint32(len(f.name)))
	if f.kind != kindDirectory {
		put32(out, prestatListener)
	}
	return success
}

func fdPrestatDirName(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	if !f.preopen {
		return ebadf
	}
	if f.kind != kindDirectory {
		return enotdir
	}
	if uint64(uint32(p[2])) < uint64(len(f.name)) {
		return enametoolong
	}
	out, e := record(mem, p[1], len(f.name))
	if e != success {
		return e
	}
	copy(out, f.name)
	return success
}
