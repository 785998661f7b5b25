package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// OOMKills is how many processes of the group the kernel has killed for lack of memory.
func (g *Group) OOMKills() uint64 {
	n, _ := oomKills(g)
	return n
}

// WatchOOM calls seen with the number of kills whenever the kernel has killed processes of the
// group for lack of memory, until the group is removed or stop is called. Nothing runs in between.
// ErrNotExist without a memory controller.
func (g *Group) WatchOOM(seen func(kills uint64)) (stop func(), err error) {
	var notices *os.File
	if g.Unified() {
		notices, err = changes(g.File("", "memory.events"))
	} else {
		notices, err = shortages(g.Dir("memory"))
	}
	if err != nil {
		return nil, fmt.Errorf("watch memory of cgroup %q: %w", g.path, err)
	}
	go g.watch(notices, seen)
	return func() { notices.Close() }, nil
}

func (g *Group) watch(notices *os.File, seen func(kills uint64)) {
	defer notices.Close()
	known := uint64(0)
	buffer := make([]byte, 256) // of inotify events, whose file is the watched one: they carry no name
	for {
		if n, err := notices.Read(buffer); err != nil || n == 0 {
			return
		}
		if !g.Exists() {
			return // its removal is a notice too
		}
		if kills := killsAfter(g, known); kills > known {
			known = kills
			seen(kills)
		}
	}
}

// killTime bounds the time between version 1's notice of a shortage and the kill.
const killTime = time.Second

// killsAfter returns the number of kills, in version 1 when it has grown or killTime has passed.
func killsAfter(g *Group, known uint64) uint64 {
	for wait := time.Millisecond; ; wait *= 2 {
		kills := g.OOMKills()
		if g.Unified() || kills > known || wait > killTime {
			return kills
		}
		time.Sleep(wait)
	}
}

// shortages is a descriptor that can be read when a group of version 1 is short of memory.
func shortages(dir string) (*os.File, error) {
	if dir == "" {
		return nil, os.ErrNotExist
	}
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if err := write(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "eventfd"), nil
}

// changes is a descriptor that can be read when a file of the unified hierarchy changes.
func changes(path string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY|unix.IN_DELETE_SELF); err != nil {
		return nil, errors.Join(&os.PathError{Op: "inotify_add_watch", Path: path, Err: err}, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}
