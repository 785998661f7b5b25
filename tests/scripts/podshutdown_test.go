package scripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/tests/login"
	"github.com/sunaba-project/sunaba/tests/node"
)

// systemd-logind shuts the machine down: it is held back until pods are over, also by a server that
// was killed and started meanwhile, and pods are started again when it is taken back (SD1, SD8).
func TestPodShutdownByLogind(t *testing.T) {
	t.Setenv(node.DriverVariable, string(cgroup.Cgroupfs)) // the other one uses the machine's own bus
	l := login.Start(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", l.Address)
	m := startPods(t)
	pod := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  priorityClassName: system-node-critical\n  terminationGracePeriodSeconds: 1\n"+
		"  containers: [{name: app, image: %s, command: [sh, -c, 'trap : TERM; while :; do sleep 1; done']}]\n", world.Busybox)
	if err := os.WriteFile(filepath.Join(m.manifests(), "web.yaml"), []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	ready := func() {
		t.Helper()
		out, err := exec.Command(filepath.Join(world.Bin, "sunaba"), "wait", "--state", m.State, "--for=condition=Ready", "--timeout=60s", "pod/web").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, out, m.DaemonLog())
		}
	}
	running := func() int {
		t.Helper()
		list, err := m.ListContainers(t.Context(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{
			State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.GetContainers())
	}
	until := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(node.Patience); !f(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s\n%s", what, m.DaemonLog())
			}
		}
	}
	ready()
	until("a lock", func() bool { return l.Locks() == 1 })
	began := time.Now()
	l.PrepareForShutdown(true)
	until("the release", func() bool { return l.Locks() == 0 })
	if took := time.Since(began); took < 1500*time.Millisecond || running() != 0 {
		t.Errorf("released after %v, %d containers run", took, running())
	}
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	until("nothing runs, since the machine still shuts down", func() bool { return running() == 0 })
	l.PrepareForShutdown(false)
	ready()
	until("a lock again", func() bool { return l.Locks() == 1 })
	if running() != 1 {
		t.Errorf("%d containers run", running())
	}
}
