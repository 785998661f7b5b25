// Package cgroup is what a shim needs of a container's cgroup, in both generations: who is in it,
// ending everybody, out-of-memory kills, figures for the Task API, and removal. Limits are the engines' business.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// mountPoint is where every distribution mounts the hierarchies.
const mountPoint = "/sys/fs/cgroup"

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
	if Unified() {
		return &Group{path: path, unified: true, dirs: map[string]string{"": filepath.Join(mountPoint, path)}}, nil
	}
	entries, err := os.ReadDir(mountPoint)
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	g := &Group{path: path, dirs: make(map[string]string)}
	for _, e := range entries { // symbolic links ("cpu") point to a joint hierarchy ("cpu,cpuacct")
		top := filepath.Join(mountPoint, e.Name())
		switch {
		case !e.IsDir():
		case is(top, unix.CGROUP_SUPER_MAGIC):
			g.dirs[e.Name()] = filepath.Join(top, path)
		case is(top, unix.CGROUP2_SUPER_MAGIC):
			g.beside = filepath.Join(top, path)
		}
	}
	if len(g.dirs) == 0 {
		return nil, errors.New("find cgroup hierarchies: none is mounted")
	}
	return g, nil
}

// Unified says whether the machine has the unified hierarchy and no other.
func Unified() bool { return is(mountPoint, unix.CGROUP2_SUPER_MAGIC) }

func is(path string, magic int64) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && int64(s.Type) == magic
}

// Resolve turns an OCI cgroupsPath into a path below the hierarchies' mount points. For the systemd
// driver "slice:prefix:name" is meant. A relative path gives "": it is below the runtime's own group, see Of.
func Resolve(cgroupsPath string, systemd bool) string {
	if !systemd {
		if !filepath.IsAbs(cgroupsPath) {
			return ""
		}
		return filepath.Clean(cgroupsPath)
	}
	parts := strings.Split(cgroupsPath, ":")
	if len(parts) != 3 {
		return ""
	}
	slice, prefix, name := parts[0], parts[1], parts[2]
	if slice == "" {
		slice = "system.slice"
	}
	switch {
	case strings.HasSuffix(name, ".slice"):
	case prefix == "":
		name += ".scope"
	default:
		name = prefix + "-" + name + ".scope"
	}
	return filepath.Join(expandSlice(slice), name)
}

// expandSlice turns a slice's name into its path: "a-b.slice" lies at /a.slice/a-b.slice.
func expandSlice(slice string) string {
	name := strings.TrimSuffix(slice, ".slice")
	if name == "-" || name == "" {
		return "/"
	}
	path := "/"
	for i := range len(name) {
		if name[i] == '-' {
			path = filepath.Join(path, name[:i]+".slice")
		}
	}
	return filepath.Join(path, name+".slice")
}

// Of returns the path of a process's group: of the memory controller, or of the unified hierarchy.
func Of(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	unified := ""
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for _, controller := range strings.Split(fields[1], ",") {
			if controller == "memory" {
				return fields[2], nil
			}
		}
		if fields[0] == "0" {
			unified = fields[2]
		}
	}
	if unified == "" {
		return "", fmt.Errorf("cgroup of process %d: unknown", pid)
	}
	return unified, nil
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

// Join moves a process into the group.
func (g *Group) Join(pid int) error {
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
		var fds []unix.PollFd
		for _, pid := range pids {
			if pid == os.Getpid() || contains(keep, pid) {
				continue
			}
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		if len(fds) == 0 {
			return nil
		}
		_ = g.Thaw() // a frozen process of the older freezer would not die
		waitAll(ctx, fds)
	}
	return fmt.Errorf("kill cgroup %q: %w", g.path, ctx.Err())
}

func contains(list []int, n int) bool {
	for _, v := range list {
		if v == n {
			return true
		}
	}
	return false
}

// waitAll returns when all pidfds say that their process has ended, and closes them.
func waitAll(ctx context.Context, fds []unix.PollFd) {
	for i := range fds {
		for ctx.Err() == nil {
			if n, err := unix.Poll(fds[i:i+1], 500); n > 0 || err != nil && err != unix.EINTR {
				break
			}
		}
		unix.Close(int(fds[i].Fd))
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
