// Package leftovers sees what a node runtime may forget on a machine: processes, mounts, pinned
// namespaces, links, nftables tables, cgroups and files. Take a Snapshot before, take one after,
// and what Since returns should not be there.
package leftovers

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// Scope says what on this machine belongs to the run that is looked at, so that two runs beside
// each other do not see each other.
type Scope struct {
	Dirs     []string // folders whose files, mounts, and processes (by command line, program or working directory) count
	Cgroups  []string // names below /sys/fs/cgroup/<controller>/ that count, with all that is below them
	Network  bool     // count every link and nftables table of this network namespace
	SkipFile func(path string) bool
}

// Snapshot is a sorted list of what was there, one line each, which starts with its kind.
type Snapshot []string

// Take looks at the machine.
func Take(scope Scope) (Snapshot, error) {
	var found Snapshot
	for _, look := range []func(Scope) ([]string, error){processes, mounts, network, cgroups, files} {
		lines, err := look(scope)
		if err != nil {
			return nil, err
		}
		found = append(found, lines...)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// Since returns the lines of s that before does not have. A process stays the same when it executes
// another program, as a shell does with its last command, and whatever its state.
func (s Snapshot) Since(before Snapshot) []string {
	known := map[string]bool{}
	for _, line := range before {
		known[identity(line)] = true
	}
	var fresh []string
	for _, line := range s {
		if !known[identity(line)] {
			fresh = append(fresh, line)
		}
	}
	return fresh
}

// identity is a line, of a process only its id and when it was started.
func identity(line string) string {
	if strings.HasPrefix(line, processPrefix) {
		line, _, _ = strings.Cut(line, " (")
	}
	return line
}

// processPrefix starts the lines of processes.
const processPrefix = "process "

// below says whether path is one of dirs or lies in one.
func below(path string, dirs []string) bool {
	for _, dir := range dirs {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// Processes returns the ids of the processes of a scope: those whose program, working directory or
// command line lies in one of its folders, or that are in one of its cgroups. The caller itself and
// its own ancestors are never among them.
func Processes(scope Scope) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		if belongs(pid, scope) {
			ids = append(ids, pid)
		}
	}
	return ids, nil
}

func belongs(pid int, scope Scope) bool {
	dir := fmt.Sprintf("/proc/%d/", pid)
	for _, link := range []string{"exe", "cwd"} {
		if target, err := os.Readlink(dir + link); err == nil && below(target, scope.Dirs) {
			return true
		}
	}
	cmdline, err := os.ReadFile(dir + "cmdline")
	if err != nil {
		return false // it ended
	}
	for _, d := range scope.Dirs {
		if strings.Contains(string(cmdline), d+"/") {
			return true
		}
	}
	groups, err := os.ReadFile(dir + "cgroup")
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(groups), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) == 3 && below(strings.Trim(parts[2], "/"), scope.Cgroups) {
			return true
		}
	}
	return false
}

// status reads a process's state, its parent and when it was started, in clock ticks since the boot,
// from /proc/PID/stat, "" if that has another form.
func status(stat string) (state, parent, started string) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", "", ""
	}
	return fields[0], fields[1], fields[19]
}

func processes(scope Scope) ([]string, error) {
	ids, err := Processes(scope)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, pid := range ids {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		state, parent, started := status(string(stat))
		if state == "Z" && parent == "1" {
			continue // it has ended, and the machine's init has it: some take seconds to take notice
		}
		lines = append(lines, fmt.Sprintf(processPrefix+"%d since %s (%s) %s", pid, started, state, strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " ")))
	}
	return lines, nil
}

func mounts(scope Scope) ([]string, error) {
	points, err := MountPoints(scope)
	if err != nil {
		return nil, err
	}
	for i, point := range points {
		points[i] = "mount on " + point
	}
	return points, nil
}

// MountPoints returns the mount points below a scope's folders, in the order in which they were
// mounted.
func MountPoints(scope Scope) ([]string, error) {
	file, err := os.Open("/proc/thread-self/mountinfo") // the calling thread may have a mount namespace of its own
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var points []string
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		// The fifth field is the mount point; a space in it is written \040.
		fields := strings.Fields(scanner.Text())
		if len(fields) < 5 {
			continue
		}
		if point := strings.ReplaceAll(fields[4], `\040`, " "); below(point, scope.Dirs) {
			points = append(points, point)
		}
	}
	return points, scanner.Err()
}

func network(scope Scope) ([]string, error) {
	if !scope.Network {
		return nil, nil
	}
	links, err := Links()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, link := range links {
		lines = append(lines, fmt.Sprintf("link %s (%s)", link.Attrs().Name, link.Type()))
	}
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, table := range tables {
		lines = append(lines, fmt.Sprintf("nftables table %d %s", table.Family, table.Name))
	}
	return lines, nil
}

// Links lists the links of this network namespace. It asks again when one came or went while the
// kernel listed them.
func Links() ([]netlink.Link, error) {
	for {
		links, err := netlink.LinkList()
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}
		return links, nil
	}
}

func cgroups(scope Scope) ([]string, error) {
	roots, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, root := range append(roots, "/sys/fs/cgroup") {
		for _, name := range scope.Cgroups {
			err := filepath.WalkDir(filepath.Join(root, name), func(path string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
					return nil
				}
				if err != nil {
					return nil // a cgroup may go while it is read
				}
				if d.IsDir() {
					lines = append(lines, "cgroup "+path)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return lines, nil
}

func files(scope Scope) ([]string, error) {
	var lines []string
	for _, dir := range scope.Dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if scope.SkipFile != nil && scope.SkipFile(path) {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			lines = append(lines, "file "+path)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("walk %q: %w", dir, err)
		}
	}
	return lines, nil
}
