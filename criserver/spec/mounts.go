package spec

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// Volumes returns the paths of the image's anonymous volumes that need a
// directory of their own: those at which the container mounts nothing.
func Volumes(image map[string]struct{}, container *runtime.ContainerConfig) []string {
	taken := map[string]bool{"/": true}
	for _, m := range container.GetMounts() {
		taken[path.Clean(m.GetContainerPath())] = true
	}
	var out []string
	for v := range image {
		if v = path.Join("/", v); !taken[v] {
			taken[v] = true
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

// mounts: the kernel's file systems, the sandbox's files, the image's volumes, the container's
// mounts; each gives way to a later one at the same place, and outer ones come before inner ones.
func (in *Input) mounts(s *specs.Spec) error {
	all := containerMounts{in}
	own, err := all.own(s)
	if err != nil {
		return err
	}
	taken := make(map[string]bool, len(own))
	for _, m := range own {
		taken[m.Destination] = true
	}
	system, err := all.system()
	if err != nil {
		return err
	}
	list := slices.DeleteFunc(system, func(m specs.Mount) bool { // what the container's own cover
		return slices.ContainsFunc(own, func(o specs.Mount) bool { return strings.HasPrefix(m.Destination+"/", o.Destination+"/") })
	})
	rest := slices.DeleteFunc(append(all.sandbox(), all.volumes()...), func(m specs.Mount) bool { return taken[m.Destination] })
	s.Mounts = slices.Concat(list, rest, own)
	sortMounts(s.Mounts)
	return nil
}

// containerMounts are the mounts of one container, by where they come from.
type containerMounts struct{ *Input }

// system are what every Linux container finds; /sys and the cgroups can be
// written by a privileged one only.
func (in containerMounts) system() ([]specs.Mount, error) {
	access := "ro"
	if in.privileged() {
		access = "rw"
	}
	sys := specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", access}}
	if network(in.Sandbox) == runtime.NamespaceMode_NODE && UserNamespace(in.Sandbox) != nil && !in.Guest {
		// Only the owner of the network namespace may mount a sysfs; the host's is shown instead.
		if !in.Host.RecursiveReadOnly {
			return nil, inField("linux.security_context.namespace_options", fmt.Errorf("the host's network with users of its own: %w", errRROUnsupported))
		}
		sys = specs.Mount{Destination: "/sys", Type: "bind", Source: "/sys", Options: []string{"rbind", "rprivate", "rro", "nosuid", "noexec", "nodev"}}
	}
	cgroups := specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", access}}
	if in.Host.CgroupV2 && in.privileged() {
		// In the host's cgroup namespace, a new mount of version 2 takes the host's options away.
		cgroups.Type, cgroups.Source, cgroups.Options = "bind", "/sys/fs/cgroup", append(cgroups.Options, "rbind", "rprivate")
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		in.shm(),
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		sys,
		cgroups,
	}, nil
}

// shm is the pod's shared memory, the host's where the pod has the host's IPC
// namespace, or the container's own where the caller gives none.
func (in containerMounts) shm() specs.Mount {
	source := in.Files.Shm
	if _, ipc, _ := Modes(in.Container, in.Sandbox); ipc == runtime.NamespaceMode_NODE {
		source = "/dev/shm"
	}
	if source == "" {
		return specs.Mount{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}}
	}
	return specs.Mount{Destination: "/dev/shm", Type: "bind", Source: source, Options: []string{"rbind", "rprivate", "rw"}}
}

// sandbox are the files that the pod's containers share.
func (in containerMounts) sandbox() []specs.Mount {
	access := "rw"
	if in.security().GetReadonlyRootfs() || in.artifact() {
		access = "ro"
	}
	var list []specs.Mount
	for _, f := range []struct{ path, source string }{
		{"/etc/hosts", in.Files.Hosts},
		{"/etc/hostname", in.Files.Hostname},
		{"/etc/resolv.conf", in.Files.ResolvConf},
	} {
		if f.source != "" {
			list = append(list, specs.Mount{Destination: f.path, Type: "bind", Source: f.source, Options: []string{"rbind", "rprivate", access}})
		}
	}
	return list
}

// volumes are the image's anonymous volumes.
func (in containerMounts) volumes() []specs.Mount {
	var list []specs.Mount
	var uids, gids []specs.LinuxIDMapping // what was copied from the image has its owners
	if ids := UserNamespace(in.Sandbox); ids != nil {
		uids, gids = []specs.LinuxIDMapping{ids.UID}, []specs.LinuxIDMapping{ids.GID}
	}
	for dst, src := range in.Volumes {
		list = append(list, specs.Mount{
			Destination: path.Join("/", dst), Type: "bind", Source: src, Options: []string{"rbind", "rprivate", "rw"},
			UIDMappings: uids, GIDMappings: gids,
		})
	}
	slices.SortFunc(list, func(a, b specs.Mount) int { return cmp.Compare(a.Destination, b.Destination) })
	return list
}

// own are those of the container's configuration.
func (in containerMounts) own(s *specs.Spec) ([]specs.Mount, error) {
	var list []specs.Mount
	seen := map[string]int{}
	for i, m := range in.Container.GetMounts() {
		out, err := in.translate(s, i, m)
		if err != nil {
			return nil, err
		}
		if first, ok := seen[out.Destination]; ok {
			return nil, invalid(field("mounts", i, "container_path"), "%q is the place of mounts[%d] too", out.Destination, first)
		}
		seen[out.Destination] = i
		list = append(list, out)
	}
	return list, nil
}

// sortMounts puts outer mounts before inner ones and keeps the order of others.
func sortMounts(list []specs.Mount) {
	depth := func(m specs.Mount) int { return strings.Count(m.Destination, "/") }
	slices.SortStableFunc(list, func(a, b specs.Mount) int { return cmp.Compare(depth(a), depth(b)) })
}

func (in containerMounts) translate(s *specs.Spec, i int, m *runtime.Mount) (specs.Mount, error) {
	none := specs.Mount{}
	name := func(f string) string { return field("mounts", i, f) }
	dst := m.GetContainerPath()
	if dst == "" {
		return none, invalid(name("container_path"), "is empty")
	}
	if dst = path.Join("/", dst); dst == "/" {
		return none, invalid(name("container_path"), "a mount cannot cover the container's root")
	}
	if err := CheckPath(dst); err != nil {
		return none, invalid(name("container_path"), "%w", err)
	}
	facts, known := in.Sources[m.GetHostPath()]
	src, err := in.source(i, m, facts.Path)
	if err != nil {
		return none, err
	}
	access, err := accessOption(name("recursive_read_only"), m, in.Host)
	if err != nil {
		return none, err
	}
	propagation, err := propagationOption(s, name("propagation"), m, facts, known)
	if err != nil {
		return none, err
	}
	options := []string{"rbind", propagation, access}
	for _, o := range m.GetMountOptions() {
		if o != "noexec" && o != "nodev" && o != "nosuid" {
			return none, invalid(name("mount_options"), "%q is not one of noexec, nodev, nosuid", o)
		}
		if !slices.Contains(options, o) {
			options = append(options, o)
		}
	}
	uids, gids, err := idMappings(name("uidMappings"), m, in.Sandbox)
	if err != nil {
		return none, err
	}
	if m.GetImage() != nil {
		uids, gids = nil, nil // its layers are mapped, as those of the root filesystem are
	}
	return specs.Mount{Destination: dst, Type: "bind", Source: src, Options: options, UIDMappings: uids, GIDMappings: gids}, nil
}

// source is the host path of a mount; real is what its host_path leads to, if that is known.
func (in containerMounts) source(i int, m *runtime.Mount, real string) (string, error) {
	switch {
	case m.GetImage() != nil && in.Images[i] == "":
		return "", unmet(field("mounts", i, "image"), "%w: it is not known where the image is", crierrors.ErrImageVolumeMountFailed)
	case m.GetImage() != nil:
		return in.Images[i], nil
	case !filepath.IsAbs(m.GetHostPath()):
		return "", invalid(field("mounts", i, "host_path"), "%q is not an absolute path", m.GetHostPath())
	case real != "":
		return real, nil
	}
	return m.GetHostPath(), nil
}

// idMappings are those of a mount that shows other owners than the disk has:
// the pod's own, for kubelets send no others.
func idMappings(field string, m *runtime.Mount, sandbox *runtime.PodSandboxConfig) (uids, gids []specs.LinuxIDMapping, err error) {
	if len(m.GetUidMappings()) == 0 && len(m.GetGidMappings()) == 0 {
		return nil, nil, nil
	}
	ids := UserNamespace(sandbox)
	if ids == nil {
		return nil, nil, invalid(field, "is given, but the pod has no user namespace of its own")
	}
	are := func(list []*runtime.IDMapping, want specs.LinuxIDMapping) bool {
		return len(list) == 1 && idMapping(list[0]) == want
	}
	if !are(m.GetUidMappings(), ids.UID) || !are(m.GetGidMappings(), ids.GID) {
		return nil, nil, unimplemented(field, "a mount with other mappings than the pod's user namespace has")
	}
	return []specs.LinuxIDMapping{ids.UID}, []specs.LinuxIDMapping{ids.GID}, nil
}

// propagationOption answers the mount option and widens the root's propagation to
// what the mount needs.
func propagationOption(s *specs.Spec, field string, m *runtime.Mount, facts Source, known bool) (string, error) {
	switch p := m.GetPropagation(); p {
	case runtime.MountPropagation_PROPAGATION_PRIVATE:
		return "rprivate", nil
	case runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		if known && !facts.Shared {
			return "", unmet(field, "is BIDIRECTIONAL, but %q is not on a shared mount", m.GetHostPath())
		}
		s.Linux.RootfsPropagation = "rshared"
		return "rshared", nil
	case runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		if known && !facts.Shared && !facts.Slave {
			return "", unmet(field, "is HOST_TO_CONTAINER, but %q is on neither a shared nor a slave mount", m.GetHostPath())
		}
		s.Linux.RootfsPropagation = cmp.Or(s.Linux.RootfsPropagation, "rslave")
		return "rslave", nil
	default:
		return "", invalid(field, "%s is not known", p)
	}
}

func accessOption(field string, m *runtime.Mount, host Host) (string, error) {
	switch {
	case !m.GetRecursiveReadOnly() && !m.GetReadonly():
		return "rw", nil
	case !m.GetRecursiveReadOnly():
		return "ro", nil
	case !m.GetReadonly():
		return "", invalid(field, "needs readonly, which is not set")
	case m.GetPropagation() != runtime.MountPropagation_PROPAGATION_PRIVATE:
		return "", invalid(field, "needs propagation PRIVATE, which is %s", m.GetPropagation())
	case !host.RecursiveReadOnly:
		// The word at the front is what clients look for.
		return "", inField(field, errRROUnsupported)
	}
	return "rro", nil
}
