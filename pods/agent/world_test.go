package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// What the daemon joins fits.
var (
	_ Volumes = (*volumes.Manager)(nil)
	_ Desired = (*desired.Set)(nil)
)

// world is a node of a test: what outlives an agent, and the agent that runs now.
type world struct {
	t      *testing.T
	dir    string
	server *server
	wishes *wishes
	files  *files
	boot   string
	labels map[string]string
	// tellsNetwork says that the network is watched.
	tellsNetwork bool
	// written counts the writes of records; killAt is the write at which the agent is killed,
	// before it if before is set, else after it.
	written, killAt int
	before          bool
	killed          bool             // until the test started another one
	synced          int              // writes that are durable
	counts          map[string]int32 // the highest restart counts that were seen
	mu              sync.Mutex

	agent  *Agent
	cancel context.CancelFunc
	ended  chan error
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), server: newServer(t), wishes: &wishes{}, boot: "boot-1", counts: map[string]int32{}, labels: map[string]string{"kubernetes.io/os": "linux"}}
	w.files = &files{dir: filepath.Join(w.dir, "volumes"), held: map[string]int{}}
	w.server.asked = w.asked
	for _, dir := range []string{w.files.dir, filepath.Join(w.dir, "state")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// asked checks what must be on record before a sandbox is made or a container is started (E.2): all
// but the first attempt, for which the pod itself must be.
func (w *world) asked(uid, name string, attempt uint32) {
	data, err := os.ReadFile(filepath.Join(w.dir, "pods", uid, "pod.json"))
	if err != nil {
		w.t.Errorf("no record: %v", err)
		return
	}
	var r records.Record
	if err := json.Unmarshal(records.Last(data), &r); err != nil {
		w.t.Error(err)
	}
	if attempt == 0 {
		return
	}
	if c := r.Containers[name]; name == "" && (r.Sandboxes == 0 || r.Sandbox != attempt) || name != "" && (c == nil || !c.Asked || c.Attempt != attempt) {
		w.t.Errorf("attempt %d of %q is not on record", attempt, name)
	}
}

func (w *world) options() Options {
	return Options{
		CRI: w.server, Desired: w.wishes, Volumes: w.files, Root: filepath.Join(w.dir, "pods"),
		EventsFile: filepath.Join(w.dir, "state", "events"), Logs: filepath.Join(w.dir, "logs"),
		Node: translate.Node{
			Name: "till-4", IPs: []string{"192.0.2.4"}, Memory: 1 << 30, MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("10"),
			},
		},
		Labels: w.labels, Classes: func() []nodev1.RuntimeClass { return nil }, Handlers: func() []string { return []string{"runc", "wasm"} },
		Settings: cycle.Settings{CrashLoopMax: time.Second, HostIPs: []string{"192.0.2.4"}, Runtime: "sunaba", NetworkWatched: w.tellsNetwork}, BootID: w.boot,
		ParallelPulls: 1, LogLimits: logs.Limits{Size: 100, Files: 3}, UserAgent: "sunaba-test",
		SubUIDs: filepath.Join(w.dir, "subuid"), SubGIDs: filepath.Join(w.dir, "subgid"),
		Logger: slog.New(slog.DiscardHandler), Write: w.write,
	}
}

// start starts an agent on the node.
func (w *world) start() {
	w.t.Helper()
	w.startWith(w.options())
}

func (w *world) startWith(o Options) {
	w.t.Helper()
	a, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	w.mu.Lock()
	w.agent, w.cancel, w.ended = a, cancel, ended
	w.mu.Unlock()
	go func() { ended <- a.Run(ctx) }()
}

// stop ends the agent in order, or waits for the end of one that was killed.
func (w *world) stop() {
	w.t.Helper()
	w.cancel()
	if err := <-w.ended; err != nil {
		w.t.Error(err)
	}
}

// write is how records are written: it kills the agent at the write that the test says. What a
// killed agent writes afterwards does not arrive.
func (w *world) write(path string, data []byte, mode records.Mode) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written++
	if mode.Sync {
		w.synced++
	}
	if w.killed {
		return context.Canceled
	}
	if w.written == w.killAt {
		w.killed = true
		w.cancel()
		if w.before {
			return context.Canceled
		}
	}
	if mode.Append {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return errors.Join(err, f.Close())
	}
	return durable.Replace(path, data, 0o600)
}

// settle lets everything happen that happens now, and then some time pass.
func (w *world) settle(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// until waits for a state, for a minute of the node's time at most.
func (w *world) until(what string, f func() bool) {
	w.t.Helper()
	for range 6000 {
		synctest.Wait()
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("never came to: %s\nrunning %v\n%s", what, w.server.running(), w.describe())
}

// describe is what is known of all pods, for failures of tests.
func (w *world) describe() string {
	var b strings.Builder
	for _, p := range w.agent.Pods() {
		next, _ := w.agent.Next(p.UID)
		fmt.Fprintf(&b, "%s %s %s %q next %q\n", p.Name, p.UID, p.Status.Phase, p.Status.Reason, next)
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			fmt.Fprintf(&b, "  %s %d %+v\n", c.Name, c.RestartCount, c.State)
		}
	}
	for _, e := range w.agent.Events() {
		fmt.Fprintf(&b, "  %s %s x%d: %s\n", e.InvolvedObject.Name, e.Reason, e.Count, e.Message)
	}
	return b.String()
}

// runs waits until exactly these containers run: "app#0".
func (w *world) runs(names ...string) {
	w.t.Helper()
	slices.Sort(names)
	w.until(fmt.Sprintf("running %v", names), func() bool { return slices.Equal(w.server.running(), names) })
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	p, found := w.agent.Pod("default", name)
	if !found {
		w.t.Fatalf("no pod %s\n%s", name, w.describe())
	}
	return p
}

// reasons are the reasons and messages of the events about a pod, in their order.
func (w *world) reasons(name string) []string {
	var list []string
	for _, e := range w.agent.Events() {
		if e.InvolvedObject.Name == name {
			list = append(list, e.Reason+": "+e.Message)
		}
	}
	return list
}

func (w *world) happened(name, event string) bool { return slices.Contains(w.reasons(name), event) }

// ready says whether a pod is ready.
func (w *world) ready(name string) bool {
	p, found := w.agent.Pod("default", name)
	return found && cycle.Ready(p)
}

// writeUnless is write on a disk that takes nothing while it is full.
func (w *world) writeUnless(full func() bool) func(path string, data []byte, mode records.Mode) error {
	return func(path string, data []byte, mode records.Mode) error {
		if full() {
			return unix.ENOSPC
		}
		return w.write(path, data, mode)
	}
}

// gone waits until nothing is left of any pod, neither in the server nor on the disk.
func (w *world) gone() {
	w.t.Helper()
	w.until("nothing left", func() bool { return len(w.agent.Pods()) == 0 && w.server.empty() })
	for _, dir := range []string{"pods", "volumes", "logs"} {
		entries, err := os.ReadDir(filepath.Join(w.dir, dir))
		if err != nil && !os.IsNotExist(err) {
			w.t.Error(err)
		}
		for _, e := range entries {
			if !slices.Contains([]string{"agent", "boot", "evictions"}, e.Name()) {
				w.t.Errorf("%s/%s is left", dir, e.Name())
			}
		}
	}
	if len(w.files.held) != 0 {
		w.t.Errorf("mounts are held: %v", w.files.held)
	}
}
