// Package gauges measures what this node has left of memory, disk, inodes and processes. Each
// reading is a few small files and two calls of statfs.
package gauges

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/kernelfile"
	"github.com/sunaba-project/sunaba/host/meminfo"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// Gauges measure the node. Its methods may be called at the same time.
type Gauges struct {
	pods, images string
	apart        bool
	logs         string // "" unless they have a file system of their own
	proc         string
	// memory is the folder of the root cgroup of the memory controller, "" without; unified says
	// that it is of version 2.
	memory  string
	unified bool
}

// Open returns gauges for a node whose pods' volumes are in one folder, images and layers in
// another one, and logs in a third. All must exist.
//
// # Errors
//
// Those of the file system.
func Open(pods, images, logs string) (*Gauges, error) {
	g := &Gauges{pods: pods, images: images, proc: "/proc"}
	var a, b, c unix.Stat_t
	if err := errors.Join(unix.Stat(pods, &a), unix.Stat(images, &b), unix.Stat(logs, &c)); err != nil {
		return nil, fmt.Errorf("find file systems of pods, images and logs: %w", err)
	}
	if g.apart = a.Dev != b.Dev; c.Dev != a.Dev {
		g.logs = logs
	}
	if m, err := cgroup.Find(); err == nil { // without cgroups, the kernel's own estimate is taken
		g.unified = m.Unified != ""
		g.memory = m.Unified
		if !g.unified {
			g.memory = m.V1["memory"]
		}
	}
	return g, nil
}

// Apart says whether images and layers have a file system of their own.
func (g *Gauges) Apart() bool { return g.apart }

// Read measures everything. What failed to be measured is left out, and named in the error.
func (g *Gauges) Read() (pressure.Readings, error) {
	readings := pressure.Readings{}
	var logs error
	if g.logs != "" {
		logs = room(readings, g.logs, pressure.LogFS, pressure.LogInodes)
	}
	return readings, errors.Join(logs,
		g.readMemory(readings), room(readings, g.pods, pressure.NodeFS, pressure.NodeInodes),
		room(readings, g.images, pressure.ImageFS, pressure.ImageInodes), g.processes(readings),
	)
}

// Settle writes out the file systems, because some count removed files as free only then.
func (g *Gauges) Settle() error {
	dirs := []string{g.pods}
	if g.apart {
		dirs = append(dirs, g.images)
	}
	if g.logs != "" {
		dirs = append(dirs, g.logs)
	}
	var errs []error
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if err == nil {
			err = errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func room(into pressure.Readings, dir string, bytes, inodes pressure.Signal) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask the file system of %q for its room: %w", dir, err)
	}
	into[bytes] = pressure.Reading{Available: int64(st.Bavail) * int64(st.Frsize), Capacity: int64(st.Blocks) * int64(st.Frsize)}
	if st.Files > 0 { // some have as many as they need
		into[inodes] = pressure.Reading{Available: int64(st.Ffree), Capacity: int64(st.Files)}
	}
	return nil
}

// readMemory measures memory as a kubelet does: the total, less what the root cgroup uses, but
// not files that were not used lately (EX3). Without a cgroup the kernel's estimate counts.
func (g *Gauges) readMemory(into pressure.Readings) error {
	sizes, err := meminfo.Read(g.proc)
	if err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	r := pressure.Reading{Available: sizes[meminfo.Available], Capacity: sizes[meminfo.Total]}
	if used, ok := g.workingSet(); ok {
		r.Available = max(r.Capacity-used, 0)
	}
	into[pressure.Memory] = r
	return nil
}

// workingSet is that of the root cgroup in bytes.
func (g *Gauges) workingSet() (bytes int64, ok bool) {
	if g.memory == "" {
		return 0, false
	}
	text, err := kernelfile.Read(filepath.Join(g.memory, "memory.stat"))
	if err != nil {
		return 0, false
	}
	stat := numbers(text)
	if g.unified { // its root has no file of the sum
		anon, known := stat["anon"]
		return anon + stat["file"] - stat["inactive_file"], known
	}
	text, err = kernelfile.Read(filepath.Join(g.memory, "memory.usage_in_bytes"))
	if err != nil {
		return 0, false
	}
	used, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return max(used-stat["total_inactive_file"], 0), err == nil
}

// numbers are the lines "NAME NUMBER" of a file.
func numbers(text string) map[string]int64 {
	table := map[string]int64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if n, err := strconv.ParseInt(fields[1], 10, 53); err == nil {
			table[fields[0]] = n
		}
	}
	return table
}

// processes counts processes and threads, which share their numbers.
func (g *Gauges) processes(into pressure.Readings) error {
	most := int64(0)
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		text, err := kernelfile.Read(filepath.Join(g.proc, name))
		if err != nil {
			return fmt.Errorf("count processes: %w", err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 53)
		if err != nil {
			return fmt.Errorf("count processes: %w", err)
		}
		if most == 0 || n < most {
			most = n
		}
	}
	text, err := kernelfile.Read(filepath.Join(g.proc, "loadavg")) // "0.20 0.18 0.12 1/80 11206"
	if err != nil {
		return fmt.Errorf("count processes: %w", err)
	}
	if fields := strings.Fields(text); len(fields) == 5 {
		if _, all, found := strings.Cut(fields[3], "/"); found {
			if n, err := strconv.ParseInt(all, 10, 53); err == nil {
				into[pressure.PIDs] = pressure.Reading{Available: max(most-n, 0), Capacity: most}
				return nil
			}
		}
	}
	return fmt.Errorf("count processes: loadavg is %q: %w", text, errdefs.ErrDataLoss)
}
