package stats

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// Part is a process that counts to a pod's overhead.
type Part struct {
	// Name is "shim", "supervisor" (of a shim that several pods share), "pause", "prewarmed" (a
	// process that waits to become a guest's) or "engine" (of a guest).
	Name string
	// Container is the guest's container, "" for the others and for a prewarmed one that has none yet.
	Container string
	PID       int
	// LinearBase and LinearSize are where a guest's own memory lies in its process: that is the
	// container's work and is not counted.
	LinearBase, LinearSize uint64
	// CPU is what the part used, as far as the pod's own cgroup does not show it.
	CPU time.Duration
	// Pods is how many pods share the process, which is divided among them; 0 = it is the pod's own.
	Pods int
}

// PartUsage is a part with what it uses now.
type PartUsage struct {
	Name        string `json:"name"`
	Container   string `json:"container,omitempty"`
	PID         int    `json:"pid"`
	Pods        int    `json:"pods,omitempty"` // that share it: what follows is this pod's part
	MemoryBytes uint64 `json:"memoryBytes"`
	CPUNanos    uint64 `json:"cpuNanoseconds,omitempty"`
}

// Overhead is what a pod costs beyond its containers' own work: its shim, its pause process, and
// the engines of its guests. Memory is the proportional set size, which divides what several
// processes share among them; a process that several pods share is divided among these.
type Overhead struct {
	MemoryBytes uint64      `json:"memoryBytes"`
	CPUNanos    uint64      `json:"cpuNanoseconds"`
	Parts       []PartUsage `json:"parts"`
}

// Overhead measures now. leaf is the cgroup of shim and pause; a part whose process has exited is
// left out.
func (r *Reader) Overhead(leaf string, parts []Part) (Overhead, error) {
	out := Overhead{Parts: []PartUsage{}}
	cpu, err := r.CPU(leaf)
	if err != nil && !errdefs.IsNotFound(err) {
		return out, err
	}
	out.CPUNanos = uint64(cpu.Usage)
	for _, p := range parts {
		pss, err := ProcessMemory("/proc", p.PID, p.LinearBase, p.LinearSize)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return out, err
		}
		pss /= uint64(max(p.Pods, 1))
		out.Parts = append(out.Parts, PartUsage{
			Name: p.Name, Container: p.Container, PID: p.PID, Pods: p.Pods, MemoryBytes: pss, CPUNanos: uint64(p.CPU),
		})
		out.MemoryBytes += pss
		out.CPUNanos += uint64(p.CPU)
	}
	return out, nil
}

// Own is what a pod's containers use themselves, of what its cgroup's working set is: without the
// parts of the overhead that are in the cgroup too. With MemoryBytes it adds up to what the pod
// costs the node.
func (o Overhead) Own(workingSet uint64) uint64 {
	for _, p := range o.Parts {
		if p.Pods == 0 { // a shared process is in a cgroup of its own
			workingSet -= min(workingSet, p.MemoryBytes)
		}
	}
	return workingSet
}

// Prewarmed returns the parts in the cgroup of a process that waits to become a guest's; none if
// there is no such cgroup. The shim has a thread there while it makes the process, and is not
// counted.
func (r *Reader) Prewarmed(cg string, shim int) []Part {
	var parts []Part
	pids, _ := r.mounts.Group(cg).Pids() // those that can be listed
	for _, pid := range pids {
		if pid != shim {
			parts = append(parts, Part{Name: "prewarmed", PID: pid})
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if cpu, err := r.CPU(cg); err == nil { // else it has just become a guest's
		parts[0].CPU = cpu.Usage
	}
	return parts
}

// ProcessMemory returns a process's proportional set size in bytes, without what lies in the given
// address range. A process that has exited is ErrNotFound.
func ProcessMemory(proc string, pid int, base, size uint64) (uint64, error) {
	name := "smaps_rollup"
	if size > 0 {
		name = "smaps"
	}
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), name))
	if err == nil {
		defer f.Close()
		var n uint64
		if n, err = sumPSS(f, base, size); err == nil {
			return n, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0, fmt.Errorf("measure process %d: %w", pid, errdefs.ErrNotFound)
	}
	return 0, fmt.Errorf("measure process %d: %w", pid, err)
}

// sumPSS adds up the Pss lines of smaps or smaps_rollup. A mapping that lies partly in the range
// counts for the part outside, as if its pages were spread evenly.
func sumPSS(r io.Reader, base, size uint64) (uint64, error) {
	var sum, from, to uint64
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 16<<10), 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("line %q: %w", line, err)
			}
			sum += outside(kb<<10, from, to, base, base+size)
			continue
		}
		if a, b, ok := mapping(line); ok {
			from, to = a, b
		}
	}
	return sum, lines.Err()
}

// mapping reads the first line of a mapping: "00400000-00452000 r-xp …".
func mapping(line string) (from, to uint64, ok bool) {
	span, _, _ := strings.Cut(line, " ")
	lo, hi, ok := strings.Cut(span, "-")
	if !ok {
		return 0, 0, false
	}
	from, err1 := strconv.ParseUint(lo, 16, 64)
	to, err2 := strconv.ParseUint(hi, 16, 64)
	return from, to, err1 == nil && err2 == nil
}

func outside(bytes, from, to, base, end uint64) uint64 {
	lo, hi := max(from, base), min(to, end)
	if hi <= lo || to <= from {
		return bytes
	}
	return uint64(float64(bytes) * (1 - float64(hi-lo)/float64(to-from)))
}
