package spec

import (
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// pauseOOMScoreAdj keeps the process that holds a pod together alive longer than what runs in it.
const pauseOOMScoreAdj = -998

// PauseInput is everything that decides the specification of a sandbox's
// pause process, which holds the PID namespace that its containers share.
type PauseInput struct {
	SandboxID string
	Sandbox   *runtime.PodSandboxConfig
	Handler   runtimeclass.Type
	// Namespaces are the pinned ones, "" for the host's.
	Namespaces  Namespaces
	CgroupsPath string
	Host        Host
}

// Pause returns the specification of the pause process: no root filesystem,
// no capabilities, the sandbox's namespaces and a new PID namespace.
//
// # Errors
//
// ErrInvalidArgument for user or group ids that cannot be.
func Pause(in PauseInput) (*specs.Spec, error) {
	if in.Sandbox == nil || in.SandboxID == "" {
		return nil, fmt.Errorf("translate pause of sandbox %q: id and configuration are both needed: %w", in.SandboxID, errdefs.ErrInvalidArgument)
	}
	user, err := pauseUser(in.Sandbox.GetLinux().GetSecurityContext())
	if err != nil {
		return nil, fmt.Errorf("translate pause of sandbox %q: %w", in.SandboxID, err)
	}
	list := []specs.LinuxNamespace{{Type: specs.PIDNamespace}}
	for _, ns := range []specs.LinuxNamespace{
		{Type: specs.UserNamespace, Path: in.Namespaces.User},
		{Type: specs.NetworkNamespace, Path: in.Namespaces.Net},
		{Type: specs.IPCNamespace, Path: in.Namespaces.IPC},
		{Type: specs.UTSNamespace, Path: in.Namespaces.UTS},
	} {
		if ns.Path != "" {
			list = append(list, ns)
		}
	}
	annotations := annotation.Facts{Sandbox: true, SandboxID: in.SandboxID, HandlerType: string(in.Handler)}.Annotations()
	maps.Copy(annotations, podAnnotations(in.Sandbox))
	adj := OOMScoreAdj(pauseOOMScoreAdj, in.Host)
	return &specs.Spec{
		Version: version,
		Process: &specs.Process{
			Args:            []string{"pause"},
			Cwd:             "/",
			User:            user,
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			OOMScoreAdj:     &adj,
		},
		Annotations: annotations,
		Linux:       &specs.Linux{CgroupsPath: in.CgroupsPath, Namespaces: list},
	}, nil
}

func pauseUser(sc *runtime.LinuxSandboxSecurityContext) (specs.User, error) {
	var user specs.User
	var err error
	if v := sc.GetRunAsUser(); v != nil {
		if user.UID, err = id("run_as_user", v.GetValue()); err != nil {
			return user, err
		}
	}
	if v := sc.GetRunAsGroup(); v != nil {
		if user.GID, err = id("run_as_group", v.GetValue()); err != nil {
			return user, err
		}
	}
	for _, g := range sc.GetSupplementalGroups() {
		gid, err := id("supplemental_groups", g)
		if err != nil {
			return user, err
		}
		user.AdditionalGids = append(user.AdditionalGids, gid)
	}
	return user, nil
}
