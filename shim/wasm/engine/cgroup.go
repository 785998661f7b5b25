package engine

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim"
)

// limited is the container's own cgroup with its limits.
type limited struct {
	*cgroup.Group
	mu      sync.Mutex      // managers keep what was set last
	manager cgroups.Manager // sets limits, freezes, and asks systemd for scopes
	removed bool            // by destroy
	systemd bool
	oomed   uint64 // OOM kills before it was opened
}

// newCgroup creates the container's cgroup with its limits, except a scope, which systemd creates
// with its first process.
func newCgroup(b *shim.Bundle) (*limited, error) {
	g, err := openCgroup(b, nil)
	if err != nil {
		return nil, err
	}
	if err := g.make(); err != nil {
		return nil, errors.Join(err, g.manager.Destroy())
	}
	return g, nil
}

// openCgroup finds out what the container's cgroup is to be. paths are its directories by
// controller, of version 1, if they are known.
func openCgroup(b *shim.Bundle, paths map[string]string) (*limited, error) {
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{}}
	given := ""
	if b.Spec.Linux != nil {
		given = b.Spec.Linux.CgroupsPath
		config.Resources = resources(b.Spec.Linux.Resources, engineReserve)
	}
	mounts, err := cgroup.Usual()
	if err != nil {
		mounts, err = cgroup.Find()
	}
	if err != nil {
		return nil, err
	}
	g := &limited{}
	if parent, prefix, name, ok := splitScope(given); ok {
		g.systemd = true
		config.Systemd, config.Parent, config.ScopePrefix, config.Name = true, parent, prefix, name
		path := cgroup.Path(given, true)
		if path == "" {
			return nil, fmt.Errorf("cgroup parent %q: invalid slice name", parent)
		}
		g.Group = mounts.Group(path)
		g.manager, err = manager.New(config)
		if err != nil {
			return nil, fmt.Errorf("open cgroup %q: %w", given, err)
		}
	} else {
		g.Group = mounts.Group(cgroupPath(b))
		config.Path = g.Path()
		if paths == nil && !g.Unified() {
			paths = v1Paths(g.Group)
		}
		g.manager, err = manager.NewWithPaths(config, paths)
		if err != nil {
			return nil, fmt.Errorf("open cgroup %q: %w", given, err)
		}
	}
	g.oomed = g.OOMKills()
	return g, nil
}

// make makes the cgroup with its limits. systemd's is made with its first process.
func (g *limited) make() error {
	if g.systemd {
		return nil
	}
	config, err := g.manager.GetCgroups()
	if err == nil {
		err = g.join(-1, config.Resources)
	}
	if err != nil {
		return fmt.Errorf("make cgroup %q: %w", g.Path(), err)
	}
	return nil
}

// cgroupPath is where the container's cgroup is, below the hierarchies' mount points, unless
// systemd makes it.
func cgroupPath(b *shim.Bundle) string {
	if b.Spec.Linux == nil || b.Spec.Linux.CgroupsPath == "" {
		return path.Join("/", b.Namespace, b.ID)
	}
	return path.Join("/", b.Spec.Linux.CgroupsPath)
}

// join makes the cgroup with a process (-1 = none) and sets its limits.
func (g *limited) join(pid int, r *cgroups.Resources) error {
	if err := g.manager.Apply(pid); err != nil {
		return err
	}
	return g.manager.Set(r)
}

// enter puts the container's first process into the cgroup.
func (g *limited) enter(pid int) error {
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
func (g *limited) add(pid int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.manager.AddPid("", pid)
}

// dir opens the cgroup for clone3, which puts a process there at birth. Version 1 cannot: nil.
func (g *limited) dir() (*os.File, error) {
	if !g.Unified() || g.systemd && !g.manager.Exists() {
		return nil, nil
	}
	return os.Open(g.Dir(""))
}

// enterThread moves the calling thread into a cgroup of version 1, so that the process that it
// forks is born there, and says whether it did. The thread must end thereafter.
func (g *limited) enterThread() bool {
	if g.Unified() || g.systemd && !g.manager.Exists() {
		return false
	}
	return g.EnterThread() == nil
}

// limit sets the limits of a cgroup that is there.
func (g *limited) limit() error {
	config, err := g.manager.GetCgroups()
	if err == nil && config.CpuRtPeriod == 0 && config.CpuRtRuntime == 0 {
		err = g.manager.Set(config.Resources)
	} else if err == nil {
		err = g.join(-1, config.Resources) // the library sets those of real time with that
	}
	if err != nil {
		return fmt.Errorf("limit cgroup %q: %w", g.Path(), err)
	}
	return nil
}

// update changes limits. part is the engine's of the memory.
// errDeleted is for what is asked of a container while it is deleted, or afterwards.
var errDeleted = fmt.Errorf("the container is deleted: %w", errdefs.ErrFailedPrecondition)

func (g *limited) update(r *specs.LinuxResources, part uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return errDeleted
	}
	return g.manager.Set(resources(r, part))
}

func (g *limited) freeze(state cgroups.FreezerState) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return errDeleted
	}
	for range 8 { // with version 1, a try ends after 0.2 s, in which threads of a busy machine may not run
		if err = g.manager.Freeze(state); err == nil {
			break
		}
	}
	return err
}

func (g *limited) oomKilled() bool { return g.OOMKills() > g.oomed }

// destroy removes the cgroup, which has no processes any more. It is idempotent, and nothing for
// nil.
func (g *limited) destroy() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removed = true
	if err := g.manager.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %q: %w", g.Path(), err)
	}
	return nil
}

// v1Paths are the directories of a group of version 1 by controller; nil leaves the search in the
// mount table, which is long on a busy node, to the library. The version 2 hierarchy beside is left
// out: nothing of a container is accounted there.
func v1Paths(g *cgroup.Group) map[string]string {
	if g.Dir("memory") == "" || g.Dir("devices") == "" {
		return nil
	}
	paths := make(map[string]string)
	for controller := range g.Mounts().V1 {
		paths[controller] = g.Dir(controller)
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

// atBirth is what of a scope's settings systemd takes only when it makes the scope, by their
// values.
func atBirth(spec *specs.Spec) (oomGroup string, realtime bool) {
	if !isScope(spec) || spec.Linux.Resources == nil {
		return "", false
	}
	r := spec.Linux.Resources
	return r.Unified[oomGroupFile], r.CPU != nil && (r.CPU.RealtimePeriod != nil || r.CPU.RealtimeRuntime != nil)
}

// oomGroupFile says whether all processes of a cgroup die together when one is killed for lack of
// memory.
const oomGroupFile = "memory.oom.group"

// isScope says whether the container's cgroup is one that systemd makes.
func isScope(spec *specs.Spec) bool {
	if spec.Linux == nil {
		return false
	}
	_, _, _, scope := splitScope(spec.Linux.CgroupsPath)
	return scope
}

// resources turns the spec's limits into the library's, with the engine's part of the memory.
// Devices are not limited by cgroup: no mount of a guest has any except the harmless ones.
func resources(r *specs.LinuxResources, part uint64) *cgroups.Resources {
	out := cgroup.Resources(r)
	if r != nil {
		withEngine(out, part)
	}
	return out
}
