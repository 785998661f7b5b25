package engine

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/wasm/cage"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// initConfig is the configuration of a container's first guest process, and the trees that go with
// it.
func initConfig(b *shim.Bundle, entry compile.Entry, io shim.IO) (link.Config, []tree, error) {
	c, trees, err := processConfig(b, b.Spec.Process, entry, io)
	if err != nil {
		return link.Config{}, nil, err
	}
	c.ReadOnly = b.Spec.Root != nil && b.Spec.Root.Readonly
	if c.Rootfs = b.Rootfs != ""; c.Rootfs {
		trees = append(trees, tree{what: "root file system", path: b.Rootfs, recursive: true})
	}
	for _, m := range b.Spec.Mounts {
		mount := link.Mount{Type: m.Type, Destination: m.Destination, Options: m.Options}
		c.Mounts = append(c.Mounts, mount)
		if bind, recursive := mount.Bind(); bind {
			source := m.Source
			if !path.IsAbs(source) {
				source = path.Join(b.Path, source)
			}
			trees = append(trees, tree{what: fmt.Sprintf("mount %q", m.Destination), path: source, recursive: recursive})
		}
	}
	if ns := namespace(b.Spec, specs.UTSNamespace); ns != nil && ns.Path == "" {
		c.Hostname = b.Spec.Hostname
	}
	c.Listen = b.Facts.Listeners
	if entry.Load.HTTP {
		c.Listen, c.HTTP = []annotation.Listener{httpListener(b.Facts)}, b.Facts.HTTP
		if b.Spec.Linux != nil {
			c.Processors = processors(b.Spec.Linux.Resources)
		}
	}
	return c, trees, nil
}

// httpPort is where a component answers requests that is told of no port.
const httpPort = 8080

// httpListener is where a component answers requests: on the port that its annotation names, else
// on the first of its container, else on httpPort.
func httpListener(f annotation.Facts) annotation.Listener {
	l := annotation.Listener{Name: "http", Port: httpPort}
	if len(f.Listeners) > 0 {
		l = f.Listeners[0]
	}
	if f.HTTP.Port != 0 {
		l.Port = f.HTTP.Port
	}
	l.Optional = false // without it there is no server
	return l
}

// processors is how many processors a limit of CPU time allows to use at once, 0 = no limit.
func processors(r *specs.LinuxResources) int {
	if r == nil || r.CPU == nil || r.CPU.Quota == nil || r.CPU.Period == nil || *r.CPU.Quota <= 0 || *r.CPU.Period == 0 {
		return 0
	}
	return int(min((uint64(*r.CPU.Quota)+*r.CPU.Period-1) / *r.CPU.Period, math.MaxInt16))
}

// processConfig is what every guest process of a container has.
func processConfig(b *shim.Bundle, p *specs.Process, entry compile.Entry, io shim.IO) (link.Config, []tree, error) {
	c := link.Config{
		Args:          p.Args,
		Env:           environment(p),
		Load:          entry.Load,
		StartFunction: entry.StartFunction,
		NoStdin:       io.Stdin == nil,
		StopWait:      b.Facts.StopWait,
		Umask:         p.User.Umask,
	}
	user, err := outside(p.User, b.Spec)
	if err != nil {
		return link.Config{}, nil, err
	}
	c.UID, c.GID, c.Groups = identity(user)
	for _, l := range p.Rlimits {
		resource, ok := rlimits[l.Type]
		if !ok {
			return link.Config{}, nil, fmt.Errorf("resource limit %q is not known: %w", l.Type, errdefs.ErrInvalidArgument)
		}
		c.Rlimits = append(c.Rlimits, link.Rlimit{Resource: resource, Soft: l.Soft, Hard: l.Hard})
	}
	if b.Spec.Linux != nil {
		c.Memory = memoryLimit(b.Spec.Linux.Resources)
		c.Engine = enginePart(entry)
	}
	return c, []tree{{what: "compiled module", path: entry.Dir, stale: true}}, nil
}

// environment is the process's, with PWD for the guests that take their working directory from
// there: WASI has none.
func environment(p *specs.Process) []string {
	has := slices.ContainsFunc(p.Env, func(v string) bool { return strings.HasPrefix(v, "PWD=") })
	if p.Cwd == "" || has {
		return p.Env
	}
	return append(slices.Clip(p.Env), "PWD="+p.Cwd)
}

// outside is who a user of the container is on the machine. In a pod with a user namespace of its
// own a guest process is a user of the pod's range, its root too. It does not join the namespace,
// in which it would have no more rights than outside: none. Its files have the owners of the
// namespace by the mounts that show them.
//
// # Errors
//
// ErrInvalidArgument for ids that the namespace does not map.
func outside(u specs.User, spec *specs.Spec) (specs.User, error) {
	if namespace(spec, specs.UserNamespace) == nil {
		return u, nil
	}
	var err error
	if u.UID, err = mapID("user", u.UID, spec.Linux.UIDMappings); err != nil {
		return u, err
	}
	if u.GID, err = mapID("group", u.GID, spec.Linux.GIDMappings); err != nil {
		return u, err
	}
	u.AdditionalGids = slices.Clone(u.AdditionalGids)
	for i, gid := range u.AdditionalGids {
		if u.AdditionalGids[i], err = mapID("group", gid, spec.Linux.GIDMappings); err != nil {
			return u, err
		}
	}
	return u, nil
}

func mapID(kind string, id uint32, maps []specs.LinuxIDMapping) (uint32, error) {
	for _, m := range maps {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return m.HostID + (id - m.ContainerID), nil
		}
	}
	return 0, fmt.Errorf("%s %d is not in the container's user namespace: %w", kind, id, errdefs.ErrInvalidArgument)
}

// identity is whom a guest runs as. Root becomes user nobody, its group and supplementary group 0
// too; every other user is taken as given.
func identity(u specs.User) (uid, gid uint32, groups []uint32) {
	if u.UID != 0 {
		return u.UID, u.GID, u.AdditionalGids
	}
	groups = slices.DeleteFunc(slices.Clone(u.AdditionalGids), func(g uint32) bool { return g == 0 })
	return cage.Nobody, cmp.Or(u.GID, cage.Nobody), groups
}

// memoryLimit is the container's limit in bytes, 0 = none.
func memoryLimit(r *specs.LinuxResources) uint64 {
	if r == nil || r.Memory == nil || r.Memory.Limit == nil || *r.Memory.Limit <= 0 {
		return 0
	}
	return uint64(*r.Memory.Limit)
}

var rlimits = map[string]int{
	"RLIMIT_AS":         unix.RLIMIT_AS,
	"RLIMIT_CORE":       unix.RLIMIT_CORE,
	"RLIMIT_CPU":        unix.RLIMIT_CPU,
	"RLIMIT_DATA":       unix.RLIMIT_DATA,
	"RLIMIT_FSIZE":      unix.RLIMIT_FSIZE,
	"RLIMIT_LOCKS":      unix.RLIMIT_LOCKS,
	"RLIMIT_MEMLOCK":    unix.RLIMIT_MEMLOCK,
	"RLIMIT_MSGQUEUE":   unix.RLIMIT_MSGQUEUE,
	"RLIMIT_NICE":       unix.RLIMIT_NICE,
	"RLIMIT_NOFILE":     unix.RLIMIT_NOFILE,
	"RLIMIT_NPROC":      unix.RLIMIT_NPROC,
	"RLIMIT_RSS":        unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO":     unix.RLIMIT_RTPRIO,
	"RLIMIT_RTTIME":     unix.RLIMIT_RTTIME,
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
	"RLIMIT_STACK":      unix.RLIMIT_STACK,
}

// namespace is the spec's entry of one type, nil without one.
func namespace(s *specs.Spec, kind specs.LinuxNamespaceType) *specs.LinuxNamespace {
	if s.Linux == nil {
		return nil
	}
	for i := range s.Linux.Namespaces {
		if s.Linux.Namespaces[i].Type == kind {
			return &s.Linux.Namespaces[i]
		}
	}
	return nil
}
