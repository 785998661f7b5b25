package measure

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Account counts the processor time and the memory of a server and all that it starts, however
// deep: it is a cgroup of version 2, in which children are born. Beside cgroup v1 this hierarchy
// has no controllers, counts processor time all the same, and no runtime moves its processes.
type Account struct{ dir string }

// serverGroup is the child in which the server is: on a machine with cgroup v2 alone, processes and
// groups of pods may not be beside each other.
const serverGroup = "server"

// NewAccount makes a cgroup for a server below the hierarchy's root.
func NewAccount(name string) (*Account, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return nil, err
	}
	mounts = slices.DeleteFunc(mounts, func(m *mountinfo.Info) bool { // another mount hides it
		var fs unix.Statfs_t
		return unix.Statfs(m.Mountpoint, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC
	})
	if len(mounts) == 0 {
		return nil, errors.New("no cgroup v2 is mounted, by which processor time is counted: mount -t cgroup2 none /sys/fs/cgroup/unified")
	}
	a := &Account{filepath.Join(mounts[0].Mountpoint, name)}
	return a, errors.Join(os.Mkdir(a.dir, 0o755), os.Mkdir(filepath.Join(a.dir, serverGroup), 0o755))
}

// Close removes the cgroup, in which nothing may run any more, and those of the server's pods in
// all hierarchies.
func (a *Account) Close() error {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	for _, m := range mounts {
		err = errors.Join(err, removeGroups(filepath.Join(m.Mountpoint, filepath.Base(a.dir))))
	}
	return err
}

// removeGroups removes a cgroup with those below it, if it is there.
func removeGroups(dir string) error {
	below, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, d := range below {
		if d.IsDir() {
			err = errors.Join(err, removeGroups(filepath.Join(dir, d.Name())))
		}
	}
	return errors.Join(err, os.Remove(dir))
}

// Parent is the cgroup parent for the server's pods, which is below the account where pods have
// cgroups of version 2.
func (a *Account) Parent() string { return filepath.Join("/", filepath.Base(a.dir), "pods") }

// In calls a function while this process is in the cgroup: what it starts is born there.
func (a *Account) In(do func() error) error {
	own := []byte(strconv.Itoa(os.Getpid()))
	before, err := unifiedGroup()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.dir, serverGroup, "cgroup.procs"), own, 0); err != nil {
		return err
	}
	done := do()
	return errors.Join(done, os.WriteFile(filepath.Join(filepath.Dir(a.dir), before, "cgroup.procs"), own, 0))
}

// unifiedGroup is this process's cgroup of version 2, below the hierarchy's root.
func unifiedGroup() (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::"); found {
			return path, nil
		}
	}
	return "", errors.New("this process is in no cgroup of version 2")
}

// CPU is the processor time of all that ran in it.
func (a *Account) CPU() (time.Duration, error) {
	data, err := os.ReadFile(filepath.Join(a.dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if text, found := strings.CutPrefix(line, "usage_usec "); found {
			usec, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return time.Duration(usec) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("read %s/cpu.stat: it has no usage_usec", a.dir)
}

// Memory is the proportional set size of all processes in it, in bytes.
func (a *Account) Memory() (sum int64, err error) {
	err = filepath.WalkDir(a.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		for pids := bufio.NewScanner(file); pids.Scan(); {
			pid, err := strconv.Atoi(pids.Text())
			if err != nil {
				return err
			}
			pss, err := PSS(pid)
			if errors.Is(err, os.ErrNotExist) {
				continue // it ended
			}
			if err != nil {
				return err
			}
			sum += pss
		}
		return nil
	})
	return sum, err
}
