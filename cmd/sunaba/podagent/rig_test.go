package podagent

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/node"
	"github.com/sunaba-project/sunaba/pods/agent/shutdown"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/pressure"
	"github.com/sunaba-project/sunaba/pods/volumes"
)

// idle is a CRI server on which nothing runs. Calls that start something are not there.
type idle struct{ agent.CRI }

func (idle) Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error {
	f(nil)
	<-ctx.Done()
	return ctx.Err()
}

func (idle) ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return &runtime.ListPodSandboxResponse{}, nil
}

func (idle) ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	return &runtime.ListContainersResponse{}, nil
}

func (idle) ListImages(context.Context, *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	return &runtime.ListImagesResponse{}, nil
}

func (idle) ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return &runtime.ImageFsInfoResponse{}, nil
}

func (idle) Status(context.Context, *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	return &runtime.StatusResponse{Status: &runtime.RuntimeStatus{Conditions: []*runtime.RuntimeCondition{
		{Type: runtime.RuntimeReady, Status: true}, {Type: runtime.NetworkReady, Status: true},
	}}}, nil
}

// dial measures as many bytes of memory as a test says.
type dial struct {
	available atomic.Int64
	alarm     chan struct{}
}

func (d *dial) Read() (pressure.Readings, error) {
	return pressure.Readings{pressure.Memory: {Available: d.available.Load(), Capacity: 1 << 30}}, nil
}
func (*dial) Settle() error { return nil }
func (*dial) Apart() bool   { return false }
func (d *dial) Alarm(ctx context.Context, f func()) error {
	for {
		select {
		case <-d.alarm:
			f()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rig is a node whose objects and commands are real, and on whose CRI server nothing runs.
type rig struct {
	t      *testing.T
	dir    string
	ignore []string
	dial   *dial
	set    *desired.Set
	agent  *agent.Agent
	client *api.Client
	stop   func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), dial: &dial{alarm: make(chan struct{})}}
	r.dial.available.Store(1 << 29)
	for _, dir := range []string{"manifests", "state"} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// start starts the server. The test or its end stops it.
func (r *rig) start() {
	r.t.Helper()
	root, logger := filepath.Join(r.dir, "pods"), slog.New(slog.DiscardHandler)
	set, err := desired.Open(desired.Options{Folders: []string{filepath.Join(r.dir, "manifests")}, Store: root, IgnoreKinds: r.ignore, Logger: logger})
	r.must(err)
	vols, err := volumes.New(volumes.Options{
		Dir: root, Memory: filepath.Join(r.dir, "state", "volumes"), Claims: filepath.Join(root, "claims"), Objects: set, Logger: logger,
	})
	r.must(err)
	facts, err := node.Read(node.Options{Name: "till-4", Root: r.dir, Pods: 10, Reserved: corev1.ResourceList{}})
	r.must(err)
	threshold, err := pressure.ParseThreshold("100Mi")
	r.must(err)
	facts.Node.Allocatable[corev1.ResourceMemory] = resource.MustParse("1Gi")
	a, err := agent.New(agent.Options{
		CRI: idle{}, Desired: set, Volumes: vols, Root: root, EventsFile: filepath.Join(r.dir, "state", "events"), Logs: filepath.Join(r.dir, "logs"),
		Node: facts.Node, Labels: facts.Labels, Classes: func() []nodev1.RuntimeClass { return nil }, Handlers: func() []string { return []string{"runc"} },
		BootID: "boot-1", ParallelPulls: 1, LogLimits: logs.Limits{Size: 1 << 20, Files: 2},
		Eviction: agent.Eviction{Gauges: r.dial, Thresholds: pressure.Thresholds{pressure.Memory: threshold}},
		Shutdown: shutdown.Graces{Total: 2 * time.Second, Critical: time.Second},
		SubUIDs:  filepath.Join(r.dir, "subuid"), SubGIDs: filepath.Join(r.dir, "subgid"), Logger: logger,
	})
	r.must(err)
	view := &nodeView{facts: facts, uid: "node", agent: a, cri: idle{}, fixed: node.Labels("till-4")}
	view.relabel(nil)
	service := &service{
		Agent: a, node: view, set: set, volumes: vols, handlers: func() []string { return []string{"runc", "wasm"} },
		classes: func() []nodev1.RuntimeClass {
			return []nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "light"}, Handler: "wasm"}, {ObjectMeta: metav1.ObjectMeta{Name: "wasm"}, Handler: "wasm"}}
		},
	}
	server, err := api.Listen(filepath.Join(r.dir, "state", api.SocketName), api.Options{Agent: service, Shutdown: a, Logger: logger})
	r.must(err)
	r.set, r.agent = set, a
	r.client, err = api.Connect(r.t.Context(), filepath.Join(r.dir, "state", api.SocketName))
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		r.must(<-ended)
		r.must(r.client.Close())
		r.must(server.Close())
		r.must(vols.Close())
	}
	r.t.Cleanup(r.stop)
	<-set.Listed()
	r.until("the conditions of the node", func() bool { return len(a.Conditions()) == 3 && a.Health() == nil })
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// file writes a manifest, or removes it without a text.
func (r *rig) file(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, "manifests", name)
	if text == "" {
		r.must(os.Remove(path))
		return
	}
	r.must(os.WriteFile(path, []byte(text), 0o600))
}

func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: is not so", what)
		}
	}
}

func kind(t *testing.T, name string) api.Resource {
	t.Helper()
	r, ok := api.FindResource(name)
	if !ok {
		t.Fatalf("no kind %q", name)
	}
	return r
}

// list are the objects of a kind.
func list[T any](r *rig, name string) []T {
	r.t.Helper()
	all, err := api.Objects[T](r.t.Context(), r.client, kind(r.t, name), api.Query{})
	r.must(err)
	return all
}

// happened are the events about manifests: "TYPE REASON FILE: MESSAGE", with "again" if counted.
func (r *rig) happened() []string {
	r.t.Helper()
	var lines []string
	for _, e := range list[corev1.Event](r, "events") {
		if e.InvolvedObject.Kind == api.KindManifest {
			count := ""
			if e.Count != 1 {
				count = " again"
			}
			lines = append(lines, e.Type+" "+e.Reason+" "+e.InvolvedObject.Name+": "+e.Message+count)
		}
	}
	return lines
}

// watch tells of the changes of a kind after those that are there, as "TYPE NAME" and for the node
// and manifests the state.
func (r *rig) watch(name string) <-chan string {
	r.t.Helper()
	told, listed := make(chan string, 64), make(chan struct{})
	go func() {
		err := r.client.Watch(r.t.Context(), kind(r.t, name), api.Query{}, func(c api.Change) error {
			if c.Type == api.Listed {
				close(listed)
				return nil
			}
			select {
			case <-listed:
			default:
				return nil
			}
			var o struct {
				metav1.ObjectMeta `json:"metadata"`
				File              string
				Status            json.RawMessage
			}
			if err := json.Unmarshal(c.Object, &o); err != nil {
				return err
			}
			line := c.Type + " " + o.Name
			switch name {
			case "manifests":
				line = c.Type + " " + filepath.Base(o.File) + " " + strings.Trim(string(o.Status), `"`)
			case "nodes":
				var s corev1.NodeStatus
				if err := json.Unmarshal(o.Status, &s); err != nil {
					return err
				}
				for _, condition := range s.Conditions {
					if condition.Type == corev1.NodeReady || condition.Type == corev1.NodeMemoryPressure {
						line += " " + string(condition.Type) + "=" + string(condition.Status)
					}
				}
			}
			told <- line
			return nil
		})
		select {
		case <-listed:
		default:
			r.t.Errorf("watch %s: %v", name, err)
			close(listed)
		}
	}()
	<-listed
	return told
}

// next waits for what a watch tells.
func (r *rig) next(told <-chan string, want string) {
	r.t.Helper()
	select {
	case got := <-told:
		if got != want {
			r.t.Errorf("told %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		r.t.Fatalf("nothing is told, want %q", want)
	}
}
