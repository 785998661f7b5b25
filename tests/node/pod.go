package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var serial atomic.Int64

// Serial is another number each time: for names that must differ.
func Serial() int64 { return serial.Add(1) }

// OwnShims returns a table of handlers in which each pod has a shim of its own. The table says
// nothing of scopes.
func OwnShims(handlers string) string {
	return strings.ReplaceAll(handlers, "type = ", "shim_scope = \"pod\"\ntype = ")
}

// PodConfig is a sandbox configuration as the kubelet makes one. Its logs are in a folder of their
// own; its containers do not share a process namespace.
func (n *Node) PodConfig(namespace, name string) *runtime.PodSandboxConfig {
	return PodConfig(n.Logs, namespace, name)
}

// PodConfig is one for any server; the pod's folder of logs is in logs.
func PodConfig(logs, namespace, name string) *runtime.PodSandboxConfig {
	uid := fmt.Sprintf("%s-%d", name, Serial())
	return &runtime.PodSandboxConfig{
		Metadata:     &runtime.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: uid},
		Hostname:     name,
		LogDirectory: filepath.Join(logs, uid),
		Linux: &runtime.LinuxPodSandboxConfig{SecurityContext: &runtime.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER},
		}},
	}
}

// ContainerConfig is a container configuration as the kubelet makes one.
func ContainerConfig(image string) *runtime.ContainerConfig {
	name := fmt.Sprintf("c%d", Serial())
	return &runtime.ContainerConfig{
		Metadata: &runtime.ContainerMetadata{Name: name},
		Image:    &runtime.ImageSpec{Image: image, UserSpecifiedImage: image},
		LogPath:  name + "/0.log",
		Linux: &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{
			NamespaceOptions: &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER},
		}},
	}
}

// Create makes the folder of a container's log, as the kubelet does, and the container. log is the
// log's path.
func (n *Node) Create(ctx context.Context, pod string, sandbox *runtime.PodSandboxConfig, config *runtime.ContainerConfig) (id, log string, err error) {
	log = filepath.Join(sandbox.GetLogDirectory(), config.GetLogPath())
	if config.GetLogPath() != "" {
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			return "", log, err
		}
	}
	answer, err := n.CreateContainer(ctx, &runtime.CreateContainerRequest{PodSandboxId: pod, Config: config, SandboxConfig: sandbox})
	return answer.GetContainerId(), log, err
}
