package spec

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
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
	if err := in.checkNamespaces(); err != nil {
		return err
	}
	network, ipc, pid := Modes(in.Container, in.Sandbox)
	list := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	join := func(t specs.LinuxNamespaceType, path, field string) error {
		if path == "" {
			return in.unmet(field, "the sandbox has no %s namespace to join", t)
		}
		list = append(list, specs.LinuxNamespace{Type: t, Path: path})
		return nil
	}
	const options = "linux.security_context.namespace_options"
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

// checkNamespaces refuses modes that would take a container out of its
// sandbox.
func (in *Input) checkNamespaces() error {
	const options = "linux.security_context.namespace_options"
	own := in.security().GetNamespaceOptions()
	pod := in.Sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if err := checkModes(own, true); err != nil {
		return in.wrap(options, err)
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
			return in.invalid(options+"."+ns.name, "is NODE, but the sandbox's is %s", ns.pod)
		}
	}
	return nil
}

// checkModes checks one set of namespace options by itself.
func checkModes(o *runtime.NamespaceOption, container bool) error {
	invalid := func(field, format string, args ...any) error {
		return fmt.Errorf("%s: %w: %w", field, fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
	}
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
	return checkUserNamespace(o.GetUsernsOptions())
}

// checkUserNamespace accepts only the host's user namespace, which no options
// at all mean too.
func checkUserNamespace(u *runtime.UserNamespace) error {
	const field = "userns_options"
	switch {
	case u == nil:
		return nil
	case u.GetMode() == runtime.NamespaceMode_POD:
		if len(u.GetUids()) != 1 || len(u.GetGids()) != 1 {
			return fmt.Errorf("%s: want one mapping of users and one of groups, have %d and %d: %w",
				field, len(u.GetUids()), len(u.GetGids()), errdefs.ErrInvalidArgument)
		}
		return fmt.Errorf("%s.mode: POD: user namespaces are not supported: %w", field, errdefs.ErrNotImplemented)
	case u.GetMode() != runtime.NamespaceMode_NODE:
		return fmt.Errorf("%s.mode: is %s; it can be POD or NODE: %w", field, u.GetMode(), errdefs.ErrInvalidArgument)
	case len(u.GetUids()) > 0 || len(u.GetGids()) > 0:
		return fmt.Errorf("%s: mappings are given, but the mode is NODE: %w", field, errdefs.ErrInvalidArgument)
	}
	return nil
}
