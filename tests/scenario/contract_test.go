package scenario

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// clause is one thing that a runtime has to do.
type clause struct {
	name string
	does func(*pod) error
}

var contract = []clause{
	{"exit code and output", exitsAndSpeaks},
	{"stop with a grace", stopsWithGrace},
	{"kill", isKilled},
	{"exec", execs},
	{"exec of what cannot be executed", execsWhatIsNone},
	{"a program that is not there", lacksItsProgram},
	{"terminal", hasATerminal},
	{"user and groups", hasUsers},
	{"capabilities and seccomp", isConfined},
	{"read-only root and mounts", hasReadOnlyMounts},
	{"memory limit", runsOutOfMemory},
	{"update of limits", updatesLimits},
	{"statistics", hasStatistics},
	{"pod network", servesInItsNetwork},
	{"host network", sharesTheHostsNetwork},
	{"shared PID namespace", sharesProcesses},
	{"user namespace", hasAUserNamespace},
}

// attempt creates and starts a container in its pod's namespaces.
func (p *pod) attempt(config *runtime.ContainerConfig) (*container, error) {
	config.Linux.SecurityContext.NamespaceOptions = p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	c, err := p.tryCreate(config)
	if err != nil {
		return nil, err
	}
	_, err = p.StartContainer(p.t.Context(), &runtime.StartContainerRequest{ContainerId: c.id})
	return c, err
}

// outcome runs a container to its end and wants this output and exit code.
func (p *pod) outcome(config *runtime.ContainerConfig, want string, code int32) error {
	c, err := p.attempt(config)
	if err != nil {
		return err
	}
	status, err := c.end()
	if err != nil {
		return err
	}
	if got := c.text(); got != want || status.GetExitCode() != code {
		return fmt.Errorf("it ended with %d, %s, and said %q; want %d and %q", status.GetExitCode(), status.GetReason(), got, code, want)
	}
	return nil
}

// end is wait that gives up.
func (c *container) end() (*runtime.ContainerStatus, error) {
	var status *runtime.ContainerStatus
	if !node.Within(node.Patience, func() bool {
		status = c.status()
		return status.GetState() == runtime.ContainerState_CONTAINER_EXITED
	}) {
		return nil, fmt.Errorf("the container does not end; it said %q", c.text())
	}
	return status, nil
}

// heard waits until a container has said something.
func (c *container) heard(want string) error {
	if !node.Within(node.Patience, func() bool { return strings.Contains(c.text(), want) || c.status().GetFinishedAt() != 0 }) || !strings.Contains(c.text(), want) {
		return fmt.Errorf("it never said %q, but %q", want, c.text())
	}
	return nil
}

// running is a container that has said that it runs.
func (p *pod) running(config *runtime.ContainerConfig) (*container, error) {
	c, err := p.attempt(config)
	if err != nil {
		return nil, err
	}
	return c, c.heard("up")
}

func exitsAndSpeaks(p *pod) error {
	return errors.Join(
		p.outcome(sh("echo hello; exit 7"), "hello\n", 7),
		p.outcome(sh("exit 0"), "", 0))
}

func stopsWithGrace(p *pod) error {
	c, err := p.running(sh("trap 'echo bye; exit 3' TERM; echo up; while :; do usleep 5000; done"))
	if err != nil {
		return err
	}
	c.stop(120)
	if s := c.status(); s.GetExitCode() != 3 || c.text() != "up\nbye\n" {
		return fmt.Errorf("it ended with %d and said %q", s.GetExitCode(), c.text())
	}
	return nil
}

func isKilled(p *pod) error {
	c, err := p.running(sh("trap '' TERM; echo up; while :; do usleep 5000; done"))
	if err != nil {
		return err
	}
	c.stop(0)
	if s := c.status(); s.GetExitCode() != 137 {
		return fmt.Errorf("it ended with %d", s.GetExitCode())
	}
	return nil
}

// runs executes a command in a container.
func (c *container) runs(command ...string) (*runtime.ExecSyncResponse, error) {
	return c.ExecSync(c.t.Context(), &runtime.ExecSyncRequest{ContainerId: c.id, Cmd: command, Timeout: 60})
}

func execs(p *pod) error {
	c, err := p.running(sh("echo up; sleep 1000"))
	if err != nil {
		return err
	}
	got, err := c.runs("/bin/sh", "-c", "echo out; echo err >&2; exit 5")
	if err != nil {
		return err
	}
	if string(got.GetStdout()) != "out\n" || string(got.GetStderr()) != "err\n" || got.GetExitCode() != 5 {
		return fmt.Errorf("%v", got)
	}
	return nil
}

// execsWhatIsNone: a streaming exec ends with 127 for the one class and with 126 for the other.
func execsWhatIsNone(p *pod) error {
	c, err := p.running(sh("echo up; sleep 1000"))
	if err != nil {
		return err
	}
	for command, is := range map[string]func(error) bool{
		"/no/such/program": errdefs.IsInvalidArgument, "nothing-here": errdefs.IsInvalidArgument,
		"/etc/passwd": errdefs.IsPermissionDenied, "/etc": errdefs.IsPermissionDenied,
	} {
		if got, eerr := c.runs(command); eerr == nil || !is(errgrpc.ToNative(eerr)) {
			err = errors.Join(err, fmt.Errorf("%s: %v, %v", command, got, eerr))
		}
	}
	return err
}

func lacksItsProgram(p *pod) error {
	config := containerConfig(world.Busybox)
	config.Command = []string{"/no/such/program"}
	c, err := p.attempt(config)
	if c == nil {
		return err
	}
	s := c.status()
	if err == nil || s.GetExitCode() != 128 || s.GetReason() != "StartError" || !strings.Contains(s.GetMessage(), "/no/such/program") {
		return fmt.Errorf("%v; it ended with %d %s: %s", err, s.GetExitCode(), s.GetReason(), s.GetMessage())
	}
	return nil
}

func hasATerminal(p *pod) error {
	config := sh("test -t 0 && test -t 1 && echo a terminal")
	config.Tty, config.Stdin = true, true
	return p.outcome(config, "a terminal\n", 0)
}

func hasUsers(p *pod) error {
	config := sh("id -u; id -g; id -G")
	sc := config.Linux.SecurityContext
	sc.RunAsUser, sc.RunAsGroup, sc.SupplementalGroups = &runtime.Int64Value{Value: 1000}, &runtime.Int64Value{Value: 2000}, []int64{3000}
	return p.outcome(config, "1000\n2000\n2000 3000\n", 0)
}

func isConfined(p *pod) error {
	config := sh("grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '")
	sc := config.Linux.SecurityContext
	sc.NoNewPrivs, sc.Capabilities = true, &runtime.Capability{DropCapabilities: []string{"ALL"}}
	sc.Seccomp = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_RuntimeDefault}
	return p.outcome(config, "CapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n", 0)
}

func hasReadOnlyMounts(p *pod) error {
	dir := p.t.TempDir()
	for _, name := range []string{"ro", "rw"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			return err
		}
	}
	config := sh("touch /root/x /ro/x 2>/dev/null; ls /root /ro; echo mine > /rw/x")
	config.Linux.SecurityContext.ReadonlyRootfs = true
	config.Mounts = []*runtime.Mount{
		{ContainerPath: "/ro", HostPath: filepath.Join(dir, "ro"), Readonly: true}, {ContainerPath: "/rw", HostPath: filepath.Join(dir, "rw")},
	}
	if err := p.outcome(config, "/ro:\n\n/root:\n", 0); err != nil {
		return err
	}
	if got, err := os.ReadFile(filepath.Join(dir, "rw", "x")); err != nil || string(got) != "mine\n" {
		return fmt.Errorf("the volume has %q, %v", got, err)
	}
	return nil
}

func runsOutOfMemory(p *pod) error {
	config := sh("x=0123456789abcdef; while :; do x=$x$x; done")
	config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
	c, err := p.attempt(config)
	if err != nil {
		return err
	}
	s, err := c.end()
	if err == nil && (s.GetExitCode() != 137 || s.GetReason() != "OOMKilled") {
		err = fmt.Errorf("it ended with %d %s", s.GetExitCode(), s.GetReason())
	}
	return err
}

func updatesLimits(p *pod) error {
	config := sh("echo up; sleep 1000")
	config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
	c, err := p.running(config)
	if err != nil {
		return err
	}
	const limit = 96 << 20
	if _, err := p.UpdateContainerResources(p.t.Context(), &runtime.UpdateContainerResourcesRequest{
		ContainerId: c.id, Linux: &runtime.LinuxContainerResources{MemoryLimitInBytes: limit},
	}); err != nil {
		return err
	}
	group := node.ContainerCgroup(p.id, c.id)
	for _, file := range []string{"/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes", "/sys/fs/cgroup" + group + "/memory.max"} {
		if got, err := os.ReadFile(file); err == nil {
			if strings.TrimSpace(string(got)) != fmt.Sprint(limit) {
				return fmt.Errorf("%s has %s", file, got)
			}
			return nil
		}
	}
	return fmt.Errorf("cgroup %q has no memory limit", group)
}

func hasStatistics(p *pod) error {
	// It is busy for a moment: it runs until the pod is removed.
	c, err := p.running(sh("echo up; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exec sleep 1000"))
	if err != nil {
		return err
	}
	var last *runtime.ContainerStats
	if !node.Within(node.Patience, func() bool {
		got, err := p.ContainerStats(p.t.Context(), &runtime.ContainerStatsRequest{ContainerId: c.id})
		last = got.GetStats()
		return err == nil && last.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0 && last.GetMemory().GetWorkingSetBytes().GetValue() > 0
	}) {
		return fmt.Errorf("%v", last)
	}
	return nil
}

func servesInItsNetwork(p *pod) error {
	if _, err := p.running(sh("echo served > /tmp/index.html; echo up; exec httpd -f -p 80 -h /tmp")); err != nil {
		return err
	}
	if got := p.status().GetStatus().GetNetwork().GetIp(); got == "" {
		return errors.New("the pod has no address")
	}
	client, err := p.attempt(sh("wget -q -O - http://" + p.ip() + "/index.html"))
	if err != nil {
		return err
	}
	if _, err := client.end(); err != nil || client.text() != "served\n" {
		return fmt.Errorf("%v: the pod's own client got %q", err, client.text())
	}
	if out, err := exec.Command("wget", "-q", "-T", "30", "-O", "-", "http://"+p.ip()+"/index.html").CombinedOutput(); err != nil || string(out) != "served\n" {
		return fmt.Errorf("%w: the node got %q", err, out)
	}
	return nil
}

func sharesTheHostsNetwork(p *pod) error {
	return p.outcome(sh("wget -q -O /dev/null http://"+world.Registry.Host+"/v2/ && echo reached"), "reached\n", 0)
}

func sharesProcesses(p *pod) error {
	if _, err := p.running(sh("echo up; exec sleep 1234")); err != nil {
		return err
	}
	return p.outcome(sh("ps -o args | grep -c '^sleep 123[4]'"), "1\n", 0)
}

func hasAUserNamespace(p *pod) error {
	return p.outcome(sh("cat /proc/self/uid_map | tr -s ' '; id -u; touch /root/x && stat -c %u /root/x"), fmt.Sprintf(" 0 %d 65536\n0\n0\n", firstUser), 0)
}
