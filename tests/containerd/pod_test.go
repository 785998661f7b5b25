package containerd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/leftovers"
)

// pod is a pod of containerd's CRI.
type pod struct {
	*bench
	id     string
	config *runtime.PodSandboxConfig
}

// image pulls an image by the CRI.
func (b *bench) image(ref string) {
	b.t.Helper()
	must(b.PullImage(b.ctx(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}}))(b.t)
}

// runPod runs a pod under a handler.
func (b *bench) runPod(handler, name string, change func(*runtime.PodSandboxConfig)) *pod {
	b.t.Helper()
	p := &pod{bench: b, config: &runtime.PodSandboxConfig{
		Metadata:     &runtime.PodSandboxMetadata{Name: name, Namespace: b.namespace, Uid: b.namespace + "-" + name},
		LogDirectory: filepath.Join(b.Logs, name),
		Linux:        &runtime.LinuxPodSandboxConfig{CgroupParent: "/" + b.namespace, SecurityContext: &runtime.LinuxSandboxSecurityContext{}},
	}}
	check(b.t, os.MkdirAll(p.config.LogDirectory, 0o755))
	if change != nil {
		change(p.config)
	}
	p.id = must(b.RunPodSandbox(b.ctx(), &runtime.RunPodSandboxRequest{Config: p.config, RuntimeHandler: handler}))(b.t).PodSandboxId
	return p
}

// remove stops and removes the pod.
func (p *pod) remove() {
	p.t.Helper()
	must(p.StopPodSandbox(p.ctx(), &runtime.StopPodSandboxRequest{PodSandboxId: p.id}))(p.t)
	must(p.RemovePodSandbox(p.ctx(), &runtime.RemovePodSandboxRequest{PodSandboxId: p.id}))(p.t)
}

// member is a container of a pod.
type member struct {
	*pod
	id, log string
}

// begin creates and starts a container.
func (p *pod) begin(name, ref string, command []string, change func(*runtime.ContainerConfig)) *member {
	p.t.Helper()
	config := &runtime.ContainerConfig{
		Metadata: &runtime.ContainerMetadata{Name: name}, Image: &runtime.ImageSpec{Image: ref}, Command: command,
		LogPath: name + ".log", Linux: &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{
			NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions,
		}},
	}
	if change != nil {
		change(config)
	}
	id := must(p.CreateContainer(p.ctx(), &runtime.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config}))(p.t).ContainerId
	must(p.StartContainer(p.ctx(), &runtime.StartContainerRequest{ContainerId: id}))(p.t)
	return &member{pod: p, id: id, log: filepath.Join(p.config.LogDirectory, name+".log")}
}

func (m *member) status() *runtime.ContainerStatus {
	m.t.Helper()
	return must(m.ContainerStatus(m.ctx(), &runtime.ContainerStatusRequest{ContainerId: m.id}))(m.t).Status
}

// ends waits for the container's end and checks its exit code and, if one is given, its reason.
func (m *member) ends(code int32, reason string) {
	m.t.Helper()
	var s *runtime.ContainerStatus
	m.eventually("container ends", func() bool {
		s = m.status()
		return s.State == runtime.ContainerState_CONTAINER_EXITED
	})
	if s.ExitCode != code || reason != "" && s.Reason != reason {
		m.t.Errorf("container %q: exit code %d, reason %q, %q; want %d, %q", s.Metadata.Name, s.ExitCode, s.Reason, s.Message, code, reason)
	}
}

// says waits for a text in the container's log.
func (m *member) says(text string) {
	m.t.Helper()
	var data []byte
	m.eventually(fmt.Sprintf("log says %q", text), func() bool {
		data, _ = os.ReadFile(m.log)
		return strings.Contains(string(data), text)
	})
	if m.t.Failed() {
		m.t.Logf("log of %q: %s", m.log, data)
	}
}

// exec runs a command in the container.
func (m *member) exec(command ...string) (string, int32) {
	m.t.Helper()
	r := must(m.ExecSync(m.ctx(), &runtime.ExecSyncRequest{ContainerId: m.id, Cmd: command, Timeout: 20}))(m.t)
	return string(r.Stdout), r.ExitCode
}

// shims are the processes of our shims that serve, but for those that one of them has just made of
// itself, to become another.
func (b *bench) shims() []int {
	b.t.Helper()
	pids := must(leftovers.Processes(leftovers.Scope{Dirs: []string{b.Dir}}))(b.t)
	var shims []int
	for _, pid := range pids {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00"); filepath.Base(words[0]) == "containerd-shim-sunaba-v1" && words[len(words)-1] == "serve" {
			shims = append(shims, pid)
		}
	}
	return slices.DeleteFunc(slices.Clone(shims), func(pid int) bool { return slices.Contains(shims, parent(pid)) })
}

// parent is a process's parent, 0 if it has ended.
func parent(pid int) int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	id, _ := strconv.Atoi(fields[1])
	return id
}
