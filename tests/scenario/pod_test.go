package scenario

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// pod is a sandbox that was run.
type pod struct {
	*machine
	id, handler string
	config      *runtime.PodSandboxConfig
}

// container is a container that was created in it.
type container struct {
	*pod
	id, log string
	config  *runtime.ContainerConfig
}

func (m *machine) podConfig(name string) *runtime.PodSandboxConfig {
	return m.PodConfig("scenario", name)
}

// run runs a sandbox under a handler; change may alter its configuration.
func (m *machine) run(handler string, change ...func(*runtime.PodSandboxConfig)) *pod {
	m.t.Helper()
	config := m.podConfig("pod")
	for _, c := range change {
		c(config)
	}
	return m.runConfig(handler, config)
}

func (m *machine) runConfig(handler string, config *runtime.PodSandboxConfig) *pod {
	m.t.Helper()
	answer, err := m.RunPodSandbox(m.t.Context(), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		m.t.Fatalf("run a pod under %q: %v\n%s", handler, err, m.DaemonLog())
	}
	m.Ran(answer.GetPodSandboxId())
	return &pod{machine: m, id: answer.GetPodSandboxId(), handler: handler, config: config}
}

// status is the sandbox's status, verbose.
func (p *pod) status() *runtime.PodSandboxStatusResponse {
	p.t.Helper()
	answer, err := p.PodSandboxStatus(p.t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
	if err != nil {
		p.t.Fatalf("status of pod %s: %v", p.id, err)
	}
	return answer
}

// ip is the pod's first address.
func (p *pod) ip() string {
	p.t.Helper()
	ip := p.status().GetStatus().GetNetwork().GetIp()
	if ip == "" {
		p.t.Fatalf("pod %s has no address", p.id)
	}
	return ip
}

func (p *pod) stop() {
	p.t.Helper()
	if _, err := p.StopPodSandbox(p.t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.t.Fatalf("stop pod %s: %v", p.id, err)
	}
}

func (p *pod) remove() {
	p.t.Helper()
	if _, err := p.RemovePodSandbox(p.t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.t.Fatalf("remove pod %s: %v", p.id, err)
	}
}

func containerConfig(image string, args ...string) *runtime.ContainerConfig {
	config := node.ContainerConfig(image)
	config.Args = args
	return config
}

// sh makes a configuration of a busybox container that runs a script.
func sh(script string) *runtime.ContainerConfig {
	config := containerConfig(world.Busybox)
	config.Command = []string{"/bin/sh", "-c", script}
	return config
}

// tryCreate asks for a container and returns the error.
func (p *pod) tryCreate(config *runtime.ContainerConfig) (*container, error) {
	id, log, err := p.Create(p.t.Context(), p.id, p.config, config)
	if err != nil {
		return nil, err
	}
	return &container{pod: p, id: id, config: config, log: log}, nil
}

func (p *pod) create(config *runtime.ContainerConfig) *container {
	p.t.Helper()
	c, err := p.tryCreate(config)
	if err != nil {
		p.t.Fatalf("create a container of %s: %v\n%s", config.GetImage().GetImage(), err, p.DaemonLog())
	}
	return c
}

// begin creates and starts a container.
func (p *pod) begin(config *runtime.ContainerConfig) *container {
	p.t.Helper()
	c := p.create(config)
	c.start()
	return c
}

func (c *container) start() {
	c.t.Helper()
	if _, err := c.StartContainer(c.t.Context(), &runtime.StartContainerRequest{ContainerId: c.id}); err != nil {
		c.t.Fatalf("start container %s: %v\n%s\nshim: %s", c.config.GetMetadata().GetName(), err, c.DaemonLog(), c.shimLog())
	}
}

// killShim kills the shim of a pod that has its own with -9.
func (p *pod) killShim() {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.State, "sandboxes", p.id, "shim.pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
}

// shimLog is what the pod's shim said.
func (p *pod) shimLog() string {
	data, err := os.ReadFile(filepath.Join(p.State, "sandboxes", p.id, "shim.log"))
	if err != nil {
		return p.sharedLog(p.handler)
	}
	return string(data)
}

func (c *container) status() *runtime.ContainerStatus {
	c.t.Helper()
	answer, err := c.ContainerStatus(c.t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id})
	if err != nil {
		c.t.Fatalf("status of container %s: %v", c.id, err)
	}
	return answer.GetStatus()
}

// wait waits for the container's end.
func (c *container) wait() *runtime.ContainerStatus {
	c.t.Helper()
	var status *runtime.ContainerStatus
	if !node.Within(node.Patience, func() bool {
		status = c.status()
		return status.GetState() == runtime.ContainerState_CONTAINER_EXITED
	}) {
		c.t.Fatalf("container %s does not end: %v\nlog: %q\nshim: %s", c.config.GetMetadata().GetName(), status.GetState(), c.text(), c.shimLog())
	}
	return status
}

// stop stops the container with a grace period in seconds and returns how long it took.
func (c *container) stop(grace int64) time.Duration {
	c.t.Helper()
	begin := time.Now()
	if _, err := c.StopContainer(c.t.Context(), &runtime.StopContainerRequest{ContainerId: c.id, Timeout: grace}); err != nil {
		c.t.Fatalf("stop container %s: %v", c.id, err)
	}
	return time.Since(begin)
}

// lines reads and checks the container's log.
func (c *container) lines() []node.LogLine { return c.linesOf(c.log) }

func (c *container) linesOf(path string) []node.LogLine {
	c.t.Helper()
	lines, err := node.ReadLog(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return lines
}

// text is the log's text without times and tags.
func (c *container) text() string {
	c.t.Helper()
	return node.Text(c.lines())
}

// says waits until the log holds a text.
func (c *container) says(want string) {
	c.t.Helper()
	if !node.Within(node.Patience, func() bool { return strings.Contains(c.text(), want) }) {
		c.t.Fatalf("container %s never said %q: %q\nstatus: %v\nshim: %s", c.config.GetMetadata().GetName(), want, c.text(), c.status(), c.shimLog())
	}
}

// expectEnd waits for the end and compares exit code and reason.
func (c *container) expectEnd(code int32, reason string) *runtime.ContainerStatus {
	c.t.Helper()
	status := c.wait()
	if status.GetExitCode() != code || status.GetReason() != reason {
		c.t.Errorf("%s under %q ended with %d %s %q, want %d %s\nlog: %q", c.config.GetImage().GetUserSpecifiedImage(), c.handler,
			status.GetExitCode(), status.GetReason(), status.GetMessage(), code, reason, c.text())
	}
	// What could not be started has no start.
	if began := status.GetStartedAt(); status.GetFinishedAt() < began || (began < status.GetCreatedAt() && code != 128) || status.GetCreatedAt() == 0 {
		c.t.Errorf("times out of order: created %d, started %d, finished %d", status.GetCreatedAt(), status.GetStartedAt(), status.GetFinishedAt())
	}
	return status
}
