// Package cgroup knows where cgroups are (version 1 and 2, drivers cgroupfs and systemd), and makes and removes those
// of a pod: its parent, when the client gave none, and the leaf that holds its shim and pause process. The cgroups of
// containers are made by the engines.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hierarchy is how the machine's cgroup file systems are mounted.
type Hierarchy struct {
	// Unified is the mount point of version 2 when it is the only one, else "".
	Unified string
	// V1 holds the mount point of every version 1 controller; named ones as "name=systemd".
	V1 map[string]string
	// Hybrid is the mount point of version 2 beside version 1, "" if there is none. Nothing is measured or limited there,
	// but OCI runtimes make their containers' cgroups in it too, and crun only if those above are there.
	Hybrid string
}

// Find reads the machine's mounts.
func Find() (*Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	defer f.Close()
	h, err := parseMounts(f, visible)
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return h, nil
}

// visible says whether a mount can be reached: another one may lie over it.
func visible(point, fstype string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(point, &fs) != nil {
		return false
	}
	if fstype == "cgroup2" {
		return int64(fs.Type) == unix.CGROUP2_SUPER_MAGIC
	}
	return int64(fs.Type) == unix.CGROUP_SUPER_MAGIC
}

// parseMounts reads the form of /proc/self/mountinfo.
func parseMounts(r io.Reader, visible func(point, fstype string) bool) (*Hierarchy, error) {
	h := &Hierarchy{V1: map[string]string{}}
	unified := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(tail) < 3 {
			continue
		}
		point := unescape(fields[4])
		if (tail[0] == "cgroup" || tail[0] == "cgroup2") && !visible(point, tail[0]) {
			continue
		}
		switch tail[0] {
		case "cgroup2":
			if unified == "" {
				unified = point
			}
		case "cgroup":
			for opt := range strings.SplitSeq(tail[2], ",") {
				if opt == "rw" || opt == "ro" || opt == "xattr" || opt == "clone_children" || strings.Contains(opt, "release_agent") {
					continue
				}
				if _, ok := h.V1[opt]; !ok {
					h.V1[opt] = point
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(h.V1) == 0 {
		if unified == "" {
			return nil, errors.New("no cgroup file system is mounted")
		}
		h.Unified = unified
		return h, nil
	}
	h.Hybrid = unified
	return h, nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// File returns the path of a cgroup's file. The controller matters on version 1 only.
func (h *Hierarchy) File(cgroup, controller, name string) string {
	if h.Unified != "" {
		return filepath.Join(h.Unified, cgroup, name)
	}
	return filepath.Join(h.V1[controller], cgroup, name)
}

// Has says whether a controller is there at all.
func (h *Hierarchy) Has(controller string) bool {
	if h.Unified != "" {
		return true
	}
	_, ok := h.V1[controller]
	return ok
}

// dirs returns the mount points, each once.
func (h *Hierarchy) dirs() []string {
	if h.Unified != "" {
		return []string{h.Unified}
	}
	seen := map[string]bool{}
	var out []string
	for _, d := range h.V1 {
		if !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out
}

// all is dirs and where others may have made our cgroups.
func (h *Hierarchy) all() []string {
	if h.Hybrid == "" {
		return h.dirs()
	}
	return append(h.dirs(), h.Hybrid)
}

// Roots are the mount points of all hierarchies in which cgroups of ours may be, each once.
func (h *Hierarchy) Roots() []string { return h.all() }

// mkdir makes a cgroup in every hierarchy, with whatever is missing above it.
func (h *Hierarchy) mkdir(cgroup string) error {
	for _, root := range h.all() {
		err := h.mkdirIn(root, cgroup)
		for range 4 {
			// The folder above was just removed with the last other pod, or is at this moment.
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				break
			}
			err = h.mkdirIn(root, cgroup)
		}
		if err != nil {
			return fmt.Errorf("make cgroup %q: %w", cgroup, err)
		}
	}
	return nil
}

func (h *Hierarchy) mkdirIn(root, cgroup string) error {
	dir := filepath.Join(root, cgroup)
	if _, err := os.Stat(dir); err == nil && (root != h.V1["cpuset"] || filled(dir)) {
		return nil
	}
	if parent := path.Dir(cgroup); parent != "/" && parent != "." {
		if err := h.mkdirIn(root, parent); err != nil {
			return err
		}
	}
	if h.Unified != "" {
		enableControllers(filepath.Dir(dir))
	}
	err := os.Mkdir(dir, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err == nil && cgroup == ownParent {
		if err := h.weigh(dir); err != nil {
			return err
		}
	}
	if root == h.V1["cpuset"] {
		return inheritCpuset(dir)
	}
	return nil
}

// enableControllers hands on what a version 2 cgroup has to its children, as far as the kernel lets it.
func enableControllers(dir string) {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return
	}
	enabled := " " + strings.TrimSpace(string(on)) + " "
	for c := range strings.FieldsSeq(string(have)) {
		if strings.Contains(enabled, " "+c+" ") {
			continue
		}
		// One by one: a controller that cannot be given on must not keep the others back. Whoever needs a limit that
		// is then missing gets the error when the limit is written.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
}

// filled says whether a version 1 cpuset takes processes; one that somebody else is just making does not yet.
func filled(dir string) bool {
	for _, name := range cpusetFiles() {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.TrimSpace(string(data)) == "" {
			return false
		}
	}
	return true
}

func cpusetFiles() []string { return []string{"cpuset.cpus", "cpuset.mems"} }

// inheritCpuset fills a new version 1 cpuset, which takes no process while it is empty.
func inheritCpuset(dir string) error {
	for _, name := range cpusetFiles() {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), above, 0); err != nil {
			return err
		}
	}
	return nil
}

// place moves a process into a cgroup, in every hierarchy.
func (h *Hierarchy) place(cgroup string, pid int) error {
	for _, root := range h.dirs() {
		file := filepath.Join(root, cgroup, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("place process %d in cgroup %q: %w", pid, cgroup, err)
		}
	}
	return nil
}

// enterThread moves the calling thread into a version 1 cgroup. A thread that moves itself does so at once.
func (h *Hierarchy) enterThread(cgroup string) error {
	for _, root := range h.dirs() {
		if err := os.WriteFile(filepath.Join(root, cgroup, "tasks"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup %q: %w", cgroup, err)
		}
	}
	return nil
}

// remove deletes a cgroup and what is left below it, in every hierarchy. A missing one is no error. A process that
// dies at this moment keeps its cgroup busy for a little while: the removal is tried again, ever more slowly, for at
// most four seconds: that is what a busy machine took to reap it.
func (h *Hierarchy) remove(cgroup string) error {
	if cgroup == "/" || cgroup == "" {
		return nil
	}
	var err error
	for wait := time.Millisecond; wait < 3*time.Second; wait *= 2 {
		if err = h.rmdir(cgroup); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(wait)
	}
	return err
}

func (h *Hierarchy) rmdir(cgroup string) error {
	var failed error
	for _, root := range h.all() {
		if err := rmdirTree(filepath.Join(root, cgroup)); err != nil && failed == nil {
			failed = fmt.Errorf("remove cgroup %q: %w", cgroup, err) // it is the same process that keeps the others
		}
	}
	return failed
}

func rmdirTree(dir string) error {
	err := os.Remove(dir)
	switch {
	case err == nil, missing(err):
		return nil
	case !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY):
		return err
	}
	children, rerr := os.ReadDir(dir)
	if rerr != nil {
		if missing(rerr) {
			return nil
		}
		return rerr
	}
	for _, c := range children {
		if c.IsDir() {
			if err := rmdirTree(filepath.Join(dir, c.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !missing(err) {
		return err
	}
	return nil
}

// missing says that an error means that there is no such cgroup: there cannot be one whose path is too long for the kernel, or
// leads through a file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.ENOTDIR)
}
