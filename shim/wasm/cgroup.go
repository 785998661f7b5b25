package wasm

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup is the container's own.
type cgroup struct {
	mu      sync.Mutex // managers keep what was set last
	manager cgroups.Manager
	path    string // below the hierarchies' mount points
	systemd bool
	oomed   uint64 // OOM kills before it was opened
}

// newCgroup makes the container's cgroup with its limits, but for systemd, whose scopes begin with their first process.
func newCgroup(b *shim.Bundle) (*cgroup, error) {
	g, err := openCgroup(b, nil)
	if err != nil {
		return nil, err
	}
	if err := g.make(); err != nil {
		return nil, errors.Join(err, g.manager.Destroy())
	}
	return g, nil
}

// openCgroup finds out what the container's cgroup is to be. paths are its directories by controller, of version 1, if they are known.
func openCgroup(b *shim.Bundle, paths map[string]string) (*cgroup, error) {
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{}}
	given := ""
	if b.Spec.Linux != nil {
		given = b.Spec.Linux.CgroupsPath
		config.Resources = resources(b.Spec.Linux.Resources, engineReserve)
	}
	g := &cgroup{}
	var err error
	if parent, prefix, name, ok := splitScope(given); ok {
		g.systemd = true
		config.Systemd, config.Parent, config.ScopePrefix, config.Name = true, parent, prefix, name
		if g.path, err = scopePath(parent, prefix, name); err != nil {
			return nil, err
		}
		g.manager, err = manager.New(config)
	} else {
		g.path = cgroupPath(b)
		config.Path = g.path
		if cgroups.IsCgroup2UnifiedMode() {
			g.manager, err = manager.New(config)
		} else {
			if paths == nil {
				paths = v1Paths(g.path)
			}
			g.manager, err = fs.NewManager(config, paths)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open cgroup %q: %w", given, err)
	}
	g.oomed = g.oomKills()
	return g, nil
}

// make makes the cgroup with its limits. systemd's is made with its first process.
func (g *cgroup) make() error {
	if g.systemd {
		return nil
	}
	config, err := g.manager.GetCgroups()
	if err == nil {
		err = g.join(-1, config.Resources)
	}
	if err != nil {
		return fmt.Errorf("make cgroup %q: %w", g.path, err)
	}
	return nil
}

// cgroupPath is where the container's cgroup is, below the hierarchies' mount points, unless systemd makes it.
func cgroupPath(b *shim.Bundle) string {
	if b.Spec.Linux == nil || b.Spec.Linux.CgroupsPath == "" {
		return path.Join("/", b.Namespace, b.ID)
	}
	return path.Join("/", b.Spec.Linux.CgroupsPath)
}

// join makes the cgroup with a process (-1 = none) and sets its limits.
func (g *cgroup) join(pid int, r *cgroups.Resources) error {
	if err := g.manager.Apply(pid); err != nil {
		return err
	}
	return g.manager.Set(r)
}

// begin puts the container's first process into the cgroup.
func (g *cgroup) begin(pid int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.systemd {
		return g.manager.AddPid("", pid)
	}
	config, err := g.manager.GetCgroups()
	if err != nil {
		return err
	}
	return g.join(pid, config.Resources)
}

// add puts a further process into the cgroup.
func (g *cgroup) add(pid int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.manager.AddPid("", pid)
}

// dir opens the cgroup for clone3, which puts a process there at birth. Version 1 cannot: nil.
func (g *cgroup) dir() (*os.File, error) {
	if g.systemd && !g.manager.Exists() || !cgroups.IsCgroup2UnifiedMode() {
		return nil, nil
	}
	return os.Open(g.manager.Path(""))
}

// enterThread moves the calling thread into the cgroup, so that the process it forks is born there, and
// says whether it did. It is for version 1: there a thread moves itself at little cost, while moving a process waits
// until the whole kernel has taken notice, which is many milliseconds. The thread is to end thereafter.
func (g *cgroup) enterThread() bool {
	if cgroups.IsCgroup2UnifiedMode() || g.systemd && !g.manager.Exists() {
		return false
	}
	for _, dir := range g.manager.GetPaths() {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			return false
		}
	}
	return true
}

// limit sets the limits of a cgroup that is there.
func (g *cgroup) limit() error {
	config, err := g.manager.GetCgroups()
	if err == nil && config.CpuRtPeriod == 0 && config.CpuRtRuntime == 0 {
		err = g.manager.Set(config.Resources)
	} else if err == nil {
		err = g.join(-1, config.Resources) // the library sets those of real time with that
	}
	if err != nil {
		return fmt.Errorf("limit cgroup %q: %w", g.path, err)
	}
	return nil
}

// update changes limits. part is the engine's of the memory.
func (g *cgroup) update(r *specs.LinuxResources, part uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.manager.Set(resources(r, part))
}

func (g *cgroup) freeze(state cgroups.FreezerState) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.manager.Freeze(state)
}

// pids lists the processes in the cgroup.
func (g *cgroup) pids() ([]int, error) {
	dir := g.manager.Path("")
	for _, controller := range []string{"pids", "memory", "freezer"} {
		if dir == "" {
			dir = g.manager.Path(controller)
		}
	}
	pids, err := cgroups.GetAllPids(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return pids, err
}

// oomKills counts what the kernel has killed in the cgroup for lack of memory.
func (g *cgroup) oomKills() uint64 {
	n, err := g.manager.OOMKillCount()
	if err != nil {
		return 0 // no memory controller
	}
	return n
}

func (g *cgroup) oomKilled() bool { return g.oomKills() > g.oomed }

// destroy removes the cgroup, which has no processes any more. It is idempotent, and nothing for nil.
func (g *cgroup) destroy() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.manager.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %q: %w", g.path, err)
	}
	return nil
}

// v1Paths finds the hierarchies of cgroup version 1 where they usually are; nil leaves the search in
// the mount table, which is long on a busy node, to the library. The hybrid layout's second version is
// left out: nothing of a container is accounted there.
func v1Paths(inner string) map[string]string {
	paths := make(map[string]string)
	for _, name := range []string{"cpuset", "devices", "memory", "cpu", "cpuacct", "pids", "blkio", "hugetlb",
		"net_cls", "net_prio", "perf_event", "freezer", "rdma", "misc", "name=systemd"} {
		dir := filepath.Join(cgroupRoot, strings.TrimPrefix(name, "name="))
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && int64(st.Type) == unix.CGROUP_SUPER_MAGIC {
			paths[name] = filepath.Join(dir, inner)
		}
	}
	if paths["memory"] == "" || paths["devices"] == "" {
		return nil
	}
	return paths
}

// splitScope reads the systemd form of a cgroup path, "slice:prefix:name".
func splitScope(given string) (parent, prefix, name string, ok bool) {
	parts := strings.Split(given, ":")
	if len(parts) != 3 || strings.HasPrefix(given, "/") {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// leafOf is the name of the container's cgroup: an OCI cgroupsPath in one form.
func leafOf(b *shim.Bundle) string {
	if isScope(b.Spec) {
		return b.Spec.Linux.CgroupsPath
	}
	return cgroupPath(b)
}

// atBirth is what of a scope's settings systemd takes only when it makes the scope, by their values.
func atBirth(spec *specs.Spec) (oomGroup string, realtime bool) {
	if !isScope(spec) || spec.Linux.Resources == nil {
		return "", false
	}
	r := spec.Linux.Resources
	return r.Unified[oomGroupFile], r.CPU != nil && (r.CPU.RealtimePeriod != nil || r.CPU.RealtimeRuntime != nil)
}

// oomGroupFile says whether all processes of a cgroup die together when one is killed for lack of memory.
const oomGroupFile = "memory.oom.group"

// isScope says whether the container's cgroup is one that systemd makes.
func isScope(spec *specs.Spec) bool {
	if spec.Linux == nil {
		return false
	}
	_, _, _, scope := splitScope(spec.Linux.CgroupsPath)
	return scope
}

// scopePath is where systemd puts a scope.
func scopePath(parent, prefix, name string) (string, error) {
	if parent == "" {
		parent = "system.slice"
	}
	slice, err := systemd.ExpandSlice(parent)
	if err != nil {
		return "", fmt.Errorf("cgroup parent %q: %w", parent, err)
	}
	return path.Join(slice, prefix+"-"+name+".scope"), nil
}

// resources turns the spec's limits into the library's, with the engine's part of the memory. Devices are not limited by cgroup: no mount of a
// guest has any but the harmless ones.
func resources(r *specs.LinuxResources, part uint64) *cgroups.Resources {
	out := &cgroups.Resources{}
	if r == nil {
		return out
	}
	if m := r.Memory; m != nil {
		out.Memory = value(m.Limit)
		out.MemoryReservation = value(m.Reservation)
		out.MemorySwap = value(m.Swap)
		out.MemorySwappiness = m.Swappiness
		out.OomKillDisable = value(m.DisableOOMKiller)
	}
	if c := r.CPU; c != nil {
		out.CpuShares = value(c.Shares)
		out.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(out.CpuShares)
		out.CpuQuota = value(c.Quota)
		out.CpuBurst = c.Burst
		out.CpuPeriod = value(c.Period)
		out.CpuRtRuntime = value(c.RealtimeRuntime)
		out.CpuRtPeriod = value(c.RealtimePeriod)
		out.CpusetCpus = c.Cpus
		out.CpusetMems = c.Mems
		out.CPUIdle = c.Idle
	}
	if r.Pids != nil {
		out.PidsLimit = r.Pids.Limit
	}
	for _, h := range r.HugepageLimits {
		out.HugetlbLimit = append(out.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: h.Pagesize, Limit: h.Limit})
	}
	blockIO(out, r.BlockIO)
	out.Unified = r.Unified
	withEngine(out, part)
	return out
}

func blockIO(out *cgroups.Resources, b *specs.LinuxBlockIO) {
	if b == nil {
		return
	}
	out.BlkioWeight = value(b.Weight)
	out.BlkioLeafWeight = value(b.LeafWeight)
	for _, w := range b.WeightDevice {
		out.BlkioWeightDevice = append(out.BlkioWeightDevice, cgroups.NewWeightDevice(w.Major, w.Minor, value(w.Weight), value(w.LeafWeight)))
	}
	throttle := func(in []specs.LinuxThrottleDevice) (all []*cgroups.ThrottleDevice) {
		for _, t := range in {
			all = append(all, cgroups.NewThrottleDevice(t.Major, t.Minor, t.Rate))
		}
		return all
	}
	out.BlkioThrottleReadBpsDevice = throttle(b.ThrottleReadBpsDevice)
	out.BlkioThrottleWriteBpsDevice = throttle(b.ThrottleWriteBpsDevice)
	out.BlkioThrottleReadIOPSDevice = throttle(b.ThrottleReadIOPSDevice)
	out.BlkioThrottleWriteIOPSDevice = throttle(b.ThrottleWriteIOPSDevice)
}

// value is what p points to, or nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
