package scenario

import (
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// saying checks the words of an error that is expected, and shows them.
func saying(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	code, text := grpcstatus.Code(err), grpcstatus.Convert(err).Message()
	t.Logf("%s: %s: %s", what, code, text)
	if err := node.Worded(code, text); err != nil {
		t.Errorf("%s: %v: %s", what, err, text)
	}
}

// What cannot be started says why once: in the answer, in the status and in the log (which are
// heard at the node's end).
func TestTextsOfStartsThatFail(t *testing.T) {
	m := start(t)
	for _, ref := range []string{world.Busybox, world.Guest} {
		m.pull(ref)
	}
	change := func(image string, f func(*runtime.ContainerConfig)) *runtime.ContainerConfig {
		config := containerConfig(image)
		f(config)
		return config
	}
	for name, test := range map[string]struct {
		config *runtime.ContainerConfig
		only   string // handler
	}{
		"command that is not there": {change(world.Busybox, func(c *runtime.ContainerConfig) { c.Command = []string{"/nosuch"} }), ""},
		"command in no path":        {change(world.Busybox, func(c *runtime.ContainerConfig) { c.Command = []string{"nosuch"} }), ""},
		"command that is a folder":  {change(world.Busybox, func(c *runtime.ContainerConfig) { c.Command = []string{"/bin"} }), ""},
		"working folder of a file":  {change(world.Busybox, func(c *runtime.ContainerConfig) { c.Command, c.WorkingDir = []string{"/bin/true"}, "/bin/sh" }), ""},
		"mount over a file": {change(world.Busybox, func(c *runtime.ContainerConfig) {
			c.Command = []string{"/bin/true"}
			c.Mounts = []*runtime.Mount{{HostPath: "/proc/sys", ContainerPath: "/bin/busybox/x"}}
		}), ""},
		"memory below any need": {change(world.Busybox, func(c *runtime.ContainerConfig) {
			c.Command = []string{"/bin/true"}
			c.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 4096}
		}), ""},
		"processors that are none": {change(world.Busybox, func(c *runtime.ContainerConfig) {
			c.Command = []string{"/bin/true"}
			c.Linux.Resources = &runtime.LinuxContainerResources{CpusetCpus: "4000"}
		}), ""},
		"guest of a missing program": {change(world.Guest, func(c *runtime.ContainerConfig) { c.Command = []string{"/nosuch.wasm"} }), "wasm"},
		"guest of a text":            {change(world.Guest, func(c *runtime.ContainerConfig) { c.Command = []string{"/etc/greeting"} }), "wasm"},
		"guest with little memory": {change(world.Guest, func(c *runtime.ContainerConfig) {
			c.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 65536}
		}), "wasm"},
		"guest with a folder": {change(world.Guest, func(c *runtime.ContainerConfig) { c.WorkingDir = "/etc/greeting/x" }), "wasm"},
	} {
		for _, handler := range everyHandler {
			if test.only != "" && handler != test.only {
				continue
			}
			t.Run(name+" under "+handler, func(t *testing.T) {
				m := m.in(t)
				p := m.run(handler)
				c, err := p.tryCreate(test.config)
				if err == nil {
					_, err = m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: c.id})
					status := c.status()
					t.Logf("status: %s %d %s %q", status.GetState(), status.GetExitCode(), status.GetReason(), status.GetMessage())
				}
				if err != nil {
					saying(t, "error", err)
				}
				p.stop()
				p.remove()
			})
		}
	}
}

// So do requests that cannot be fulfilled.
func TestTextsOfRefusals(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	ctx := t.Context()
	for _, handler := range everyHandler {
		p := m.run(handler)
		config := sh("sleep 1000")
		if handler == "wasm" {
			config = containerConfig(world.Guest, "idle")
		}
		running, created := p.begin(config), p.create(sh("true"))
		ended := p.begin(sh("true"))
		ended.wait()
		exec := func(c *container, command ...string) error {
			answer, err := m.ExecSync(ctx, &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: command})
			if err == nil {
				t.Logf("exec: %d %q %q", answer.GetExitCode(), answer.GetStdout(), answer.GetStderr())
				return grpcstatus.Error(codes.OK, "")
			}
			return err
		}
		if err := exec(running, "/nosuch"); err != nil {
			saying(t, handler+": exec of no program", err)
		}
		saying(t, handler+": exec of nothing", exec(running))
		saying(t, handler+": exec in a created container", exec(created, "true"))
		saying(t, handler+": exec in an ended container", exec(ended, "true"))
		_, err := m.StartContainer(ctx, &runtime.StartContainerRequest{ContainerId: running.id})
		saying(t, handler+": start of a running container", err)
		_, err = m.UpdateContainerResources(ctx, &runtime.UpdateContainerResourcesRequest{ContainerId: running.id, Linux: &runtime.LinuxContainerResources{CpusetCpus: "4000"}})
		saying(t, handler+": update to processors that are none", err)
		_, err = m.UpdateContainerResources(ctx, &runtime.UpdateContainerResourcesRequest{ContainerId: running.id, Linux: &runtime.LinuxContainerResources{MemoryLimitInBytes: 1}})
		if err != nil {
			saying(t, handler+": update to one byte", err)
		}
		_, err = m.UpdateContainerResources(ctx, &runtime.UpdateContainerResourcesRequest{ContainerId: ended.id, Linux: &runtime.LinuxContainerResources{CpuShares: 2}})
		saying(t, handler+": update of an ended container", err)
		_, err = m.ReopenContainerLog(ctx, &runtime.ReopenContainerLogRequest{ContainerId: created.id})
		saying(t, handler+": reopen the log of a created container", err)
		_, err = m.CheckpointContainer(ctx, &runtime.CheckpointContainerRequest{ContainerId: running.id, Location: "x"})
		saying(t, handler+": checkpoint", err)
		_, err = m.Exec(ctx, &runtime.ExecRequest{ContainerId: ended.id, Cmd: []string{"true"}, Stdout: true})
		saying(t, handler+": open a session with an ended container", err)
		_, err = m.Attach(ctx, &runtime.AttachRequest{ContainerId: ended.id, Stdout: true})
		saying(t, handler+": attach to an ended container", err)
		_, err = m.PortForward(ctx, &runtime.PortForwardRequest{PodSandboxId: p.id, Port: []int32{-1}})
		saying(t, handler+": forward no port", err)
		p.stop()
		_, err = p.tryCreate(sh("true"))
		saying(t, handler+": create in a stopped pod", err)
		p.remove()
	}
}

// So do pods that cannot be run and images that cannot be pulled.
func TestTextsOfPodsAndImages(t *testing.T) {
	m := start(t)
	ctx := t.Context()
	for name, change := range map[string]func(*runtime.PodSandboxConfig){
		"no metadata":        func(c *runtime.PodSandboxConfig) { c.Metadata = nil },
		"no name":            func(c *runtime.PodSandboxConfig) { c.Metadata.Name = "" },
		"long host name":     func(c *runtime.PodSandboxConfig) { c.Hostname = string(make([]byte, 65)) },
		"sysctl of the node": func(c *runtime.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"kernel.panic": "1"} },
		"value of a sysctl":  func(c *runtime.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "x"} },
		"host port": func(c *runtime.PodSandboxConfig) {
			c.PortMappings = []*runtime.PortMapping{{ContainerPort: 80, HostPort: 70000}}
		},
		"address of a port": func(c *runtime.PodSandboxConfig) {
			c.PortMappings = []*runtime.PortMapping{{ContainerPort: 80, HostPort: 80, HostIp: "x"}}
		},
		"cgroup parent":        func(c *runtime.PodSandboxConfig) { c.Linux.CgroupParent = "../../x" },
		"log folder":           func(c *runtime.PodSandboxConfig) { c.LogDirectory = "x" },
		"log folder of a file": func(c *runtime.PodSandboxConfig) { c.LogDirectory = "/proc/version/x" },
		"network of a node with its users": func(c *runtime.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD}
		},
		"name server": func(c *runtime.PodSandboxConfig) { c.DnsConfig = &runtime.DNSConfig{Servers: []string{"x\ny"}} },
	} {
		config := m.podConfig("wrong")
		change(config)
		answer, err := m.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: config})
		if err == nil {
			t.Logf("%s: is run", name)
			m.Ran(answer.GetPodSandboxId())
			continue
		}
		saying(t, name, err)
	}
	_, err := m.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: m.podConfig("wrong"), RuntimeHandler: "none"})
	saying(t, "handler that is not there", err)
	for _, ref := range []string{
		"", "A:b:c", world.Registry.Host + "/none:1", world.Registry.Host + "/busybox:none", "127.0.0.1:1/x:1", "nothing.invalid/x:1",
		world.Registry.Host + "/busybox@sha256:" + noSuchID, world.TwoLayers, world.NoCommand, world.AsLinux + "@sha256:x",
	} {
		_, err := m.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}})
		saying(t, "pull "+ref, err)
	}
	_, err = m.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: world.Busybox, RuntimeHandler: "none"}})
	saying(t, "pull for no handler", err)
	_, err = m.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: world.Guest, RuntimeHandler: "runc"}})
	saying(t, "pull of a guest for runc", err)
	_, err = m.ImageStatus(ctx, &runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: "A:b:c"}})
	if err != nil {
		saying(t, "status of a wrong reference", err)
	}
	_, err = m.RemoveImage(ctx, &runtime.RemoveImageRequest{})
	saying(t, "remove no image", err)
}
