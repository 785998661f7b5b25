package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/process"
)

// Pids lists the processes of the group and of the groups below it.
func (g *Group) Pids() ([]int, error) {
	var pids []int
	err := filepath.WalkDir(g.representative(), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || !d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids, err
}

// representative is the one directory that stands for membership.
func (g *Group) representative() string {
	for _, h := range []string{"", "memory", "pids", "devices", "systemd"} {
		if dir, ok := g.dirs[h]; ok {
			return dir
		}
	}
	for _, dir := range g.dirs {
		return dir
	}
	return ""
}

// Signal sends sig to every process of the group and says how many there were.
func (g *Group) Signal(sig unix.Signal) (int, error) {
	pids, err := g.Pids()
	if err != nil {
		return 0, err
	}
	var errs []error
	n := 0
	for _, pid := range pids {
		if pid == os.Getpid() { // a thread of ours may have entered, to start a process there
			continue
		}
		n++
		if err := unix.Kill(pid, sig); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("signal process %d: %w", pid, err))
		}
	}
	return n, errors.Join(errs...)
}

// Kill ends every process of the group and returns when they have ended, except this one and those in keep.
func (g *Group) Kill(ctx context.Context, keep ...int) error {
	for ctx.Err() == nil {
		pids, err := g.Pids()
		if err != nil {
			return err
		}
		var fds []int
		spared := false
		for _, pid := range pids {
			if pid == os.Getpid() || slices.Contains(keep, pid) {
				spared = true
			} else if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				fds = append(fds, fd)
			}
		}
		if len(fds) == 0 {
			return nil
		}
		if spared || !g.killAll() {
			for _, fd := range fds {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			}
		}
		_ = g.Thaw() // a frozen process of the older freezer would not die
		waitAll(ctx, fds)
	}
	return fmt.Errorf("kill cgroup %q: %w", g.path, ctx.Err())
}

// killAll kills every process of the group in one step, also one that is just being started. False where the kernel cannot: in the
// older hierarchies, and before Linux 5.14.
func (g *Group) killAll() bool {
	return g.unified && write(filepath.Join(g.dirs[""], "cgroup.kill"), "1") == nil
}

// waitAll returns when all pidfds say that their process has ended, and closes them.
func waitAll(ctx context.Context, fds []int) {
	for _, fd := range fds {
		_ = process.Wait(ctx, fd) // who is left is seen
		unix.Close(fd)
	}
}

// Freeze stops every process of the group until Thaw.
func (g *Group) Freeze() error { return g.freezer("FROZEN", "1") }

// Thaw lets a frozen group go on.
func (g *Group) Thaw() error { return g.freezer("THAWED", "0") }

// Frozen says whether the processes are stopped, or are to be.
func (g *Group) Frozen() bool {
	if g.unified {
		frozen, _ := read(filepath.Join(g.dirs[""], "cgroup.freeze"))
		return strings.TrimSpace(frozen) == "1"
	}
	frozen, err := read(filepath.Join(g.dirs["freezer"], "freezer.state"))
	return err == nil && g.dirs["freezer"] != "" && strings.TrimSpace(frozen) != "THAWED"
}

func (g *Group) freezer(v1, v2 string) error {
	if g.unified {
		return write(filepath.Join(g.dirs[""], "cgroup.freeze"), v2)
	}
	return write(filepath.Join(g.dirs["freezer"], "freezer.state"), v1)
}
