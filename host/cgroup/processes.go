package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Pids lists the processes of the group and of the groups below it, in the hierarchy that stands
// for membership. A missing group has none. With an error it returns those that it found before.
func (g *Group) Pids() ([]int, error) { return pidsBelow(nil, g.membership()) }

// PidsInAny is Pids in all hierarchies: a process that is just being moved is in the group in some
// of them only, and one that moves a thread of its own into a group of version 1 is there too. Each
// is listed once, in order.
func (g *Group) PidsInAny() ([]int, error) {
	var pids []int
	for _, dir := range g.Dirs() {
		var err error
		if pids, err = pidsBelow(pids, dir); err != nil {
			return nil, fmt.Errorf("list processes of cgroup %q: %w", g.path, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// pidsIn lists the processes of a group by its directory, without those of the groups below it.
func pidsIn(dir string) ([]int, error) {
	text, err := kernelfile.Read(filepath.Join(dir, "cgroup.procs"))
	var pids []int
	for field := range strings.FieldsSeq(text) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// pidsBelow appends the processes of a directory and of those below it.
func pidsBelow(pids []int, dir string) ([]int, error) {
	own, err := pidsIn(dir)
	switch {
	case Missing(err): // the group was removed meanwhile
		return pids, nil
	case errors.Is(err, unix.EOPNOTSUPP): // a threaded group, whose processes the group above lists
	case err != nil:
		return pids, err
	}
	pids = append(pids, own...)
	info, err := os.Stat(dir)
	if err != nil {
		return pids, ignoreMissing(err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink <= 2 {
		return pids, nil // no groups below
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return pids, ignoreMissing(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if pids, err = pidsBelow(pids, filepath.Join(dir, e.Name())); err != nil {
			return pids, err
		}
	}
	return pids, nil
}

func ignoreMissing(err error) error {
	if Missing(err) {
		return nil
	}
	return err
}

// Signal sends sig to every process of the group and returns how many there were. SIGKILL reaches
// them as one: none of them sees another one end, and none starts a process that is not killed.
func (g *Group) Signal(sig unix.Signal) (int, error) {
	pids, err := g.Pids()
	if err != nil {
		return 0, err
	}
	if sig == unix.SIGKILL && !slices.Contains(pids, os.Getpid()) {
		if killAtOnce(g) {
			return len(pids), nil
		}
		if !g.Unified() && hold(g) {
			defer g.Thaw() // whoever has the signal does nothing more then but end
			if pids, err = g.Pids(); err != nil {
				return 0, err
			}
		}
	}
	var errs []error
	n := 0
	for _, pid := range pids {
		if pid == os.Getpid() { // one of our threads may have entered, to start a process there
			continue
		}
		n++
		if err := unix.Kill(pid, sig); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("signal process %d: %w", pid, err))
		}
	}
	return n, errors.Join(errs...)
}

// hold freezes the group for the time that signals are sent and waits for up to holdLimit until all
// have stopped. It returns whether the group is to be thawed. A group with a thread of this process
// is not frozen: the Go runtime may have to wait for that thread.
func hold(g *Group) bool {
	if all, err := g.PidsInAny(); err != nil || slices.Contains(all, os.Getpid()) || g.Freeze() != nil {
		return false
	}
	for end := time.Now().Add(holdLimit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		state, err := kernelfile.ReadRecord(g.File("freezer", "freezer.state"))
		if err != nil || strings.TrimSpace(state) == "FROZEN" {
			break
		}
	}
	return true
}

// holdLimit bounds the wait for a process that the kernel cannot stop now, such as one that waits
// for a disk.
const holdLimit = 100 * time.Millisecond
