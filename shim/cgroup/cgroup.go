// Package cgroup is what a shim needs of a container's cgroup, in both generations: who is in it,
// ending everybody, out-of-memory kills, figures for the Task API, and removal. Limits are the engines' business.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// Group is one cgroup: one directory in the unified hierarchy, or one in each of the older hierarchies.
type Group struct {
	path    string
	unified bool
	dirs    map[string]string // hierarchy ("memory", "cpu,cpuacct"; "" for unified) to directory
	beside  string            // directory in a unified hierarchy mounted beside the older ones, "" = none
}

// Open returns the group at path, given below the hierarchies' mount points. It need not exist.
func Open(path string) (*Group, error) {
	if path == "" || path == "/" {
		return nil, fmt.Errorf("cgroup %q: a group below the root is needed", path)
	}
	path = filepath.Join("/", path)
	if cgroup.Unified() {
		return &Group{path: path, unified: true, dirs: map[string]string{"": filepath.Join(cgroup.MountPoint, path)}}, nil
	}
	entries, err := os.ReadDir(cgroup.MountPoint)
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	g := &Group{path: path, dirs: make(map[string]string)}
	for _, e := range entries { // symbolic links ("cpu") point to a joint hierarchy ("cpu,cpuacct")
		top := filepath.Join(cgroup.MountPoint, e.Name())
		switch {
		case !e.IsDir():
		case cgroup.Is(top, unix.CGROUP_SUPER_MAGIC):
			g.dirs[e.Name()] = filepath.Join(top, path)
		case cgroup.Is(top, unix.CGROUP2_SUPER_MAGIC):
			g.beside = filepath.Join(top, path)
		}
	}
	if len(g.dirs) == 0 {
		return nil, errors.New("find cgroup hierarchies: none is mounted")
	}
	return g, nil
}

// Path is the group's path below the mount points.
func (g *Group) Path() string { return g.path }

// Create makes the group where it is not there yet.
func (g *Group) Create() error {
	for hierarchy, dir := range g.dirs {
		if err := g.create(hierarchy, dir); err != nil {
			return fmt.Errorf("create cgroup %q: %w", g.path, err)
		}
	}
	return nil
}

func (g *Group) create(hierarchy, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := g.create(hierarchy, parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if hierarchy != "cpuset" {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // empty at first, and nobody may join then
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), strings.TrimSpace(string(value))); err != nil {
			return err
		}
	}
	return nil
}

// Join moves a process into the group. One that was born there is left alone: to move a process waits for all processors.
func (g *Group) Join(pid int) error {
	if of, err := Of(pid); err == nil && g.unified && of == g.path {
		return nil
	}
	for _, dir := range g.dirs {
		if err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("join cgroup %q: %w", g.path, err)
		}
	}
	if g.beside != "" { // for those who have made it
		if err := write(filepath.Join(g.beside, "cgroup.procs"), strconv.Itoa(pid)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("join cgroup %q: %w", g.path, err)
		}
	}
	return nil
}

// JoinPresent moves a process into the group in those hierarchies where somebody has made it. ErrNotFound if nobody has.
func (g *Group) JoinPresent(pid int) error {
	joined := false
	for _, dir := range g.Dirs() {
		err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("join cgroup %q: %w", g.path, err)
		}
		joined = joined || err == nil
	}
	if !joined {
		return fmt.Errorf("join cgroup %q: it is in no hierarchy: %w", g.path, errdefs.ErrNotFound)
	}
	return nil
}

// Remove removes the group and those below it, which must be empty. It is idempotent. A process that was killed keeps
// its groups busy until it is reaped, on a busy machine for a second or two: the removal is tried again, ever more
// slowly, for at most four seconds.
func (g *Group) Remove() error {
	var err error
	for wait := time.Millisecond; wait < 3*time.Second; wait *= 2 {
		if err = g.remove(); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(wait)
	}
	return err
}

func (g *Group) remove() error {
	var errs []error
	for _, dir := range g.Dirs() {
		if err := removeTree(dir); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// keyed reads lines of "name number"; what cannot be read is missing.
func keyed(path string) map[string]uint64 {
	text, err := read(path)
	if err != nil {
		return nil
	}
	values := make(map[string]uint64)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			values[name] = n
		}
	}
	return values
}

// Dirs are the group's directories, one for each hierarchy. Not all of them need to exist.
func (g *Group) Dirs() []string {
	var dirs []string
	if g.beside != "" { // runc makes one there too
		dirs = append(dirs, g.beside)
	}
	for _, dir := range g.dirs {
		dirs = append(dirs, dir)
	}
	return dirs
}
