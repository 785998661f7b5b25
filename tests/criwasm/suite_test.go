package criwasm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

const config = `
[network]
conf_dir = %[1]q

[handlers.runc]
type = "oci"
shim_scope = %[2]q
default = true

[handlers.wasm]
type = "wasm"
shim_scope = %[2]q
`

// TestWasm is the whole suite, on one node whose pods have shims of their own, and on one whose
// pods share them.
func TestWasm(t *testing.T) {
	for _, scope := range []string{"pod", "node"} {
		t.Run(scope, func(t *testing.T) { testWasm(t, scope) })
	}
}

func testWasm(t *testing.T, scope string) {
	dir, err := os.MkdirTemp(world.folder, "node-")
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Options{Bin: filepath.Join(world.folder, "bin"), Dir: dir, Config: fmt.Sprintf(config, filepath.Join(dir, "cni"), scope)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if forced, err := n.Close(); err != nil || len(forced) > 0 {
			t.Errorf("close the node: %v, left: %q", err, forced)
		}
	})
	s := &suite{t: t, Node: n, scope: scope}
	for _, ref := range []string{world.guest, world.artifact, world.cmd, world.busybox} {
		s.pull(ref)
	}
	for _, theme := range []struct {
		name  string
		specs map[string]func(*suite)
	}{
		{"node", nodeSpecs()}, {"sandbox", sandboxSpecs()}, {"lifecycle", lifecycleSpecs()}, {"process", processSpecs()},
		{"exec", execSpecs()}, {"logs", logSpecs()}, {"stats", statsSpecs()}, {"stop", stopSpecs()}, {"mounts", mountSpecs()},
		{"ports", portSpecs()}, {"image", imageSpecs()}, {"events", eventSpecs()}, {"update", updateSpecs()},
		{"restart", restartSpecs()},
	} {
		t.Run(theme.name, func(t *testing.T) {
			for name, spec := range theme.specs {
				s.spec(t, name, spec)
			}
		})
	}
	check := exec.Command(filepath.Join(world.folder, "bin", "sunaba"), "check", "--root", n.Root, "--state", n.State, "--config", n.ConfigFile)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("the node after the suite: %v\n%s", err, out)
	}
}

// suite is one spec's view of the node.
type suite struct {
	*node.Node
	t     *testing.T
	scope string // of the shims
}

// spec runs one spec and removes its pods.
func (s *suite) spec(t *testing.T, name string, spec func(*suite)) {
	t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
		inner := &suite{t: t, Node: s.Node, scope: s.scope}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			if err := s.RemovePods(ctx); err != nil {
				t.Error(err)
			}
			world.mu.Lock()
			defer world.mu.Unlock()
			switch {
			case t.Failed():
				world.failed++
				t.Logf("the daemon said:\n%s", s.DaemonLog())
			case t.Skipped():
				world.skipped++
			default:
				world.passed++
			}
		})
		spec(inner)
	})
}

func (s *suite) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// refused wants an error of one of the codes.
func (s *suite) refused(err error, want ...codes.Code) {
	s.t.Helper()
	for _, c := range want {
		if grpcstatus.Code(err) == c {
			return
		}
	}
	s.t.Errorf("%v, want %v", err, want)
}

func (s *suite) pull(ref string) string {
	s.t.Helper()
	answer, err := s.PullImage(s.t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}})
	s.check(err)
	return answer.GetImageRef()
}

// pod is a sandbox of the wasm handler.
type pod struct {
	*suite
	id     string
	config *runtime.PodSandboxConfig
}

func (s *suite) podConfig() *runtime.PodSandboxConfig {
	config := s.PodConfig("suite", "pod")
	config.Hostname = "guesthost"
	return config
}

func (s *suite) run(change ...func(*runtime.PodSandboxConfig)) *pod {
	s.t.Helper()
	config := s.podConfig()
	for _, c := range change {
		c(config)
	}
	answer, err := s.RunPodSandbox(s.t.Context(), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: "wasm"})
	s.check(err)
	return &pod{suite: s, id: answer.GetPodSandboxId(), config: config}
}

func (p *pod) status() *runtime.PodSandboxStatusResponse {
	p.t.Helper()
	answer, err := p.PodSandboxStatus(p.t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
	p.check(err)
	return answer
}

func (p *pod) stop() {
	p.t.Helper()
	_, err := p.StopPodSandbox(p.t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: p.id})
	p.check(err)
}

func (p *pod) remove() {
	p.t.Helper()
	_, err := p.RemovePodSandbox(p.t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: p.id})
	p.check(err)
}

// guest is a container of the pod.
type guest struct {
	*pod
	id, log string
	config  *runtime.ContainerConfig
}

// does makes a configuration of the guest with arguments.
func does(args ...string) *runtime.ContainerConfig { return from(world.guest, args...) }

func from(image string, args ...string) *runtime.ContainerConfig {
	config := node.ContainerConfig(image)
	config.Args, config.Linux = args, &runtime.LinuxContainerConfig{}
	return config
}

func (p *pod) tryCreate(config *runtime.ContainerConfig) (*guest, error) {
	id, log, err := p.Create(p.t.Context(), p.id, p.config, config)
	return &guest{pod: p, id: id, config: config, log: log}, err
}

func (p *pod) create(config *runtime.ContainerConfig) *guest {
	p.t.Helper()
	g, err := p.tryCreate(config)
	p.check(err)
	return g
}

func (p *pod) start(config *runtime.ContainerConfig) *guest {
	p.t.Helper()
	g := p.create(config)
	p.check(g.start())
	return g
}

func (g *guest) start() error {
	_, err := g.StartContainer(g.t.Context(), &runtime.StartContainerRequest{ContainerId: g.id})
	return err
}

func (g *guest) status() *runtime.ContainerStatus {
	g.t.Helper()
	answer, err := g.ContainerStatus(g.t.Context(), &runtime.ContainerStatusRequest{ContainerId: g.id})
	g.check(err)
	return answer.GetStatus()
}

// stop stops the guest with a grace in seconds and returns how long it took.
func (g *guest) stop(grace int64) time.Duration {
	g.t.Helper()
	begun := time.Now()
	_, err := g.StopContainer(g.t.Context(), &runtime.StopContainerRequest{ContainerId: g.id, Timeout: grace})
	g.check(err)
	return time.Since(begun)
}

// ends waits for the guest's end and compares how it ended.
func (g *guest) ends(code int32, reason string) *runtime.ContainerStatus {
	g.t.Helper()
	var status *runtime.ContainerStatus
	if !node.Within(node.Patience, func() bool {
		status = g.status()
		return status.GetState() == runtime.ContainerState_CONTAINER_EXITED
	}) {
		g.t.Fatalf("%q does not end: %q", g.config.GetArgs(), g.text())
	}
	if status.GetExitCode() != code || status.GetReason() != reason {
		g.t.Errorf("%q ended with %d %s %q, want %d %s; it said %q", g.config.GetArgs(), status.GetExitCode(), status.GetReason(), status.GetMessage(), code, reason, g.text())
	}
	return status
}

// prints runs a guest to its end, which must be 0, and returns what it said.
func (p *pod) prints(config *runtime.ContainerConfig) string {
	p.t.Helper()
	g := p.start(config)
	g.ends(0, "Completed")
	return g.text()
}

func (g *guest) lines() []node.LogLine { return g.linesOf(g.log) }

func (g *guest) linesOf(path string) []node.LogLine {
	g.t.Helper()
	lines, err := node.ReadLog(path)
	g.check(err)
	return lines
}

// text is what the guest said, on both streams.
func (g *guest) text() string {
	g.t.Helper()
	return node.Text(g.lines())
}

// says waits until the guest has said something.
func (g *guest) says(want string) {
	g.t.Helper()
	if !node.Within(node.Patience, func() bool { return strings.Contains(g.text(), want) }) {
		g.t.Fatalf("%q never said %q but %q; %v", g.config.GetArgs(), want, g.text(), g.status())
	}
}

// exec runs a command in the guest's container.
func (g *guest) exec(timeout int64, command ...string) (*runtime.ExecSyncResponse, error) {
	return g.ExecSync(g.t.Context(), &runtime.ExecSyncRequest{ContainerId: g.id, Cmd: command, Timeout: timeout})
}
