package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Group is one cgroup: one directory in the unified hierarchy, or one in each hierarchy of version
// 1.
type Group struct {
	path   string
	mounts *Mounts
}

// Open returns the group at a path below the usual mount points. It need not exist. The root is
// refused.
func Open(path string) (*Group, error) {
	if path == "" || path == "/" {
		return nil, fmt.Errorf("cgroup %q: a group below the root is needed", path)
	}
	mounts, err := Usual()
	if err != nil {
		return nil, err
	}
	return mounts.Group(path), nil
}

// Path is the group's path below the mount points.
func (g *Group) Path() string { return g.path }

// Mounts are the hierarchies of the group.
func (g *Group) Mounts() *Mounts { return g.mounts }

// Unified says whether the group is one of version 2.
func (g *Group) Unified() bool { return g.mounts.Unified != "" }

// Dirs are the group's directories, one for each hierarchy. Not all of them need to exist.
func (g *Group) Dirs() []string { return in(g.mounts.Roots(), g.path) }

// limiting are the directories in hierarchies that limit or name what is in them.
func (g *Group) limiting() []string { return in(g.mounts.limiting(), g.path) }

// in are the directories of a path in hierarchies.
func in(roots []string, path string) []string {
	dirs := make([]string, len(roots))
	for i, root := range roots {
		dirs[i] = filepath.Join(root, path)
	}
	return dirs
}

// Dir is the group's directory in the hierarchy of a controller, "" if there is no such hierarchy.
// The controller matters on version 1 only.
func (g *Group) Dir(controller string) string {
	root := g.mounts.root(controller)
	if root == "" {
		return ""
	}
	return filepath.Join(root, g.path)
}

// File is the path of one of the group's files, "" if there is no hierarchy of the controller.
func (g *Group) File(controller, name string) string {
	root := g.mounts.root(controller)
	if root == "" {
		return ""
	}
	return root + g.path + "/" + name // both are clean
}

// Exists says whether the group exists, in the hierarchy that stands for membership.
func (g *Group) Exists() bool {
	_, err := os.Stat(g.membership())
	return err == nil
}

// membership is the one directory that stands for who is in the group, "" without one.
func (g *Group) membership() string {
	for _, controller := range []string{"memory", "pids", "devices", systemdHierarchy} {
		if dir := g.Dir(controller); dir != "" {
			return dir
		}
	}
	for _, dir := range g.limiting() {
		return dir
	}
	return ""
}

// Join moves a process into the group, which exists. In the version 2 hierarchy beside those of
// version 1 it need not. A process that was born in the group stays where it is: the kernel waits
// for all processors to move one.
func (g *Group) Join(pid int) error {
	if of, err := Of(pid); err == nil && g.Unified() && of == g.path {
		return nil
	}
	if err := g.JoinLimiting(pid); err != nil || g.mounts.Hybrid == "" {
		return err
	}
	if err := joinDir(filepath.Join(g.mounts.Hybrid, g.path), pid); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("join cgroup %q: %w", g.path, err)
	}
	return nil
}

// JoinLimiting moves a process into the group, except in the version 2 hierarchy beside those of
// version 1.
func (g *Group) JoinLimiting(pid int) error {
	for _, dir := range g.limiting() {
		if err := joinDir(dir, pid); err != nil {
			return fmt.Errorf("place process %d in cgroup %q: %w", pid, g.path, err)
		}
	}
	return nil
}

// JoinPresent moves a process into the group in those hierarchies where it exists. ErrNotFound if
// it exists in none.
func (g *Group) JoinPresent(pid int) error {
	joined := false
	for _, dir := range g.Dirs() {
		err := joinDir(dir, pid)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("join cgroup %q: %w", g.path, err)
		}
		joined = joined || err == nil
	}
	if !joined {
		return fmt.Errorf("join cgroup %q: it is in no hierarchy: %w", g.path, errdefs.ErrNotFound)
	}
	return nil
}

func joinDir(dir string, pid int) error {
	return write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
}

// EnterThread moves the calling thread into a group of version 1, so that a process that it starts
// is born there. A thread moves itself at once, while the kernel waits for all processors to move
// another process, many milliseconds. The thread must end thereafter.
func (g *Group) EnterThread() error {
	for _, dir := range g.limiting() {
		if err := write(filepath.Join(dir, "tasks"), "0"); err != nil {
			return fmt.Errorf("enter cgroup %q: %w", g.path, err)
		}
	}
	return nil
}

// Born prepares that the process that the calling thread starts next with attr is born in the
// group, which exists. The thread must end thereafter. The caller calls release, unless it is nil,
// when the process has started.
func (g *Group) Born(attr *syscall.SysProcAttr) (release func(), err error) {
	if !g.Unified() {
		return nil, g.EnterThread()
	}
	dir, err := os.Open(g.Dir(""))
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return func() { dir.Close() }, nil
}

// Remove removes the group and those below it, which must be empty. A missing group is no error. A
// process that was killed keeps its groups busy until it is reaped, on a busy machine for a second
// or two: the removal is retried with growing pauses for at most four seconds. The root is left
// alone.
func (g *Group) Remove() error {
	if g.path == "/" {
		return nil
	}
	var err error
	for wait := time.Millisecond; wait < 3*time.Second; wait *= 2 {
		if err = remove(g); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(wait)
	}
	return err
}

// RemoveEmpty removes the group as Remove does, unless processes are in it.
func (g *Group) RemoveEmpty() error {
	if pids, err := g.Pids(); err != nil || len(pids) > 0 {
		return err
	}
	return g.Remove()
}

func remove(g *Group) error {
	var failed error
	for _, dir := range g.Dirs() {
		if err := removeTree(dir); err != nil && failed == nil {
			failed = fmt.Errorf("remove cgroup %q: %w", g.path, err) // the same process keeps the others busy
		}
	}
	return failed
}

func removeTree(dir string) error {
	err := unix.Rmdir(dir) // os.Remove would try it as a file first
	switch {
	case err == nil, Missing(err):
		return nil
	case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY):
		return err
	}
	children, err := os.ReadDir(dir)
	if err != nil {
		if Missing(err) {
			return nil
		}
		return err
	}
	for _, c := range children {
		if c.IsDir() {
			if err := removeTree(filepath.Join(dir, c.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !Missing(err) {
		return err
	}
	return nil
}

// Missing says whether an error means that there is no such group. A group cannot exist if its path
// is too long for the kernel or leads through a file.
func Missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.ENOTDIR)
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
