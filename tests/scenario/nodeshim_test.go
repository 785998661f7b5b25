package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// sharedHandlers are handlers whose pods share a shim.
const sharedHandlers = `
[handlers.shared-runc]
type = "oci"
binary = "runc"
shim_scope = "node"

[handlers.shared-crun]
type = "oci"
binary = "crun"
shim_scope = "node"

[handlers.shared-wasm]
type = "wasm"
shim_scope = "node"
`

// everyShared are the names in it.
var everyShared = []string{"shared-runc", "shared-crun", "shared-wasm"}

// shim is the pid of a pod's shim, 0 if it has none.
func (p *pod) shim() int {
	p.t.Helper()
	var info struct {
		PID       int
		ShimScope string
	}
	parse(p.t, p.status(), &info)
	return info.PID
}

// supervisor is the pid of the supervisor of a handler's shim.
func (m *machine) supervisor(handler string) int {
	m.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.State, "shims", handler, "shim.pid"))
	if err != nil {
		m.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		m.t.Fatal(err)
	}
	return pid
}

// sharedLog is what the shim of a handler said.
func (m *machine) sharedLog(handler string) string {
	data, err := os.ReadFile(filepath.Join(m.State, "shims", handler, "shim.log"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (m *machine) kill9(pid int) {
	m.t.Helper()
	if pid < 2 {
		m.t.Fatalf("there is no process %d to kill", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		m.t.Fatal(err)
	}
}

// killSharedShim kills the shim and returns when its successor answers.
func (p *pod) killSharedShim() {
	p.t.Helper()
	before := p.shim()
	p.kill9(before)
	if !node.Within(node.Patience, func() bool { pid := p.shim(); return pid != before && pid != 0 }) {
		p.t.Fatalf("under %s: no shim has taken over\nshim: %s\n%s", p.handler, p.sharedLog(p.handler), p.DaemonLog())
	}
}

// goesOn checks that a counter writes its log in order, with at most gaps places at which something
// is missing, and that nothing is doubled.
func (c *container) goesOn(gaps int) {
	c.t.Helper()
	last := func() int {
		n, missing := 0, 0
		for _, l := range c.lines() {
			text, ok := strings.CutPrefix(l.Text, "batch: line ")
			if !ok {
				continue
			}
			number, err := strconv.Atoi(text)
			if err != nil || number <= n {
				c.t.Fatalf("under %s: after line %d comes %q", c.handler, n, l.Text)
			}
			if number > n+1 {
				missing++
			}
			n = number
		}
		if missing > gaps {
			c.t.Errorf("under %s: lines are missing at %d places of the log, at most at %d they may", c.handler, missing, gaps)
		}
		return n
	}
	n := last()
	if !node.Within(node.Patience, func() bool { return last() > n+2 }) {
		c.t.Fatalf("under %s: the log does not go on after line %d\nshim: %s\n%s", c.handler, n, c.sharedLog(c.handler), c.DaemonLog())
	}
}

// Pods of a handler have one shim, pods of others have theirs; their overhead is divided, and the
// last pod takes the shim along.
func TestSharedShim(t *testing.T) {
	m := start(t, sharedHandlers)
	m.pull(world.Batch)
	alone := m.run("runc").shim()
	shims := map[int]string{alone: "runc"}
	for _, handler := range everyShared {
		a, b := m.run(handler), m.run(handler)
		if other := shims[a.shim()]; other != "" || a.shim() != b.shim() {
			t.Errorf("under %s: shims %d and %d; want one, and not that of %q", handler, a.shim(), b.shim(), other)
		}
		shims[a.shim()] = handler
		a.begin(containerConfig(world.Batch, "-exit", "9")).expectEnd(9, "Error")
		counts := b.begin(counter())
		counts.says("line 3")
		shared := a.sharedParts()
		for _, name := range []string{"shim", "supervisor"} {
			if one := shared[name]; one.Pods != 2 || one.MemoryBytes == 0 {
				t.Errorf("under %s: %s costs a pod %+v; want a part of two", handler, name, one)
			}
		}
		var whole, half int64
		if !node.Within(node.Patience, func() bool { // what it has changes between the two looks
			whole, half = rollup(t, shared["shim"].PID), a.sharedParts()["shim"].MemoryBytes
			return half >= whole/4 && half <= whole
		}) {
			t.Errorf("under %s: the shim has %d bytes, and a pod bears %d of them", handler, whole, half)
		}
		a.stop()
		a.remove()
		counts.goesOn(0)
		counts.stop(1)
		b.stop()
		b.remove()
		if _, err := os.Stat(filepath.Join(m.State, "shims", handler)); err == nil {
			t.Errorf("under %s: the shim's folder is there after the last pod has gone", handler)
		}
		if !node.Within(node.Patience, func() bool { return gone(shared["shim"].PID) && gone(shared["supervisor"].PID) }) {
			t.Errorf("under %s: shim or supervisor is there after the last pod has gone", handler)
		}
	}
}

// sharedPart is a process in a pod's measured overhead.
type sharedPart struct {
	Name        string
	PID, Pods   int
	MemoryBytes int64
}

func (p *pod) sharedParts() map[string]sharedPart {
	p.t.Helper()
	var info struct {
		Overhead struct{ Measured struct{ Parts []sharedPart } }
	}
	parse(p.t, p.status(), &info)
	found := map[string]sharedPart{}
	for _, one := range info.Overhead.Measured.Parts {
		found[one.Name] = one
	}
	return found
}

// followed are the events of a node, counted.
type followed struct {
	mu     sync.Mutex
	events map[string]int // by container and type
}

func (m *machine) follow() *followed {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	m.t.Cleanup(cancel)
	stream, err := m.GetContainerEvents(ctx, &runtime.GetEventsRequest{})
	if err != nil {
		m.t.Fatal(err)
	}
	f := &followed{events: map[string]int{}}
	go func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.events[e.GetContainerId()+" "+e.GetContainerEventType().String()]++
			f.mu.Unlock()
		}
	}()
	return f
}

func (f *followed) count(id string, kind runtime.ContainerEventType) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events[id+" "+kind.String()]
}

// sharedPods are what runs while things are killed: under each handler two pods, in one of them a
// process namespace for all.
type sharedPods struct {
	p, q               *pod
	counts, ends, rest *container
}

func (m *machine) sharedPods(handler string) sharedPods {
	m.t.Helper()
	s := sharedPods{p: m.run(handler), q: m.run(handler, func(config *runtime.PodSandboxConfig) {
		config.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	})}
	s.counts = s.p.begin(counter())
	shared := counter()
	shared.Linux.SecurityContext.NamespaceOptions.Pid = runtime.NamespaceMode_POD
	s.rest = s.q.begin(shared)
	s.ends = s.q.begin(containerConfig(world.Batch, "-lines", "30", "-every", node.Slow(50*time.Millisecond).String(), "-exit", "9"))
	s.counts.says("line 3")
	s.rest.says("line 3")
	return s
}

// runOn checks that the pods do as they did before.
func (s sharedPods) runOn(gaps int) {
	t := s.p.t
	t.Helper()
	for _, p := range []*pod{s.p, s.q} {
		if state := p.status().GetStatus().GetState(); state != runtime.PodSandboxState_SANDBOX_READY {
			t.Errorf("under %s: the pod is %v\n%s", p.handler, state, p.DaemonLog())
		}
	}
	for _, c := range []*container{s.counts, s.rest} {
		if state := c.status().GetState(); state != runtime.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("under %s: the counter is %v %v\nshim: %s\n%s", c.handler, state, c.status(), c.sharedLog(c.handler), c.DaemonLog())
		}
		c.goesOn(gaps)
	}
	s.ends.expectEnd(9, "Error")
	s.p.begin(containerConfig(world.Batch)).expectEnd(0, "Completed")
	s.q.begin(containerConfig(world.Batch, "-exit", "3")).expectEnd(3, "Error")
}

func (s sharedPods) end() {
	s.counts.stop(1)
	s.rest.stop(0)
	s.counts.wait()
	for _, p := range []*pod{s.p, s.q} {
		p.stop()
		p.remove()
	}
}

// The shim of all pods of a handler is killed, twice: containers and logs go on, ends are told once
// and are true, and new containers are made.
func TestKillSharedShim(t *testing.T) {
	m := start(t, sharedHandlers)
	m.pull(world.Batch)
	for _, handler := range everyShared {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			events := m.follow()
			s := m.sharedPods(handler)
			s.p.killSharedShim()
			s.p.killSharedShim()
			s.runOn(2)
			s.end()
			for _, c := range []*container{s.counts, s.ends, s.rest} {
				if !node.Within(node.Patience, func() bool { return events.count(c.id, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT) > 0 }) {
					t.Errorf("the end of container %s was not told", c.config.GetMetadata().GetName())
				}
			}
			for _, c := range []*container{s.counts, s.ends, s.rest} {
				if n := events.count(c.id, runtime.ContainerEventType_CONTAINER_STOPPED_EVENT); n > 1 {
					t.Errorf("the end of container %s was told %d times", c.config.GetMetadata().GetName(), n)
				}
			}
		})
	}
	m.clean()
}

// A command that dies with the shared shim says so, whoever waits for it.
func TestExecWhoseSharedShimIsKilled(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	p := m.run("runc")
	c := p.begin(sh("sleep 1000"))
	for _, kind := range []string{"--sync=true", "--sync=false"} {
		session := m.crictl("exec", kind, c.id, "sh", "-c", "echo up >/proc/1/fd/1; sleep 1000")
		var said node.Buffer
		session.Stderr = &said
		if err := session.Start(); err != nil {
			t.Fatal(err)
		}
		c.says("up")
		p.killSharedShim()
		// The command may have come before the answer that it was started.
		waited, started := "its successor has killed the command", "connection to the shim is closed"
		if err := session.Wait(); err == nil || !strings.Contains(said.String(), waited) && !strings.Contains(said.String(), started) {
			t.Errorf("%s: %v, %s", kind, err, said.String())
		}
		if err := os.Truncate(c.log, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// Server and shim are killed together, and the job ends while there is no server.
func TestKillDaemonAndSharedShim(t *testing.T) {
	m := start(t, sharedHandlers)
	m.pull(world.Batch)
	var all []sharedPods
	for _, handler := range everyShared {
		all = append(all, m.sharedPods(handler))
	}
	var shims []int
	for _, s := range all {
		shims = append(shims, s.p.shim())
	}
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, pid := range shims {
		m.kill9(pid)
	}
	for _, s := range all {
		if !node.Within(node.Patience, func() bool { return strings.Contains(s.ends.text(), "done") }) {
			t.Fatalf("under %s: the job has stopped: %q\nshim: %s", s.p.handler, s.ends.text(), m.sharedLog(s.p.handler))
		}
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		s.runOn(1)
		s.end()
	}
	m.clean()
}

// Without its supervisor a shim goes on, and the check says that its death would now be the end of
// its pods. That comes: they are finished as those of a shim of their own, and the next pod is as
// any other.
func TestKillSupervisor(t *testing.T) {
	m := start(t, sharedHandlers)
	m.pull(world.Batch)
	for _, handler := range everyShared {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			c := p.begin(counter())
			c.says("line 3")
			shim := p.shim()
			supervisor := m.supervisor(handler)
			m.kill9(supervisor)
			if !node.Within(node.Patience, func() bool { _, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", supervisor)); return err != nil }) {
				t.Fatal("the supervisor has not ended") // on a busy disk it may be writing for a while
			}
			c.goesOn(0)
			p.begin(containerConfig(world.Batch, "-exit", "4")).expectEnd(4, "Error")
			if code, out := m.check(); code != 1 || !strings.Contains(out, "its supervisor") {
				t.Errorf("check after the supervisor's end: %d\n%s", code, out)
			}
			m.kill9(shim)
			if status := c.wait(); status.GetExitCode() != 255 || status.GetReason() != "Unknown" {
				t.Errorf("a container whose shim and supervisor are gone ended with %d %s", status.GetExitCode(), status.GetReason())
			}
			if !node.Within(node.Patience, func() bool {
				return p.status().GetStatus().GetState() == runtime.PodSandboxState_SANDBOX_NOTREADY
			}) {
				t.Error("the pod is ready")
			}
			next := m.run(handler)
			next.begin(containerConfig(world.Batch)).expectEnd(0, "Completed")
			m.expectSound("with a pod of a new shim beside one of the dead one's")
			for _, one := range []*pod{p, next} {
				one.stop()
				one.remove()
			}
		})
	}
	m.clean()
}

// The scope of a pod is that of the handler when it was made, whatever the configuration says
// later.
func TestScopeIsChanged(t *testing.T) {
	m := start(t, sharedHandlers)
	m.pull(world.Batch)
	shared := m.run("shared-runc")
	old := shared.begin(counter())
	if err := m.SignalDaemon(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(m.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.ConfigFile, []byte(strings.ReplaceAll(string(data), `shim_scope = "node"`, `shim_scope = "pod"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	own := m.run("shared-runc")
	own.begin(counter()).says("line 3")
	for _, c := range []struct {
		p    *pod
		want string
	}{{shared, "node"}, {own, "pod"}} {
		var info struct{ ShimScope string }
		parse(t, c.p.status(), &info)
		if info.ShimScope != c.want {
			t.Errorf("the scope of a pod's shim is %q, want %q", info.ShimScope, c.want)
		}
	}
	shared.killSharedShim()
	old.goesOn(1)
	own.killShim()
	if !node.Within(node.Patience, func() bool {
		return own.status().GetStatus().GetState() == runtime.PodSandboxState_SANDBOX_NOTREADY
	}) {
		t.Error("a pod is ready whose own shim was killed")
	}
	old.goesOn(1)
}

// Pods are started and taken away all the time while their shim is killed again and again. Nothing
// is lost that ran, nothing is left, and what could not be started says so.
func TestSharedShimDiesInTheMiddle(t *testing.T) {
	m := start(t, sharedHandlers)
	m.pull(world.Batch)
	anchor := m.run("shared-runc") // keeps the shim
	counts := anchor.begin(counter())
	counts.says("line 3")
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		done := make(chan error, 3)
		for i := range 3 {
			go func() { done <- m.wholeLife("shared-runc", fmt.Sprintf("m%d-%d", round, i), int32(i+1)) }()
		}
		time.Sleep(time.Duration(30+40*round) * time.Millisecond) // another moment in each round
		anchor.killSharedShim()
		for range 3 {
			if err := <-done; err != nil {
				t.Errorf("round %d: %v\nshim: %s", round, err, m.sharedLog("shared-runc"))
			}
		}
	}
	counts.goesOn(rounds)
	counts.stop(1)
	anchor.stop()
	anchor.remove()
	m.clean()
}

// wholeLife runs a pod with a job that ends with a code, and takes it away. A pod whose shim died
// while it was made may be refused.
func (m *machine) wholeLife(handler, name string, code int32) error {
	config := m.podConfig(name)
	answer, err := m.RunPodSandbox(m.t.Context(), &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	p := &pod{machine: m, id: answer.GetPodSandboxId(), handler: handler, config: config}
	m.Ran(p.id)
	c, err := p.tryCreate(containerConfig(world.Batch, "-lines", "3", "-every", "20ms", "-exit", fmt.Sprint(code)))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := m.StartContainer(m.t.Context(), &runtime.StartContainerRequest{ContainerId: c.id}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	var status *runtime.ContainerStatus
	if !node.Within(node.Patience, func() bool {
		answer, err := m.ContainerStatus(m.t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id})
		status = answer.GetStatus()
		return err == nil && status.GetState() == runtime.ContainerState_CONTAINER_EXITED
	}) {
		return fmt.Errorf("container does not end: %v", status)
	}
	if status.GetExitCode() != code {
		err = fmt.Errorf("container ended with %d %s %q, want %d", status.GetExitCode(), status.GetReason(), status.GetMessage(), code)
	}
	if _, serr := m.StopPodSandbox(m.t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: p.id}); serr != nil {
		return fmt.Errorf("stop: %w", serr)
	}
	if _, rerr := m.RemovePodSandbox(m.t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: p.id}); rerr != nil {
		return fmt.Errorf("remove: %w", rerr)
	}
	return err
}
