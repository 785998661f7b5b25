package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// clockConfig has restarts wait for as long as the first one does.
const clockConfig = `
[pods]
manifests = [%q]
logs = %q
crash_loop_max = "10s"
%s
[handlers.runc]
type = "oci"
binary = "runc"
default = true
[handlers.wasm]
type = "wasm"
`

// turn sets the machine's clock forward, or back.
func turn(t *testing.T, by time.Duration) {
	t.Helper()
	to := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	check(t, unix.ClockSettime(unix.CLOCK_REALTIME, &to))
	fmt.Println("the clock is turned by", by)
}

// The clock is set an hour forward, two back and one forward, under pods and under the server,
// which is killed and started again in between: pods stay as they are, delays last as long as they
// should, what is newer is shown as newer, and no age is negative.
func TestClock(t *testing.T) {
	e := serve(t, clockConfig, "")
	const probed = "  containers: [{name: app, image: %q, command: [sh, -c, %q], %s}]\n"
	steady := func(name string) {
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n"+probed, name, e.busybox,
			"while :; do echo tick; sleep 0.2; done",
			"readinessProbe: {exec: {command: [\"true\"]}, initialDelaySeconds: 1, periodSeconds: 2, timeoutSeconds: 5}, livenessProbe: {exec: {command: [\"true\"]}, periodSeconds: 2, timeoutSeconds: 5}")
		check(t, os.WriteFile(filepath.Join(e.Options.Dir, "manifests", name+".yaml"), []byte(text), 0o600))
	}
	ready := func(name string) bool {
		for _, c := range e.pods()[name].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	}
	restarts := func(name string) int32 {
		if s := e.pods()[name].Status.ContainerStatuses; len(s) > 0 {
			return s[0].RestartCount
		}
		return -1
	}
	steady("steady")
	e.pod("crashes", "", "exit 1")
	e.running("steady")
	e.await("steady is ready", func() bool { return ready("steady") })
	attempts := e.attempts()

	for i, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		// In the middle of a delay.
		n := restarts("crashes")
		e.await("a restart", func() bool { return restarts("crashes") > n })
		n, began := restarts("crashes"), time.Now()
		turn(t, by)
		newer := fmt.Sprint("newer-", i)
		steady(newer)
		attempts.another()
		e.await(newer+" is ready", func() bool { return ready(newer) })
		e.await("the next restart", func() bool { return restarts("crashes") > n })
		if took := time.Since(began); took < 7*time.Second || took > node.Slow(20*time.Second) {
			t.Errorf("turned by %v: a restart after 10 s took %v", by, took)
		}
		e.texts()
		if out, err := e.sunaba("logs", "--since=5s", newer); err != nil || !strings.Contains(out, "tick") {
			t.Errorf("turned by %v: the newest lines of a log are not shown: %v", by, err)
		}
		if i == 1 { // it is told of all that started in its future
			check(t, e.SignalDaemon(syscall.SIGKILL))
			check(t, e.StartDaemon(t.Context()))
			e.await("all are ready after a restart", func() bool { return ready("steady") && ready("newer-0") && ready("newer-1") })
			e.texts()
		}
	}
	for _, name := range []string{"steady", "newer-0", "newer-1", "newer-2"} {
		if n := restarts(name); n != 0 || !ready(name) {
			t.Errorf("%s was restarted %d times, or is not ready: %+v", name, n, e.pods()[name].Status)
		}
	}
	attempts.sorted()
	attempts.remove()
	if out, err := try(filepath.Join(e.Options.Bin, "sunaba"), "check", "--root", e.Root, "--state", e.State, "--config", e.ConfigFile); err != nil {
		t.Errorf("the check: %v\n%s", err, out)
	}
}

// sunaba runs a command about pods.
func (e *podServer) sunaba(command string, args ...string) (string, error) {
	return try(filepath.Join(e.Options.Bin, "sunaba"), append([]string{command, "--state=" + e.State}, args...)...)
}

// texts wants no negative age in what is shown.
func (e *podServer) texts() {
	e.t.Helper()
	for _, args := range [][]string{{"get", "pods,events,nodes", "-A"}, {"describe", "pods"}, {"describe", "nodes"}, {"get", "manifests"}} {
		out, err := e.sunaba(args[0], args[1:]...)
		if err != nil || strings.Contains(out, "<invalid>") || strings.Contains(out, " -1h") {
			e.t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// attempts are the containers of one name, in one pod, that a kubelet starts one after another.
type attempts struct {
	*podServer
	pod    string
	config *runtime.PodSandboxConfig
	ids    []string
}

func (e *podServer) attempts() *attempts {
	e.t.Helper()
	_, err := e.PullImage(e.t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: e.guest}})
	check(e.t, err)
	a := &attempts{podServer: e, config: e.PodConfig("clock", "attempts")}
	answer, err := e.RunPodSandbox(e.t.Context(), &runtime.RunPodSandboxRequest{Config: a.config, RuntimeHandler: "wasm"})
	check(e.t, err)
	a.pod = answer.GetPodSandboxId()
	a.another()
	return a
}

// another ends the attempt before, which has run while the clock was turned, and starts the next.
func (a *attempts) another() {
	a.t.Helper()
	if n := len(a.ids); n > 0 {
		_, err := a.StopContainer(a.t.Context(), &runtime.StopContainerRequest{ContainerId: a.ids[n-1]})
		check(a.t, err)
	}
	config := node.ContainerConfig(a.guest)
	config.Metadata.Name, config.Metadata.Attempt, config.Args = "app", uint32(len(a.ids)), []string{"idle"}
	id, _, err := a.Create(a.t.Context(), a.pod, a.config, config)
	check(a.t, err)
	_, err = a.StartContainer(a.t.Context(), &runtime.StartContainerRequest{ContainerId: id})
	check(a.t, err)
	a.ids = append(a.ids, id)
}

// sorted wants the attempts in their order by the time of their creation, as a kubelet sorts them,
// and no end before its start or after now.
func (a *attempts) sorted() {
	a.t.Helper()
	list, err := a.ListContainers(a.t.Context(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: a.pod}})
	check(a.t, err)
	all := list.GetContainers()
	slices.SortFunc(all, func(x, y *runtime.Container) int { return int(min(1, max(-1, x.GetCreatedAt()-y.GetCreatedAt()))) })
	for i, c := range all {
		answer, err := a.ContainerStatus(a.t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.GetId()})
		check(a.t, err)
		s := answer.GetStatus()
		ended := s.GetState() == runtime.ContainerState_CONTAINER_EXITED
		if c.GetId() != a.ids[i] || ended && s.GetStartedAt() > s.GetFinishedAt() {
			a.t.Errorf("attempt %d is shown as number %d: created at %d, started at %d, ended at %d",
				slices.Index(a.ids, c.GetId()), i, s.GetCreatedAt(), s.GetStartedAt(), s.GetFinishedAt())
		}
	}
}

func (a *attempts) remove() {
	a.t.Helper()
	_, err := a.RemovePodSandbox(a.t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: a.pod})
	check(a.t, err)
}
