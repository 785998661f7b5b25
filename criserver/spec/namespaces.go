package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Modes returns the namespace modes of a container. Network and IPC are
// always the sandbox's; PID is the container's own choice, or the sandbox's
// where the container's configuration has no namespace options at all.
func Modes(container *runtime.ContainerConfig, sandbox *runtime.PodSandboxConfig) (network, ipc, pid runtime.NamespaceMode) {
	pod := sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
	own := container.GetLinux().GetSecurityContext().GetNamespaceOptions()
	pid = pod.GetPid()
	if own != nil {
		pid = own.GetPid()
	}
	return pod.GetNetwork(), pod.GetIpc(), pid
}

func (in *Input) namespaces(s *specs.Spec) error {
	if err := checkNamespaces(in.Container, in.Sandbox); err != nil {
		return err
	}
	network, ipc, pid := Modes(in.Container, in.Sandbox)
	list := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	if ids := UserNamespace(in.Sandbox); ids != nil {
		// Runtimes want the mappings too, although the namespace has them.
		s.Linux.UIDMappings, s.Linux.GIDMappings = []specs.LinuxIDMapping{ids.UID}, []specs.LinuxIDMapping{ids.GID}
	}
	join := func(t specs.LinuxNamespaceType, path, field string) error {
		if path == "" {
			return unmet(field, "the sandbox has no %s namespace to join", t)
		}
		list = append(list, specs.LinuxNamespace{Type: t, Path: path})
		return nil
	}
	const options = "linux.security_context.namespace_options"
	if s.Linux.UIDMappings != nil {
		if err := join(specs.UserNamespace, in.Namespaces.User, options+".userns_options"); err != nil {
			return err
		}
	}
	switch pid {
	case runtime.NamespaceMode_CONTAINER:
		list = append(list, specs.LinuxNamespace{Type: specs.PIDNamespace})
	case runtime.NamespaceMode_POD, runtime.NamespaceMode_TARGET:
		if err := join(specs.PIDNamespace, in.Namespaces.PID, options+".pid"); err != nil {
			return err
		}
	}
	if network != runtime.NamespaceMode_NODE {
		if err := join(specs.NetworkNamespace, in.Namespaces.Net, options+".network"); err != nil {
			return err
		}
		list = append(list, specs.LinuxNamespace{Type: specs.UTSNamespace, Path: in.Namespaces.UTS})
		if in.Namespaces.UTS == "" {
			s.Hostname = Hostname(in.Sandbox, in.Host)
		}
	}
	if ipc != runtime.NamespaceMode_NODE {
		if err := join(specs.IPCNamespace, in.Namespaces.IPC, options+".ipc"); err != nil {
			return err
		}
	}
	if in.Host.CgroupV2 && !in.privileged() {
		list = append(list, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	s.Linux.Namespaces = list
	return nil
}

// checkNamespaces refuses modes that would take a container out of its sandbox.
func checkNamespaces(container *runtime.ContainerConfig, sandbox *runtime.PodSandboxConfig) error {
	const options = "linux.security_context.namespace_options"
	own := container.GetLinux().GetSecurityContext().GetNamespaceOptions()
	pod := sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if err := checkModes(own, true); err != nil {
		return inField(options, err)
	}
	for _, ns := range []struct {
		name     string
		own, pod runtime.NamespaceMode
	}{
		{"network", own.GetNetwork(), pod.GetNetwork()},
		{"ipc", own.GetIpc(), pod.GetIpc()},
		{"pid", own.GetPid(), pod.GetPid()},
	} {
		if ns.own == runtime.NamespaceMode_NODE && ns.pod != runtime.NamespaceMode_NODE {
			return invalid(options+"."+ns.name, "is NODE, but the sandbox's is %s", ns.pod)
		}
	}
	// No options at all are the sandbox's, as with network and IPC.
	if u := own.GetUsernsOptions(); u != nil && !sameUserNamespace(u, pod.GetUsernsOptions()) {
		return invalid(options+".userns_options", "are not the sandbox's")
	}
	return nil
}

// sameUserNamespace compares valid options.
func sameUserNamespace(a, b *runtime.UserNamespace) bool {
	own := func(u *runtime.UserNamespace) bool { return u != nil && u.GetMode() == runtime.NamespaceMode_POD }
	if !own(a) || !own(b) {
		return own(a) == own(b)
	}
	return proto.Equal(a, b)
}

// checkModes checks one set of namespace options by itself.
func checkModes(o *runtime.NamespaceOption, container bool) error {
	for _, ns := range []struct {
		field string
		mode  runtime.NamespaceMode
	}{{"network", o.GetNetwork()}, {"ipc", o.GetIpc()}} {
		if ns.mode != runtime.NamespaceMode_POD && ns.mode != runtime.NamespaceMode_NODE {
			return invalid(ns.field, "is %s; it can be POD or NODE", ns.mode)
		}
	}
	switch mode := o.GetPid(); mode {
	case runtime.NamespaceMode_POD, runtime.NamespaceMode_CONTAINER, runtime.NamespaceMode_NODE:
		if o.GetTargetId() != "" {
			return invalid("target_id", "is given, but pid is %s", mode)
		}
	case runtime.NamespaceMode_TARGET:
		if !container {
			return invalid("pid", "is TARGET, which only a container can have")
		}
		if o.GetTargetId() == "" {
			return invalid("target_id", "is empty, but pid is TARGET")
		}
	default:
		return invalid("pid", "%s is not known", mode)
	}
	return checkUserNamespace(o)
}

// UserNamespace returns the ids of the sandbox's own user namespace, nil if it
// has the host's. The configuration must have passed ValidateSandbox.
func UserNamespace(sandbox *runtime.PodSandboxConfig) *IDMappings {
	u := sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if u.GetMode() != runtime.NamespaceMode_POD || len(u.GetUids()) != 1 || len(u.GetGids()) != 1 {
		return nil
	}
	return &IDMappings{UID: idMapping(u.GetUids()[0]), GID: idMapping(u.GetGids()[0])}
}

func idMapping(m *runtime.IDMapping) specs.LinuxIDMapping {
	return specs.LinuxIDMapping{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Size: m.GetLength()}
}

// IDMappings say who users and groups of a user namespace are outside it; both
// start with the namespace's root.
type IDMappings struct{ UID, GID specs.LinuxIDMapping }

// checkUserNamespace: a pod has the host's user namespace, which no options at
// all mean too, or one of its own with one range of users and one of groups.
func checkUserNamespace(o *runtime.NamespaceOption) error {
	const field = "userns_options"
	u := o.GetUsernsOptions()
	switch {
	case u == nil:
		return nil
	case u.GetMode() != runtime.NamespaceMode_POD && u.GetMode() != runtime.NamespaceMode_NODE:
		return invalid(field+".mode", "is %s; it can be POD or NODE", u.GetMode())
	case u.GetMode() == runtime.NamespaceMode_NODE && len(u.GetUids())+len(u.GetGids()) > 0:
		return invalid(field, "mappings are given, but the mode is NODE")
	case u.GetMode() == runtime.NamespaceMode_NODE:
		return nil
	case len(u.GetUids()) != 1 || len(u.GetGids()) != 1:
		return invalid(field, "want one mapping of users and one of groups, have %d and %d", len(u.GetUids()), len(u.GetGids()))
	}
	for _, m := range []struct {
		name string
		ids  *runtime.IDMapping
	}{{"uids", u.GetUids()[0]}, {"gids", u.GetGids()[0]}} {
		switch name := field + "." + m.name + "[0]"; {
		case m.ids.GetContainerId() != 0:
			return invalid(name+".container_id", "is %d; the namespace's root, 0, must be mapped", m.ids.GetContainerId())
		case m.ids.GetLength() == 0:
			return invalid(name+".length", "is 0")
		case uint64(m.ids.GetHostId())+uint64(m.ids.GetLength()) > 1<<32-1:
			return invalid(name, "ends beyond the last id")
		}
	}
	for _, ns := range []struct {
		name string
		mode runtime.NamespaceMode
	}{{"ipc", o.GetIpc()}, {"pid", o.GetPid()}} {
		if ns.mode == runtime.NamespaceMode_NODE {
			return unimplemented(ns.name, "is NODE, which a pod with a user namespace of its own cannot have")
		}
	}
	return nil
}
