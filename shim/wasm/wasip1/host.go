package wasip1

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Preopen is a directory that the guest finds open when it starts.
type Preopen struct {
	FD       int    // host directory, opened with O_PATH or O_RDONLY|O_DIRECTORY
	Name     string // the guest's name for it, "/" for instance
	ReadOnly bool   // refuse with EROFS whatever would change it, beside the kernel's own read-only mounts
}

// Listener is a listening stream socket that the guest finds open when it starts. It is non-blocking for
// the guest too, as in wasmtime: Go's runtime relies on it. A guest that wants to wait in sock_accept
// clears the flag.
type Listener struct {
	FD   int
	Name string
}

// Config is what one guest gets. The descriptors of preopens and listeners belong to the Host once New
// has succeeded; those of the standard streams stay the caller's.
type Config struct {
	Args, Env             []string // Env holds "NAME=value"
	Stdin, Stdout, Stderr int      // host descriptors, -1 for absent: reads end, writes vanish
	Preopens              []Preopen
	Listeners             []Listener
}

// Host is the WASI of one guest. A guest has one thread; Interrupt and Hears may be called from others.
type Host struct {
	config Config
	epoch  time.Time

	files  []*file // the guest's descriptors
	lowest int     // no descriptor below it is free

	bell        int // eventfd that Interrupt rings
	interrupted atomic.Bool
	mu          sync.Mutex     // guards what Interrupt shares with the guest's thread:
	listeners   map[*file]bool // open listeners; false once they refuse
	stdin       bool           // there is a standard input worth ending
	closed      bool

	walks    bool     // no openat2 here
	devices  []uint64 // file systems that guard has let pass
	oldEpoll bool     // no epoll_pwait2 here
	epoll    int      // -1 until poll_oneoff needs it
	watched  []*file  // by host descriptor, what epoll knows
	round    uint64   // count of poll_oneoff calls

	// Scratch space, so that reading, writing and polling make no garbage.
	iovs   []unix.Iovec
	msg    unix.Msghdr
	name   unix.RawSockaddrAny
	polls  [2]unix.PollFd
	subs   []subscription
	events [64]unix.EpollEvent
	wait   timespec64
}

// New checks config and makes the guest's descriptor table: the standard streams at 0, 1 and 2, then
// the listeners, then the preopens.
//
// # Errors
//
// ErrInvalidArgument for a descriptor that is not what it is said to be, and for a zero byte in a string.
// On error the descriptors in config remain the caller's.
func New(config Config) (*Host, error) {
	h := &Host{
		config: config, epoch: time.Now(), bell: -1, epoll: -1,
		listeners: map[*file]bool{}, iovs: make([]unix.Iovec, 0, 8),
	}
	if err := h.fill(); err != nil {
		for _, f := range h.files {
			if f.preopen && f.kind != kindDirectory {
				f.owned = false
			}
		}
		h.shut()
		return nil, err
	}
	return h, nil
}

// fill opens everything that New promises.
func (h *Host) fill() error {
	for _, list := range [][]string{h.config.Args, h.config.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return fmt.Errorf("use string %q: it holds a zero byte: %w", s, errdefs.ErrInvalidArgument)
			}
		}
	}
	var err error
	if h.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("make event descriptor: %w", err)
	}
	for i, fd := range []int{h.config.Stdin, h.config.Stdout, h.config.Stderr} {
		if err := h.addStdio(i, fd); err != nil {
			return fmt.Errorf("take standard stream %d: %w", i, err)
		}
	}
	for _, l := range h.config.Listeners {
		if err := h.addListener(l); err != nil {
			return fmt.Errorf("take listener %q: %w", l.Name, err)
		}
	}
	for _, p := range h.config.Preopens {
		if err := h.addPreopen(p); err != nil {
			return fmt.Errorf("take preopen %q: %w", p.Name, err)
		}
	}
	return nil
}

// Announce gives the guest further listeners, between those of New and the preopens, and adds env to its environment. It is for
// the time before the guest runs. The descriptors belong to the Host from here on.
//
// # Errors
//
// ErrInvalidArgument for a descriptor that does not listen. The guest must not run then.
func (h *Host) Announce(listeners []Listener, env []string) error {
	at := slices.IndexFunc(h.files, func(f *file) bool { return f.kind == kindDirectory && f.preopen })
	if at < 0 {
		at = len(h.files)
	}
	behind := slices.Clone(h.files[at:])
	h.files, h.lowest = h.files[:at], at
	for _, l := range listeners {
		if err := h.addListener(l); err != nil {
			return fmt.Errorf("take listener %q: %w", l.Name, err)
		}
	}
	h.files = append(h.files, behind...)
	h.lowest = len(h.files)
	h.config.Env = append(slices.Clip(h.config.Env), env...)
	return nil
}

// addStdio adds a standard stream. The same descriptor given twice is duplicated, because epoll tells
// files apart by it.
func (h *Host) addStdio(i, fd int) error {
	f := &file{host: fd, stdio: true, stdin: i == 0, filetype: typeUnknown, base: rightsStream}
	h.files = append(h.files, f)
	h.lowest = len(h.files)
	if fd < 0 {
		f.host = -1
		return nil
	}
	for _, other := range h.files[:i] {
		if other.host == fd {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return err
			}
			f.host, f.owned = dup, true
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.host, &st); err != nil {
		return err
	}
	flags, err := unix.FcntlInt(uintptr(f.host), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		if f.filetype, err = socketType(f.host); err != nil {
			return err
		}
		f.kind, f.base = kindSocket, rightsSocket
	} else {
		f.base = f.classify(&st)
	}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		f.base &^= rightFdWrite
	case unix.O_WRONLY:
		f.base &^= rightFdRead
	}
	if flags&unix.O_APPEND != 0 {
		f.flags |= flagAppend
	}
	isNull := f.filetype == typeCharacterDevice && uint64(st.Rdev) == unix.Mkdev(1, 3)
	h.stdin = h.stdin || f.stdin && !isNull
	return nil
}

// socketType is the specification's type of a socket.
func socketType(fd int) (uint8, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return typeUnknown, err
	}
	if kind == unix.SOCK_DGRAM {
		return typeSocketDgram, nil
	}
	return typeSocketStream, nil
}

func (h *Host) addListener(l Listener) error {
	if on, err := unix.GetsockoptInt(l.FD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return fmt.Errorf("descriptor %d does not listen: %w", l.FD, errdefs.ErrInvalidArgument)
	}
	if err := unix.SetNonblock(l.FD, true); err != nil {
		return err
	}
	// Connections inherit this. The specification gives a guest no way to ask for it, and every
	// server has it on.
	_ = unix.SetsockoptInt(l.FD, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	f := &file{
		host: l.FD, owned: true, kind: kindListener, filetype: typeSocketStream,
		flags: flagNonblock, preopen: true, name: l.Name, base: rightsListener, inheriting: rightsSocket,
	}
	h.add(f)
	h.listeners[f] = true
	return nil
}

func (h *Host) addPreopen(p Preopen) error {
	if p.Name == "" || strings.IndexByte(p.Name, 0) >= 0 {
		return fmt.Errorf("use name %q: %w", p.Name, errdefs.ErrInvalidArgument)
	}
	// What was given may be a mere O_PATH descriptor, which cannot be listed or synced.
	fd, err := unix.Openat(p.FD, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		fd, err = unix.Openat(p.FD, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return fmt.Errorf("open directory: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	h.add(&file{
		host: fd, owned: true, kind: kindDirectory, filetype: typeDirectory, preopen: true, name: p.Name,
		root: p.Name == "/", readOnly: p.ReadOnly, base: rightsDirectory, inheriting: rightsDirectory | rightsFile,
	})
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	probe, err := unix.Openat2(fd, ".", &how)
	if err != nil {
		h.walks = true
		return nil
	}
	return unix.Close(probe)
}

// Interrupt asks the guest to end. From now on its listeners refuse connections (those that had arrived
// are still handed out, then sock_accept is EINVAL) and its standard input ends behind what lies in it.
// A call that is blocked at this moment returns, or if there is none, the next one that would block:
//
//   - poll_oneoff with the events of those listeners and of the standard input, else with its clocks as
//     if they had struck; with neither it goes on waiting;
//   - fd_read and sock_recv of a socket, pipe or terminal with ECANCELED.
//
// Writes go on: an answer under way is worth the grace period. Interrupt may be called again; each call
// wakes once.
func (h *Host) Interrupt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.interrupted.Store(true)
	for f, listening := range h.listeners {
		if listening {
			f.hush()
			h.listeners[f] = false
		}
	}
	_, _ = unix.Write(h.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// Hears tells whether the guest has a listener or a standard input to notice Interrupt by. /dev/null is
// no standard input.
func (h *Host) Hears() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stdin || len(h.listeners) > 0
}

// Close releases every descriptor the guest had, the standard streams excepted. The guest must have
// ended.
func (h *Host) Close() error {
	h.shut()
	for _, p := range h.config.Preopens {
		unix.Close(p.FD)
	}
	h.config.Preopens = nil
	return nil
}

// shut releases what New and the guest opened.
func (h *Host) shut() {
	for _, f := range h.files {
		if f != nil {
			h.closeFile(f)
		}
	}
	h.files, h.lowest = nil, 0
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, fd := range []*int{&h.bell, &h.epoll} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}
