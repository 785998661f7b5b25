package engine

import (
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// engineReserve is what the engine itself may take beside the guest's memory and what it keeps of
// its compiled module, in bytes. httpReserve is what it takes beyond that for connections and the
// instances that answer their requests.
const (
	engineReserve = 16 << 20
	httpReserve   = 16 << 20
)

// enginePart is what the engine may take of memory in a container that runs a module, in bytes. The
// container's limit is the guest's alone: its cgroup is limited to both, and the pod's overhead has
// the engine's part.
func enginePart(entry compile.Entry) uint64 {
	part := engineReserve + uint64(max(entry.Size-int64(entry.Load.CodeSize)-int64(entry.Load.ImageSize), 0))
	if entry.Load.HTTP {
		part += httpReserve
	}
	var st unix.Statfs_t
	if err := unix.Statfs(entry.Dir, &st); err == nil && st.Flags&unix.ST_NOEXEC != 0 {
		part += entry.Load.CodeSize // no mapping for all guests: each has a copy
	}
	const page = 64 << 10 // a multiple of any kernel's, which rounds limits
	return (part + page - 1) / page * page
}

// withEngine adds the engine's part to limits of memory.
func withEngine(r *cgroups.Resources, part uint64) {
	r.Memory = plus(r.Memory, part)
	r.MemorySwap = plus(r.MemorySwap, part)
	for _, name := range []string{"memory.max", "memory.high"} {
		n, err := strconv.ParseInt(strings.TrimSpace(r.Unified[name]), 10, 64)
		if err != nil || n <= 0 {
			continue // not given, or "max"
		}
		r.Unified = maps.Clone(r.Unified)
		r.Unified[name] = strconv.FormatInt(plus(n, part), 10)
	}
}

// plus adds to a limit; 0 and -1 are none.
func plus(limit int64, part uint64) int64 {
	if limit <= 0 || part > uint64(math.MaxInt64-limit) {
		return limit
	}
	return limit + int64(part)
}

// makeRoom gives the engine its part, when the module is known, in a cgroup that was made with
// less.
func (g *limited) makeRoom(spec *specs.Spec, part uint64) error {
	if part <= engineReserve || spec.Linux == nil || memoryLimit(spec.Linux.Resources) == 0 {
		return nil
	}
	if g.systemd && !g.manager.Exists() { // it is made with its first process
		config, err := g.manager.GetCgroups()
		if err == nil {
			config.Resources = resources(spec.Linux.Resources, part)
		}
		return err
	}
	r := spec.Linux.Resources
	return g.update(&specs.LinuxResources{Memory: r.Memory, Unified: memoryOf(r.Unified)}, part)
}

// memoryOf is what of these settings is about memory.
func memoryOf(unified map[string]string) map[string]string {
	unified = maps.Clone(unified)
	maps.DeleteFunc(unified, func(name, _ string) bool { return !strings.HasPrefix(name, "memory.") })
	return unified
}
