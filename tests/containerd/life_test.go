package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/criserver/client/foreign"
	"github.com/sunaba-project/sunaba/host/unixsocket/unixhttp"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/volumes"
	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/node"
)

// The process of an agent has its folder and the server's socket in the environment, and whether
// the server is ours.
const (
	agentFolder = "SUNABA_CONTAINERD_AGENT"
	agentServer = "SUNABA_CONTAINERD_SERVER"
	agentOurs   = "SUNABA_CONTAINERD_OURS"
)

// runAgent is the process of an agent: it runs pods by a server's socket and tells what they are.
func runAgent(dir string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	conn, err := node.Dial(os.Getenv(agentServer))
	if err != nil {
		return err
	}
	server, name := agent.CRI(client.New(conn)), "sunaba"
	if os.Getenv(agentOurs) == "" {
		name = "containerd"
		theirs, err := foreign.New(ctx, conn)
		if err != nil {
			return err
		}
		if err := theirs.Sweep(ctx); err != nil {
			return err
		}
		server = theirs
	}
	options, err := place{dir}.options(server, os.Stderr)
	if err != nil {
		return err
	}
	options.Settings.Runtime, options.Settings.CrashLoopMax = name, 3*time.Second
	a, err := agent.New(options)
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "agent.sock")
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(told{a.Pods(), a.Events()})
	}))
	return errors.Join(a.Run(ctx), options.Volumes.(*volumes.Manager).Close())
}

// told is what an agent tells.
type told struct {
	Pods   []*corev1.Pod
	Events []*corev1.Event
}

// life runs pods by a server with an agent that is a process of its own.
type life struct {
	place
	runtime.RuntimeServiceClient
	t       *testing.T
	env     []string
	process *exec.Cmd
	lines   []string // what was seen
}

func (l *life) start() {
	l.t.Helper()
	log, err := os.OpenFile(filepath.Join(l.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(l.t, err)
	defer log.Close()
	l.process = exec.Command("/proc/self/exe")
	l.process.Env, l.process.Stdout, l.process.Stderr = append(os.Environ(), l.env...), log, log
	l.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(l.t, l.process.Start())
}

// kill ends the agent as a fault of its own would.
func (l *life) kill() {
	l.t.Helper()
	check(l.t, l.process.Process.Kill())
	_ = l.process.Wait() // it was killed
}

func (l *life) ask() (all told, err error) {
	client, err := unixhttp.Connect(l.t.Context(), filepath.Join(l.dir, "agent.sock"))
	if err != nil {
		return all, err
	}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://agent/")
	if err != nil {
		return all, err
	}
	defer answer.Body.Close()
	return all, json.NewDecoder(answer.Body).Decode(&all)
}

// pod is a pod as it is, an empty one if there is none.
func (l *life) pod(name string) (*corev1.Pod, error) {
	all, err := l.ask()
	for _, p := range all.Pods {
		if p.Name == name {
			return p, nil
		}
	}
	return &corev1.Pod{}, err
}

// become waits for a state of a pod, and notes it.
func (l *life) become(name, what string, is func(p *corev1.Pod) bool) *corev1.Pod {
	l.t.Helper()
	p := l.await(name, what, is)
	l.note(what + ": " + line(p))
	return p
}

func (l *life) await(name, what string, is func(p *corev1.Pod) bool) *corev1.Pod {
	l.t.Helper()
	p := &corev1.Pod{}
	l.eventually(name+" is "+what, func() (bool, error) {
		var err error
		if p, err = l.pod(name); err != nil {
			return false, nil // the agent may just have been started
		}
		return is(p), nil
	}, func() string { return fmt.Sprintf("%s\n%v", line(p), p.Status.Conditions) })
	return p
}

func (l *life) note(text string) { l.lines = append(l.lines, text) }

func (l *life) eventually(what string, holds func() (bool, error), but func() string) {
	l.t.Helper()
	for end := time.Now().Add(patience / 3); ; time.Sleep(20 * time.Millisecond) {
		done, err := holds()
		check(l.t, err)
		if done {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("waited in vain: %s: %s", what, but())
		}
	}
}

// line is a pod in a line: phase, readiness, and of each container its state, how often it was
// restarted, and how it ended before.
func line(p *corev1.Pod) string {
	text := fmt.Sprintf("%s%s ready=%s", p.Status.Phase, p.Status.Reason, condition(p, corev1.PodReady))
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		text += fmt.Sprintf(" %s=%s/%d", c.Name, state(c.State), c.RestartCount)
		if c.LastTerminationState.Terminated != nil {
			text += " after " + state(c.LastTerminationState)
		}
	}
	if p.UID == "" {
		return "none"
	}
	return strings.ReplaceAll(text, string(p.UID), "UID")
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return fmt.Sprintf("%s(%s)", s.Waiting.Reason, s.Waiting.Message)
	case s.Running != nil:
		return "Running"
	case s.Terminated != nil:
		return fmt.Sprintf("%s(%d %q)", s.Terminated.Reason, s.Terminated.ExitCode, s.Terminated.Message)
	}
	return "none"
}

func again(n int32) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return ready(p) && of(p, "app").RestartCount == n }
}

// id is what the server calls a container of a pod.
func id(p *corev1.Pod, container string) string {
	_, id, _ := strings.Cut(of(p, container).ContainerID, "://")
	return id
}

func (l *life) exec(p *corev1.Pod, container string, command ...string) string {
	l.t.Helper()
	r := must(l.ExecSync(l.t.Context(), &runtime.ExecSyncRequest{ContainerId: id(p, container), Cmd: command, Timeout: 60}))(l.t)
	if r.GetExitCode() != 0 {
		l.t.Fatalf("%q ended with %d: %s", command, r.GetExitCode(), r.GetStderr())
	}
	return string(r.GetStdout())
}

// running counts the sandboxes that are ready and the containers that run, of a pod.
func (l *life) running(p *corev1.Pod) string {
	l.t.Helper()
	labels := map[string]string{"io.kubernetes.pod.uid": string(p.UID)}
	sandboxes := must(l.ListPodSandbox(l.t.Context(), &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
		LabelSelector: labels, State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY},
	}}))(l.t).GetItems()
	containers := must(l.ListContainers(l.t.Context(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{
		LabelSelector: labels, State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING},
	}}))(l.t).GetContainers()
	return fmt.Sprintf("%d sandboxes, %d containers", len(sandboxes), len(containers))
}

const lifeText = `
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: one}
---
apiVersion: v1
kind: Pod
metadata: {name: life}
spec:
  terminationGracePeriodSeconds: 20
  volumes: [{name: words, configMap: {name: words}}, {name: work, emptyDir: {}}, {name: seen, hostPath: {path: SEEN}}]
  initContainers:
    - name: first
      image: IMAGE
      command: [sh, -c, "echo first >>/seen/log; echo fetched >/dev/termination-log"]
      volumeMounts: [{name: seen, mountPath: /seen}]
    - name: side
      image: IMAGE
      restartPolicy: Always
      command: [sh, -c, "trap 'echo side ends >>/seen/log; exit 0' TERM; touch /work/up; while true; do sleep 0.1; done"]
      readinessProbe: {exec: {command: [test, -f, /work/up]}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 20}
      volumeMounts: [{name: work, mountPath: /work}, {name: seen, mountPath: /seen}]
  containers:
    - name: app
      image: IMAGE
      command: [sh, -c, "trap 'echo ends >>/seen/log; exit 0' TERM; while [ ! -f /seen/crash ]; do sleep 0.1; done; rm /seen/crash; echo broken >/dev/termination-log; exit 7"]
      env: [{name: EDIT, value: "1"}]
      volumeMounts: [{name: words, mountPath: /words}, {name: seen, mountPath: /seen}]
      lifecycle:
        postStart: {exec: {command: [sh, -c, "echo started >>/seen/log"]}}
        preStop: {exec: {command: [sh, -c, "echo stopping >>/seen/log"]}}
`

// wantLife is what becomes of the pod, whichever server runs it.
const wantLife = `
started: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/0
crashed once: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/1 after Error(7 "broken\n")
crashed twice: Running ready=False first=Completed(0 "fetched\n")/0 side=Running/0 app=CrashLoopBackOff(back-off 3s restarting failed container=app pod=life_default(UID))/1 after Error(7 "broken\n")
run a third time: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/2 after Error(7 "broken\n")
not ready: Running ready=False first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/2 after Error(7 "broken\n")
ready again: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/2 after Error(7 "broken\n")
containers wrote: first, started, started, started
events: BackOff Created Pulled Pulling Scheduled Started Unhealthy
adopted: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/2 after Error(7 "broken\n")
1 sandboxes, 2 containers
crashed while no agent ran: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/3 after Error(7 "broken\n")
1 sandboxes, 2 containers
its container stopped by others: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/4 after Completed(0 "")
its sandbox stopped by others: 1 sandboxes, 2 containers
replaced: Running ready=True first=Completed(0 "fetched\n")/0 side=Running/0 app=Running/0
of the old one run 0 sandboxes, 0 containers
containers wrote: stopping, ends, side ends, first, started
removed: none
killed while it starts, pod 0: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
killed while it starts, pod 1: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
killed while it starts, pod 2: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
killed while it starts, pod 3: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
killed while it starts, pod 4: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
killed while it starts, pod 5: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
killed while it starts, pod 6: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
killed while it starts, pod 7: Running ready=True app=Running/0
it wrote: started
1 sandboxes, 1 containers
`

// TestLife runs one pod through its life by containerd and by our server, each over its socket,
// and compares what the agent says of it. The agent is killed in between. Two things only our
// server has for the agent of its own process: it tells who stopped a pod (event StoppedOutside),
// and makes the cgroup of a pod, which package foreign does for another server.
func TestLife(t *testing.T) {
	t.Run("containerd", func(t *testing.T) {
		b := newBenchWith(t, world.releases[1], Runtime{Name: "runc", Type: "io.containerd.runc.v2"})
		t.Cleanup(func() { // a shim of containerd's own whose start is cut off leaves its socket
			for _, path := range glob(t, filepath.Join(b.socketDir(), "*")) {
				check(t, os.Remove(path))
			}
		})
		testLife(t, place{b.Dir}, b.Socket, b, nil)
	})
	t.Run("sunaba", func(t *testing.T) {
		dir := filepath.Join(world.folder, "ours")
		config := fmt.Sprintf("[network]\nconf_dir = %q\n", filepath.Join(dir, "cni"))
		check(t, binaries.Provide(filepath.Join(dir, "bin"), binaries.Sunaba, binaries.Shim))
		n := must(node.Start(t.Context(), node.Options{Bin: filepath.Join(dir, "bin"), Dir: dir, Config: config}))(t)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the server's log:\n%s", tail(n.DaemonLog(), 60))
				_ = n.RemovePods(context.Background())
			}
			if forced, err := n.Close(); err != nil || len(forced) > 0 && !t.Failed() {
				t.Errorf("close the server: %v, taken away by force: %q", err, forced)
			}
		})
		testLife(t, place{dir}, n.Socket, n, n.DaemonLog)
	})
}

// testLife takes the log of a server that is ours, nil of another one.
func testLife(t *testing.T, p place, socket string, server runtime.RuntimeServiceClient, log func() string) {
	check(t, p.make())
	l := &life{place: p, RuntimeServiceClient: server, t: t, env: []string{agentFolder + "=" + p.dir, agentServer + "=" + socket}}
	if log != nil {
		l.env = append(l.env, agentOurs+"=1")
	}
	l.start()
	t.Cleanup(func() {
		check(t, l.process.Process.Signal(syscall.SIGTERM))
		check(t, l.process.Wait())
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(p.dir, "agent.log"))
			t.Logf("the agent's log:\n%s", tail(string(log), 80))
		}
	})
	check(t, l.write("life.yaml", lifeText))
	l.crashes()
	l.agentDies()
	l.stopped()
	l.replaced()
	l.cut(log)
	if got := "\n" + strings.Join(l.lines, "\n") + "\n"; got != wantLife {
		t.Errorf("got:%s\nwant:%s", got, wantLife)
	}
}

func (l *life) crash() { check(l.t, os.WriteFile(l.seen("crash"), nil, 0o600)) }

// crashes is the start of the pod and its first crashes, an edit of its ConfigMap, and its sidecar
// that is not ready for a while.
func (l *life) crashes() {
	l.t.Helper()
	l.become("life", "started", ready)
	l.crash()
	l.become("life", "crashed once", again(1))
	l.crash()
	l.become("life", "crashed twice", func(p *corev1.Pod) bool {
		w := of(p, "app").State.Waiting
		return w != nil && w.Reason == "CrashLoopBackOff"
	})
	p := l.become("life", "run a third time", again(2))
	check(l.t, l.write("life.yaml", strings.Replace(lifeText, "word: one", "word: two", 1)))
	l.eventually("the ConfigMap's edit", func() (bool, error) { return l.exec(p, "app", "cat", "/words/word") == "two", nil }, func() string { return "" })
	l.exec(p, "side", "rm", "/work/up")
	l.become("life", "not ready", func(p *corev1.Pod) bool { return !ready(p) })
	l.exec(p, "side", "touch", "/work/up")
	l.become("life", "ready again", again(2))
	l.note("containers wrote: " + strings.ReplaceAll(strings.TrimSpace(l.saw("log")), "\n", ", "))
	l.note("events: " + l.reasons(p))
}

// agentDies kills the agent, which then finds what it had, and what ended meanwhile.
func (l *life) agentDies() {
	l.t.Helper()
	before := must(l.pod("life"))(l.t)
	l.kill()
	l.start()
	after := l.become("life", "adopted", again(2))
	if before.UID != after.UID || id(before, "app") != id(after, "app") || id(before, "side") != id(after, "side") {
		l.t.Errorf("containers were %v, are %v", before.Status.ContainerStatuses, after.Status.ContainerStatuses)
	}
	l.note(l.running(after))
	l.kill()
	l.crash()
	l.eventually("the crash", func() (bool, error) {
		_, err := os.Stat(l.seen("crash"))
		return os.IsNotExist(err), nil
	}, func() string { return "" })
	l.start()
	after = l.become("life", "crashed while no agent ran", again(3))
	if id(before, "side") != id(after, "side") {
		l.t.Errorf("the sidecar was started anew: %v", after.Status.InitContainerStatuses)
	}
	l.note(l.running(after))
}

// stopped has others stop the container, and then the sandbox.
func (l *life) stopped() {
	l.t.Helper()
	p := must(l.pod("life"))(l.t)
	must(l.StopContainer(l.t.Context(), &runtime.StopContainerRequest{ContainerId: id(p, "app"), Timeout: 10}))(l.t)
	p = l.become("life", "its container stopped by others", again(4))
	list := must(l.ListPodSandbox(l.t.Context(), &runtime.ListPodSandboxRequest{}))(l.t).GetItems()
	if len(list) != 1 {
		l.t.Fatalf("sandboxes: %v", list)
	}
	must(l.StopPodSandbox(l.t.Context(), &runtime.StopPodSandboxRequest{PodSandboxId: list[0].GetId()}))(l.t)
	// A container that the server ends before the sandbox may be started once more in that, so
	// counts differ.
	after := l.await("life", "ready in another sandbox", func(now *corev1.Pod) bool { return ready(now) && id(now, "app") != id(p, "app") })
	l.note("its sandbox stopped by others: " + l.running(after))
	if reasons := l.reasons(after); !strings.Contains(reasons, "SandboxChanged") || strings.Contains(reasons, "StoppedOutside") {
		l.t.Errorf("events over a socket: %s", reasons)
	}
}

// replaced edits what only a new pod can have, and removes that.
func (l *life) replaced() {
	l.t.Helper()
	old := must(l.pod("life"))(l.t)
	check(l.t, os.Truncate(l.seen("log"), 0))
	check(l.t, l.write("life.yaml", strings.Replace(lifeText, `value: "1"`, `value: "2"`, 1)))
	p := l.become("life", "replaced", func(p *corev1.Pod) bool { return ready(p) && p.UID != old.UID })
	l.note("of the old one run " + l.running(old))
	l.note("containers wrote: " + strings.ReplaceAll(strings.TrimSpace(l.saw("log")), "\n", ", "))
	check(l.t, os.Remove(filepath.Join(l.folder(), "life.yaml")))
	l.become("life", "removed", func(p *corev1.Pod) bool { return p.UID == "" })
	l.nothing(old, p)
}

// reasons are those of the events of a pod, each once.
func (l *life) reasons(p *corev1.Pod) string {
	l.t.Helper()
	var list []string
	for _, e := range must(l.ask())(l.t).Events {
		if p.UID == e.InvolvedObject.UID {
			list = append(list, e.Reason)
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), " ")
}

// nothing is left of pods.
func (l *life) nothing(pods ...*corev1.Pod) {
	l.t.Helper()
	if list := must(l.ListPodSandbox(l.t.Context(), &runtime.ListPodSandboxRequest{}))(l.t).GetItems(); len(list) != 0 {
		l.t.Errorf("sandboxes are left: %v", list)
	}
	if list := must(l.ListContainers(l.t.Context(), &runtime.ListContainersRequest{}))(l.t).GetContainers(); len(list) != 0 {
		l.t.Errorf("containers are left: %v", list)
	}
	for _, dir := range []string{l.root(), filepath.Join(l.state(), "volumes"), l.podLogs()} {
		check(l.t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return strings.Contains(path, string(p.UID)) }) {
				l.t.Errorf("%s is left", path)
			}
			return err
		}))
	}
}

// cutStart is a container of which starts were in progress when the agent was killed: a server fails a
// start whose client has exited, as containerd does, and ends the program, which may just have run.
var cutStart = regexp.MustCompile(`app=Running/([0-9]+) after StartError\(128 "[^"]*context canceled[^"]*"\)`)

// cancelledStart is what our server logs of each.
var cancelledStart = regexp.MustCompile(`method=StartContainer took=\S+ code=Canceled`)

// cut kills the agent while pods start: the program of each is started once, and once more at most
// for each start that was cut off: its container tells of it as a restart, or was removed before
// anybody saw that it had failed, which our server's log knows.
func (l *life) cut(log func() string) {
	l.t.Helper()
	for i := range rounds {
		check(l.t, l.write(name("cut", i)+".yaml", strings.ReplaceAll(manifestTexts["cut"], "{name: cut}", "{name: "+name("cut", i)+"}")))
		time.Sleep(time.Duration(i) * 80 * time.Millisecond)
		l.kill()
		l.start()
	}
	var pods []*corev1.Pod
	told, removed := 0, 0
	for i := range rounds {
		what := name("killed while it starts, pod ", i)
		p := l.await(name("cut", i), what, ready)
		l.note(what + ": " + cutStart.ReplaceAllString(line(p), "app=Running/0"))
		l.eventually("the program of "+what, func() (bool, error) { return l.saw(name("cut", i)) != "", nil }, func() string { return "" })
		wrote := strings.TrimSpace(l.saw(name("cut", i)))
		if of := cutStart.FindStringSubmatch(line(p)); of != nil {
			for range must(strconv.Atoi(of[1]))(l.t) {
				wrote = strings.TrimSuffix(wrote, "\nstarted")
				told++
			}
		} else if wrote == "started\nstarted" && log != nil {
			// The server was still ending the start when the next agent looked: it saw a container that was
			// only created, and removed it. Such a one is no restart.
			wrote = "started"
			removed++
		}
		l.note("it wrote: " + wrote)
		l.note(l.running(p))
		pods = append(pods, p)
		check(l.t, os.Remove(filepath.Join(l.folder(), name("cut", i)+".yaml")))
	}
	if removed > 0 {
		if n := len(cancelledStart.FindAllString(log(), -1)); told+removed > n {
			l.t.Errorf("%d programs ran again, and %d starts were cut off", told+removed, n)
		}
	}
	for i := range rounds {
		l.await(name("cut", i), "removed", func(p *corev1.Pod) bool { return p.UID == "" })
	}
	l.nothing(pods...)
}
