package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// check runs `sunaba check` on the node and returns its exit code and what it printed.
func (m *machine) check(args ...string) (code int, out string) {
	m.t.Helper()
	code, out, err := m.Check(args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return code, out
}

// expectSound fails the scenario if the check finds anything.
func (m *machine) expectSound(when string) {
	m.t.Helper()
	if err := m.Sound(); err != nil {
		m.t.Errorf("%s: %v", when, err)
	}
}

// A sound node has no findings, whatever its pods do, with the server running, killed and started
// again.
func TestCheckOfASoundNode(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	m.pull(world.Artifact)
	m.expectSound("empty")
	for _, handler := range everyHandler {
		p := m.run(handler, withPort(8080, int32(20000+node.Serial())))
		p.begin(sh("sleep 1000"))
		p.create(sh("true"))
		p.begin(sh("exit 3")).wait()
		if handler == "wasm" {
			p.begin(containerConfig(world.Guest, "idle")).says("idle")
			p.begin(containerConfig(world.Artifact, "idle")).says("idle")
		}
	}
	host := m.run("runc", func(config *runtime.PodSandboxConfig) {
		config.Linux.SecurityContext.NamespaceOptions = &runtime.NamespaceOption{
			Network: runtime.NamespaceMode_NODE, Pid: runtime.NamespaceMode_POD, Ipc: runtime.NamespaceMode_NODE,
		}
		config.Hostname = ""
	})
	host.begin(sh("sleep 1000"))
	stopped := m.run("wasm")
	stopped.begin(containerConfig(world.Guest, "idle")).says("idle")
	stopped.stop()
	m.expectSound("with pods")

	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.expectSound("with the server killed")
	if code, out := m.check("--repair"); code != 0 {
		t.Errorf("repair of a sound node ends with %d:\n%s", code, out)
	}
	m.expectSound("after a repair")
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expectSound("with the server started again")
	if code, out := m.check("--repair"); code != 1 || !strings.Contains(out, "stop it") {
		t.Errorf("repair beside a server ends with %d:\n%s", code, out)
	}
	if got := host.status().GetStatus().GetState(); got != runtime.PodSandboxState_SANDBOX_READY {
		t.Errorf("a pod is %v after all this", got)
	}
}

// Pods come and go while the check looks: it never mistakes one that is being made for a leftover.
func TestCheckWhilePodsComeAndGo(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	done := make(chan error, 1)
	go func() {
		for range 8 {
			answer, err := m.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: m.podConfig("busy"), RuntimeHandler: "wasm"})
			if err == nil {
				m.Ran(answer.GetPodSandboxId())
				_, err = m.RemovePodSandbox(t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: answer.GetPodSandboxId()})
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		m.expectSound("while pods come and go")
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// What is broken is found, and a repair with the server stopped removes what nothing owns; the pods
// that are sound run on.
func TestCheckFindsAndRepairs(t *testing.T) {
	m := startOwn(t)
	m.pull(world.Busybox)
	healthy := m.run("runc", withPort(8080, int32(20000+node.Serial())))
	alive := healthy.begin(sh("sleep 1000"))
	dead := m.run("runc")
	dead.begin(sh("sleep 1000"))
	forgotten := m.run("wasm", withPort(8081, int32(20000+node.Serial())))
	lost := forgotten.begin(sh("sleep 1000"))
	m.expectSound("before")
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// A pod whose shim is dead, and one whose records are gone while all of it runs.
	dead.killShim()
	for kind, id := range map[string]string{"sandboxes": forgotten.id, "containers": lost.id} {
		file, err := m.RecordFile(kind, id)
		do(err)
		do(os.Remove(file))
	}
	// Folders, files and a cgroup of nobody.
	nobody := strings.Repeat("0123456789abcdef", 4)
	for _, dir := range []string{"sandboxes", "volumes"} {
		do(os.Mkdir(filepath.Join(m.Root, dir, nobody), 0o755))
	}
	do(os.Mkdir(filepath.Join(m.State, "sandboxes", nobody), 0o755))
	do(os.WriteFile(filepath.Join(m.Root, "state", "containers", nobody+".json"), []byte("}"), 0o600))
	do(os.WriteFile(filepath.Join(m.Root, "state", "sandboxes", "."+nobody+".json.tmp-1"), []byte("{"), 0o600))
	cg := "/sys/fs/cgroup/memory" + node.PodCgroup(nobody)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		cg = "/sys/fs/cgroup" + node.PodCgroup(nobody)
	}
	do(os.Mkdir(cg, 0o755))

	code, out := m.check()
	if code != 1 {
		t.Errorf("the check ends with %d", code)
	}
	for _, want := range []string{
		"pod " + dead.id + " (scenario/pod): it is on record as ready, but its shim does not run",
		"it works for pod " + forgotten.id,
		"folder " + filepath.Join(m.State, "sandboxes", forgotten.id),
		"mount " + filepath.Join(m.State, "sandboxes", forgotten.id, "ns", "net"),
		"mount " + filepath.Join(m.State, "sandboxes", forgotten.id, lost.id, "rootfs"),
		"they are leased to pod " + forgotten.id,
		"nftables rules of pod " + forgotten.id,
		"link snb" + forgotten.id[:12],
		"cgroup " + node.PodCgroup(forgotten.id) + ": its pod is not on record or was stopped, and processes [",
		fmt.Sprintf("root filesystem %q", lost.id),
		"folder " + filepath.Join(m.Root, "sandboxes", nobody), "folder " + filepath.Join(m.Root, "volumes", nobody),
		"folder " + filepath.Join(m.State, "sandboxes", nobody),
		nobody + ".json: a damaged record", "." + nobody + ".json.tmp-1: the remains of a write",
		"cgroup " + node.PodCgroup(nobody),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the check does not say %q", want)
		}
	}
	if strings.Contains(out, healthy.id) || strings.Contains(out, alive.id) {
		t.Error("the check finds fault with a sound pod")
	}
	if t.Failed() {
		t.Logf("the check said:\n%s", out)
	}

	code, out = m.check("--repair")
	if findings := strings.Count(out, "to do:"); code != 1 || findings != 1 || !strings.Contains(out, nobody+".json.damaged") {
		t.Errorf("repair ends with %d and should leave the damaged record alone:\n%s", code, out)
	}
	do(os.Remove(filepath.Join(m.Root, "state", "containers", nobody+".json.damaged")))
	m.expectSound("after the repair")
	if _, err := os.Stat(cg); err == nil {
		t.Error("the cgroup of nobody is still there")
	}
	do(m.StartDaemon(t.Context()))
	m.expectSound("with the server")
	if got := alive.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the sound container is %v", got)
	}
	if got := dead.status().GetStatus().GetState(); got != runtime.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the pod without shim is %v", got)
	}
}
