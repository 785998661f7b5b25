package recovery

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// shape says what a pod is like beside its handler: one with a PID namespace that its containers
// share and a host port, or one without both.
type shape int

const shapes = 2

// pod is a sandbox.
type pod struct {
	m               *machine
	id, handler, ip string
	config          *cri.PodSandboxConfig
}

// podConfig is the configuration of a sandbox of a shape.
func (m *machine) podConfig(name string, s shape) *cri.PodSandboxConfig {
	config := m.PodConfig("recovery", name)
	config.Labels = map[string]string{"uid": config.GetMetadata().GetUid()}
	if s%shapes == 0 {
		config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
		config.PortMappings = []*cri.PortMapping{{Protocol: cri.Protocol_TCP, ContainerPort: 8080, HostPort: int32(20000 + node.Serial())}}
	}
	return config
}

func (m *machine) run(handler string, config *cri.PodSandboxConfig) (*pod, error) {
	answer, err := m.RunPodSandbox(m.ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return nil, fmt.Errorf("run a pod: %w", err)
	}
	p := &pod{m: m, id: answer.GetPodSandboxId(), handler: handler, config: config}
	status, err := m.PodSandboxStatus(m.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		return nil, err
	}
	p.ip = status.GetStatus().GetNetwork().GetIp()
	return p, nil
}

// stop and remove are idempotent.
func (p *pod) stop() error {
	_, err := p.m.StopPodSandbox(p.m.ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	return err
}

func (p *pod) remove() error {
	_, err := p.m.RemovePodSandbox(p.m.ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
	return err
}

// listed are the pods with the metadata of a configuration.
func (m *machine) listed(config *cri.PodSandboxConfig) []*cri.PodSandbox {
	list, err := m.ListPodSandbox(m.ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: config.GetLabels()}})
	if err != nil {
		m.problem("list pods: %v", err)
	}
	return list.GetItems()
}

// container is a container of a pod.
type container struct {
	pod     *pod
	id, log string
	config  *cri.ContainerConfig
	pid     int
	started int64
}

// containerConfig is a container of the guest for the handler wasm and of busybox for others. Linux
// is a script.
func containerConfig(handler, linux string, guest ...string) *cri.ContainerConfig {
	config := node.ContainerConfig(world.busybox)
	config.Command = []string{"/bin/sh", "-c", linux}
	if handler == "wasm" {
		config.Image = &cri.ImageSpec{Image: world.guest, UserSpecifiedImage: world.guest}
		config.Command, config.Args = nil, guest
	}
	return config
}

// counts prints a numbered line every now and then, without end.
func counts(handler string) *cri.ContainerConfig {
	pause := fmt.Sprint(node.Slow(20 * time.Millisecond).Microseconds())
	return containerConfig(handler, "i=0; while :; do i=$((i+1)); echo tick $i; usleep "+pause+"; done", "tick", pause)
}

// job prints three lines and ends with 7.
func job(handler string) *cri.ContainerConfig {
	return containerConfig(handler, "echo one; echo two; usleep 100000; echo three; exit 7", "job", "7")
}

// withPort gives a container a port, as the kubelet tells it.
func withPort(config *cri.ContainerConfig) *cri.ContainerConfig {
	config.Annotations = map[string]string{"io.kubernetes.container.ports": `[{"name":"web","containerPort":9090,"protocol":"TCP"}]`}
	return config
}

const jobText = "one\ntwo\nthree\n"

// idles does nothing, without end.
func idles(handler string) *cri.ContainerConfig {
	return containerConfig(handler, "echo idle; exec sleep 100000", "idle")
}

// idleText is what idles says once.
func idleText(handler string) string {
	if handler == "wasm" {
		return "guest: idle"
	}
	return "idle"
}

func (p *pod) create(config *cri.ContainerConfig) (*container, error) {
	mode := p.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid()
	config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: mode}
	id, log, err := p.m.Create(p.m.ctx, p.id, p.config, config)
	return &container{pod: p, id: id, log: log, config: config}, err
}

func (c *container) start() error {
	_, err := c.pod.m.StartContainer(c.pod.m.ctx, &cri.StartContainerRequest{ContainerId: c.id})
	return err
}

// begin creates and starts a container.
func (p *pod) begin(config *cri.ContainerConfig) (*container, error) {
	c, err := p.create(config)
	if err == nil {
		err = c.start()
	}
	if err != nil {
		return nil, fmt.Errorf("begin a container: %w", err)
	}
	return c, nil
}

// stop stops the container with a grace in seconds.
func (c *container) stop(grace int64) error {
	_, err := c.pod.m.StopContainer(c.pod.m.ctx, &cri.StopContainerRequest{ContainerId: c.id, Timeout: grace})
	return err
}

func (c *container) remove() error {
	_, err := c.pod.m.RemoveContainer(c.pod.m.ctx, &cri.RemoveContainerRequest{ContainerId: c.id})
	return err
}

// status is a container's status with its process.
type status struct {
	*cri.ContainerStatus
	pid int
}

func (c *container) status() (status, error) {
	answer, err := c.pod.m.ContainerStatus(c.pod.m.ctx, &cri.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	if err != nil {
		return status{}, err
	}
	var info struct {
		PID int `json:"pid"`
	}
	err = json.Unmarshal([]byte(answer.GetInfo()["info"]), &info)
	return status{answer.GetStatus(), info.PID}, err
}

// state is the container's state, -1 if it cannot be known.
func (c *container) state() cri.ContainerState {
	s, err := c.status()
	if err != nil {
		return -1
	}
	return s.GetState()
}

// running says so if the container does not run.
func (c *container) running() {
	m := c.pod.m
	s, err := c.status()
	if err != nil || s.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		m.problem("container: %v, %v; want it running", s, err)
		return
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", s.pid)); err != nil {
		m.problem("running container: %v", err)
	}
}

// ended says so if the container does not end, or ended otherwise.
func (c *container) ended(code int32, reason string) {
	m := c.pod.m
	var s status
	var err error
	if !node.Within(node.Patience, func() bool {
		s, err = c.status()
		return err == nil && s.GetState() == cri.ContainerState_CONTAINER_EXITED
	}) {
		m.problem("container does not end: %v, %v", s, err)
		return
	}
	if s.GetExitCode() != code || s.GetReason() != reason {
		m.problem("container ended with %d %s %q, want %d %s", s.GetExitCode(), s.GetReason(), s.GetMessage(), code, reason)
	}
	if s.GetCreatedAt() == 0 || s.GetStartedAt() < s.GetCreatedAt() || s.GetFinishedAt() < s.GetStartedAt() {
		m.problem("container's times are out of order: created %d, started %d, finished %d", s.GetCreatedAt(), s.GetStartedAt(), s.GetFinishedAt())
	}
}

// text is what the container's log says, without times and names of streams. Its lines are whole
// ones.
func (c *container) text() (string, error) {
	lines, err := node.ReadLog(c.log)
	for _, l := range lines {
		if l.Tag != "F" {
			return node.Text(lines), fmt.Errorf("not a whole line of a CRI log: %q", l.Text)
		}
	}
	return node.Text(lines), err
}

// said says so if the container's log is not a text.
func (c *container) said(want string) {
	if got, err := c.text(); err != nil || got != want {
		c.pod.m.problem("container said %q, %v; want %q", got, err, want)
	}
}

func (c *container) says(want string) error {
	var got string
	var err error
	if !node.Within(node.Patience, func() bool { got, err = c.text(); return strings.Contains(got, want+"\n") }) {
		return fmt.Errorf("container says %.200q, %w; want %q", got, err, want)
	}
	return nil
}

// ticks is how many lines a counter has printed; an error if one is missing or doubled.
func (c *container) ticks() (int, error) {
	text, err := c.text()
	if err != nil {
		return 0, err
	}
	n := 0
	for line := range strings.Lines(text) {
		if n++; line != fmt.Sprintf("tick %d\n", n) && strings.HasSuffix(line, "\n") {
			return n, fmt.Errorf("line %d of the log is %q", n, line)
		}
	}
	return n, nil
}
