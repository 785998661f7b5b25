package containerd

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/client/foreign"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// manifests runs the pods of a folder by containerd's CRI, with the agent of this process.
type manifests struct {
	*bench
	place

	agent *agent.Agent
	stop  func()
	said  lines
}

// lines is what an agent logs.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newManifests(b *bench) *manifests {
	b.t.Helper()
	m := &manifests{bench: b, place: place{b.Dir}}
	check(b.t, m.make())
	return m
}

// start starts an agent, which goes on with what its predecessor has left.
func (m *manifests) start() {
	m.t.Helper()
	server, err := foreign.New(m.ctx(), m.Conn)
	check(m.t, err)
	check(m.t, server.Sweep(m.ctx()))
	options, err := m.options(server, &m.said)
	check(m.t, err)
	options.Settings.Runtime, options.Settings.CrashLoopMax = "containerd", time.Second
	m.agent, err = agent.New(options)
	check(m.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.agent.Run(ctx) }()
	m.stop = func() {
		m.t.Helper()
		cancel()
		check(m.t, <-ended)
		check(m.t, options.Volumes.(*volumes.Manager).Close())
		m.stop = func() {}
	}
}

// write puts a file into the folder, with the test's image and folders.
func (m *manifests) write(name, text string) {
	m.t.Helper()
	check(m.t, m.place.write(name, text))
}

// now is a pod as it is, an empty one if there is none.
func (m *manifests) now(name string) *corev1.Pod {
	p, found := m.agent.Pod("default", name)
	if !found {
		return &corev1.Pod{}
	}
	return p
}

// of is the status of a container of a pod.
func of(p *corev1.Pod, name string) corev1.ContainerStatus {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

func ready(p *corev1.Pod) bool { return condition(p, corev1.PodReady) == corev1.ConditionTrue }

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// become waits for a state of a pod.
func (m *manifests) become(name, what string, f func(p *corev1.Pod) bool) {
	m.t.Helper()
	begun := time.Now()
	m.eventually(name+": "+what, func() bool { return f(m.now(name)) || time.Since(begun) > patience/3 })
	if p := m.now(name); !f(p) {
		m.t.Errorf("%s is not %s: %s", name, what, m.describe(p))
	}
}

func (m *manifests) describe(p *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %v\n", p.Status.Phase, p.Status.Reason, p.Status.Conditions)
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		fmt.Fprintf(&b, "  %s restarts %d now %+v before %+v\n", c.Name, c.RestartCount, c.State, c.LastTerminationState)
	}
	for _, e := range m.agent.Events() {
		if e.InvolvedObject.UID == p.UID {
			fmt.Fprintf(&b, "  %s x%d: %s\n", e.Reason, e.Count, e.Message)
		}
	}
	return b.String()
}

// TestManifests runs pods of manifests by containerd 2.4 with its own shim and by ours: the agent
// drives any CRI server. It is started anew in the middle, and containerd is killed.
func TestManifests(t *testing.T) {
	b := newBenchWith(t, world.releases[1], Runtime{Name: "runc", Type: "io.containerd.runc.v2"}, Runtime{Name: "sunaba-wasm", Type: ours})
	m := newManifests(b)
	m.start()
	t.Cleanup(func() {
		m.stop()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", tail(m.said.String(), 80))
		}
	})
	for name, text := range manifestTexts {
		if _, named := manifestEnds[name]; !named {
			continue
		}
		m.write(name+".yaml", text)
	}
	for name, one := range manifestEnds {
		m.become(name, one.what, one.is)
	}
	m.hooked()
	m.edited()
	m.agentRestarts()
	m.containerdRestarts()
	m.interrupted()
	m.removed()
}

// hooked looks at the order of what a container with hooks did.
func (m *manifests) hooked() {
	m.t.Helper()
	check(m.t, os.Remove(filepath.Join(m.folder(), "hooks.yaml")))
	m.become("hooks", "gone", func(p *corev1.Pod) bool { return p.UID == "" })
	if got, want := m.saw("hooks"), "started\nstopping\nterm\n"; got != want {
		m.t.Errorf("hooks: %q, want %q", got, want)
	}
}

// edited edits a ConfigMap, an image and resources.
func (m *manifests) edited() {
	m.t.Helper()
	web := m.now("web")
	before := of(web, "server")
	m.write("web.yaml", strings.NewReplacer("hello", "changed", "cpu: 100m", "cpu: 200m", "# edit", "").Replace(manifestTexts["web"]))
	m.become("web", "resized", func(p *corev1.Pod) bool {
		c := of(p, "server")
		return c.Resources != nil && c.Resources.Limits.Cpu().String() == "200m"
	})
	m.eventually("the new page", func() bool {
		r, err := m.ExecSync(m.ctx(), &runtime.ExecSyncRequest{ContainerId: strings.TrimPrefix(before.ContainerID, "containerd://"), Cmd: []string{"cat", "/www/page"}})
		return err == nil && string(r.Stdout) == "changed"
	})
	m.tooLittle()
	if after := m.now("web"); after.UID != web.UID || of(after, "server").RestartCount != before.RestartCount {
		m.t.Errorf("an edit of a ConfigMap and of resources restarted: %s", m.describe(after))
	}
}

// tooLittle asks for less memory than the server says is in use, which is not applied; then for more.
func (m *manifests) tooLittle() {
	m.t.Helper()
	memory := func(amount string) string {
		return strings.NewReplacer("hello", "changed", "cpu: 100m", "cpu: 200m", "32Mi", amount, "# edit", "").Replace(manifestTexts["web"])
	}
	m.write("web.yaml", memory("64Ki"))
	m.become("web", "refused a limit below its use", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodResizeInProgress && strings.Contains(c.Message, `attempting to set container "server" memory limit (65536) below current usage (`) &&
				strings.Contains(c.Message, "attempting to set pod memory limit (65536) below current usage (")
		})
	})
	m.write("web.yaml", memory("48Mi"))
	m.become("web", "resized to more memory", func(p *corev1.Pod) bool {
		c := of(p, "server")
		return c.Resources != nil && c.Resources.Limits.Memory().String() == "48Mi"
	})
	cgroups := must(cgroup.New("cgroupfs"))(m.t)
	parent, _, err := cgroups.Pod(strings.ReplaceAll(string(m.now("web").UID), "-", ""), "")
	check(m.t, err)
	name := "memory.limit_in_bytes"
	if cgroups.Unified != "" {
		name = "memory.max"
	}
	if limit := must(cgroups.Group(parent).Number("memory", name))(m.t); limit != 48<<20 {
		m.t.Errorf("the cgroup of the pod is limited to %d bytes", limit)
	}
}

// agentRestarts has one container end and a file go while there is no agent.
func (m *manifests) agentRestarts() {
	m.t.Helper()
	web, crash := m.now("web"), m.now("kept")
	m.stop()
	check(m.t, os.Remove(filepath.Join(m.folder(), "live.yaml")))
	check(m.t, os.WriteFile(m.seen("kept.end"), nil, 0o600))
	time.Sleep(time.Second)
	m.start()
	m.become("kept", "run again", func(p *corev1.Pod) bool {
		c := of(p, "app")
		return c.RestartCount == of(crash, "app").RestartCount+1 && c.State.Running != nil && c.LastTerminationState.Terminated.ExitCode == 5
	})
	m.become("live", "gone", func(p *corev1.Pod) bool { return p.UID == "" })
	m.become("web", "as it was", func(p *corev1.Pod) bool {
		return p.UID == web.UID && of(p, "server").ContainerID == of(web, "server").ContainerID && of(p, "server").RestartCount == 0 && ready(p)
	})
	if got := m.now("kept").UID; got != crash.UID {
		m.t.Errorf("kept has UID %s, had %s", got, crash.UID)
	}
}

// containerdRestarts kills containerd: nothing is started anew, and what ends meanwhile counts.
func (m *manifests) containerdRestarts() {
	m.t.Helper()
	web, kept := m.now("web"), m.now("kept")
	check(m.t, m.Signal(syscall.SIGKILL))
	check(m.t, os.WriteFile(m.seen("kept.end"), nil, 0o600))
	time.Sleep(time.Second)
	check(m.t, m.Run(m.t.Context()))
	m.become("kept", "run again", func(p *corev1.Pod) bool {
		c := of(p, "app")
		return c.RestartCount == of(kept, "app").RestartCount+1 && c.State.Running != nil
	})
	m.become("web", "as it was", func(p *corev1.Pod) bool {
		return of(p, "server").ContainerID == of(web, "server").ContainerID && of(p, "server").RestartCount == 0 && ready(p)
	})
}

// removed removes all files: nothing is left in the server, and no file or cgroup of a pod.
func (m *manifests) removed() {
	m.t.Helper()
	var uids []string
	for _, p := range m.agent.Pods() {
		uids = append(uids, string(p.UID))
	}
	for _, path := range glob(m.t, filepath.Join(m.folder(), "*.yaml")) {
		check(m.t, os.Remove(path))
	}
	m.eventually("all pods gone", func() bool { return len(m.agent.Pods()) == 0 })
	for _, p := range m.agent.Pods() {
		m.t.Errorf("%s is left: %s", p.Name, m.describe(p))
	}
	if list := must(m.ListPodSandbox(m.ctx(), &runtime.ListPodSandboxRequest{}))(m.t).Items; len(list) != 0 {
		m.t.Errorf("sandboxes are left: %v", list)
	}
	if list := must(m.ListContainers(m.ctx(), &runtime.ListContainersRequest{}))(m.t).Containers; len(list) != 0 {
		m.t.Errorf("containers are left: %v", list)
	}
	for _, root := range must(cgroup.New("cgroupfs"))(m.t).Roots() {
		for _, uid := range uids {
			if left := glob(m.t, filepath.Join(root, "sunaba", "*"+strings.ReplaceAll(uid, "-", "")+"*")); len(left) != 0 {
				m.t.Errorf("cgroups are left: %q", left)
			}
		}
	}
	for _, dir := range []string{m.root(), filepath.Join(m.state(), "volumes"), m.podLogs()} {
		check(m.t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if slices.ContainsFunc(uids, func(uid string) bool { return strings.Contains(path, uid) }) {
				m.t.Errorf("%s is left", path)
			}
			return err
		}))
	}
}

// interrupted ends the agent, and kills containerd, while they start pods: in the end each pod has
// one sandbox that is ready, and one container.
func (m *manifests) interrupted() {
	m.t.Helper()
	for i := range rounds {
		m.write(name("cut", i)+".yaml", strings.ReplaceAll(manifestTexts["cut"], "{name: cut}", "{name: "+name("cut", i)+"}"))
		time.Sleep(time.Duration(i) * 80 * time.Millisecond)
		if i%4 == 3 {
			check(m.t, m.Signal(syscall.SIGKILL))
			check(m.t, m.Run(m.t.Context()))
			continue
		}
		m.stop()
		m.start()
	}
	for i := range rounds {
		m.become(name("cut", i), "Ready", ready)
		uid := string(m.now(name("cut", i)).UID)
		labels := map[string]string{"io.kubernetes.pod.uid": uid}
		m.eventually("one sandbox of "+uid, func() bool {
			list := must(m.ListPodSandbox(m.ctx(), &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
				LabelSelector: labels, State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY},
			}}))(m.t).Items
			return len(list) == 1
		})
		list := must(m.ListContainers(m.ctx(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{
			LabelSelector: labels, State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING},
		}}))(m.t).Containers
		if len(list) != 1 {
			m.t.Errorf("containers of %s that run: %v", uid, list)
		}
	}
}

// rounds is how often something is ended while a pod starts.
const rounds = 8
