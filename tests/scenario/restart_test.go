package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/tests/node"
)

// counter is a container that prints a numbered line every few milliseconds, without end.
func counter() *runtime.ContainerConfig {
	return containerConfig(world.Batch, "-lines", "-1", "-every", node.Slow(5*time.Millisecond).String())
}

// consecutive checks that no line of a counter's log is missing or doubled, and returns their
// number.
func (c *container) consecutive() int {
	c.t.Helper()
	n := 0
	for _, l := range c.lines() {
		if number, ok := strings.CutPrefix(l.Text, "batch: line "); ok {
			if n++; number != fmt.Sprint(n) {
				c.t.Fatalf("under %s: line %d of the log is %q", c.handler, n, l.Text)
			}
		}
	}
	return n
}

// The daemon is killed at once, and the pods do not notice: they run on, their logs go on, and what
// ended meanwhile shows its true exit code and time. Afterwards everything can be taken away.
func TestKillDaemon(t *testing.T) {
	m := start(t)
	m.pull(world.Batch)
	type left struct {
		p            *pod
		counts, ends *container
		job          int // first process of ends
		addrs        string
	}
	var all []left
	for _, handler := range everyHandler {
		p := m.run(handler)
		l := left{p: p, counts: p.begin(counter()), ends: p.begin(containerConfig(world.Batch, "-lines", "40", "-every", node.Slow(50*time.Millisecond).String(), "-exit", "9"))}
		// The job stands still until there is no daemon.
		l.job = taskPID(t, l.ends)
		if err := syscall.Kill(l.job, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		l.counts.says("line 3")
		l.addrs = fmt.Sprint(p.status().GetStatus().GetNetwork())
		all = append(all, l)
	}
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for _, l := range all {
		if err := syscall.Kill(l.job, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range all {
		if !node.Within(node.Patience, func() bool { return strings.Contains(l.ends.text(), "done") }) {
			t.Fatalf("under %s: the job stopped with the daemon: %q", l.p.handler, l.ends.text())
		}
		bundle := filepath.Join(m.State, "sandboxes", l.p.id, l.ends.id)
		if !node.Within(node.Patience, func() bool { _, kept := client.ReadExit(bundle); return kept }) {
			t.Fatalf("under %s: nobody has kept how the job ended", l.p.handler)
		}
	}
	restarted := time.Now()
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		status := l.ends.status()
		if status.GetState() != runtime.ContainerState_CONTAINER_EXITED || status.GetExitCode() != 9 || status.GetReason() != "Error" {
			t.Errorf("under %s: the job that ended meanwhile: %v %d %s", l.p.handler, status.GetState(), status.GetExitCode(), status.GetReason())
		}
		if at := time.Unix(0, status.GetFinishedAt()); at.Before(killed) || at.After(restarted) {
			t.Errorf("under %s: it ended at %v, between %v and %v is right", l.p.handler, at, killed, restarted)
		}
		if state := l.counts.status().GetState(); state != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("under %s: the counter is %v", l.p.handler, state)
		}
		if state := l.p.status().GetStatus().GetState(); state != runtime.PodSandboxState_SANDBOX_READY {
			t.Errorf("under %s: the pod is %v", l.p.handler, state)
		}
		if got := fmt.Sprint(l.p.status().GetStatus().GetNetwork()); got != l.addrs {
			t.Errorf("under %s: addresses %s, before the kill %s", l.p.handler, got, l.addrs)
		}
		n := l.counts.consecutive()
		if !node.Within(node.Patience, func() bool { return l.counts.consecutive() > n }) {
			t.Errorf("under %s: the log does not go on after line %d", l.p.handler, n)
		}
		l.counts.stop(1)
		l.counts.wait()
		// A new container in the pod of the old daemon.
		l.p.begin(containerConfig(world.Batch)).expectEnd(0, "Completed")
		l.p.stop()
		l.p.remove()
	}
	m.clean()
}

// A stop by signal is a stop of the server only.
func TestTerminateDaemon(t *testing.T) {
	m := start(t)
	m.pull(world.Batch)
	var counters []*container
	for _, handler := range []string{"runc", "wasm"} {
		c := m.run(handler).begin(counter())
		c.says("line 3")
		counters = append(counters, c)
	}
	if err := m.SignalDaemon(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.Socket); err == nil {
		t.Error("the socket is still there")
	}
	for _, c := range counters {
		n := c.consecutive()
		if !node.Within(node.Patience, func() bool { return c.consecutive() > n+5 }) {
			t.Errorf("under %s: the pod stopped with the server", c.handler)
		}
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range counters {
		if state := c.status().GetState(); state != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("under %s: %v", c.handler, state)
		}
	}
}

// The daemon is killed in the middle of many pods' lives; whatever it had begun is finished or
// undone.
func TestKillDaemonInTheMiddle(t *testing.T) {
	m := start(t)
	m.pull(world.Batch)
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 6 {
				config := m.podConfig("middle")
				answer, err := m.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: everyHandler[i%3]})
				if err != nil {
					return // the daemon is gone
				}
				m.Ran(answer.GetPodSandboxId())
				p := &pod{machine: m, id: answer.GetPodSandboxId(), handler: everyHandler[i%3], config: config}
				c, err := p.tryCreate(containerConfig(world.Batch))
				if err != nil {
					return
				}
				if _, err := m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: c.id}); err != nil {
					return
				}
				if _, err := m.StopPodSandbox(t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Duration(20+37*round) * time.Millisecond)
		if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-done
		if err := m.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.RemovePods(t.Context()); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		m.clean()
	}
}

// A pod whose shim was killed is NOTREADY, not an error, and can be taken away.
func TestKillShim(t *testing.T) {
	m := startOwn(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			config := sh("echo idle; sleep 1000")
			if handler == "wasm" {
				config = containerConfig(world.Guest, "idle")
			}
			c := p.begin(config)
			c.says("idle")
			p.killShim()
			if !node.Within(node.Patience, func() bool {
				return p.status().GetStatus().GetState() == runtime.PodSandboxState_SANDBOX_NOTREADY
			}) {
				t.Error("the pod is still READY")
			}
			if !node.Within(node.Patience, func() bool { return c.status().GetState() != runtime.ContainerState_CONTAINER_RUNNING }) {
				t.Error("the container is still RUNNING")
			}
			p.stop()
			p.remove()
			m.clean()
		})
	}
}

// Two servers on one machine do not touch each other's pods.
func TestTwoServers(t *testing.T) {
	a := start(t)
	b := start(t)
	for _, m := range []*machine{a, b} {
		if err := m.Reset(); err != nil { // each sees the other's bridge
			t.Fatal(err)
		}
	}
	a.pull(world.Greeter)
	b.pull(world.Greeter)
	var pods []*pod
	for _, m := range []*machine{a, b} {
		for _, handler := range []string{"runc", "wasm"} {
			p := m.run(handler, withPort(8080, 0))
			p.begin(containerConfig(world.Greeter)).says("listening")
			pods = append(pods, p)
		}
	}
	seen := map[string]bool{}
	for _, p := range pods {
		ip := p.ip()
		if seen[ip] {
			t.Errorf("two pods have the address %s", ip)
		}
		seen[ip] = true
		if got := p.Get("http://" + ip + ":8080/"); !strings.Contains(got, platformOf(p.handler)) {
			t.Errorf("%s: %q", ip, got)
		}
	}
	if err := a.RemovePods(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods[2:] {
		if got := p.Get("http://" + p.ip() + ":8080/"); !strings.Contains(got, platformOf(p.handler)) {
			t.Errorf("after the other server's pods went: %q", got)
		}
	}
	list, err := a.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{})
	if err != nil || len(list.GetItems()) != 0 {
		t.Errorf("the first server lists %v, %v", list, err)
	}
}
