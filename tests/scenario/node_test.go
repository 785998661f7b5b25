package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/leftovers"
	"github.com/sunaba-project/sunaba/tests/node"
)

// machine is a node under test. When its scenario ends, its pods are removed, and then nothing may be
// there that was not there when it became ready.
type machine struct {
	*node.Node
	t      *testing.T
	before leftovers.Snapshot
	pods   *ledger
	own    *ledger // of these, those that a subtest has run; nil outside of subtests
}

// ledger holds the ids of all pods that were ever run: their cgroups must be gone at the end.
type ledger struct {
	mu  sync.Mutex
	ids []string
}

func (l *ledger) add(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, id)
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ids)
}

// in is the machine within a subtest. One that fails leaves its pods to nobody: the next finds the machine as it did.
func (m *machine) in(t *testing.T) *machine {
	inner := *m
	inner.t, inner.own = t, &ledger{}
	t.Cleanup(func() {
		if !t.Failed() || !m.Alive() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
		defer cancel()
		for _, id := range inner.own.all() {
			if _, err := m.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				t.Errorf("remove pod %q of a failed subtest: %v", id, err)
			}
		}
	})
	return &inner
}

// ran notes that there has been a pod.
func (m *machine) ran(id string) {
	m.pods.add(id)
	if m.own != nil {
		m.own.add(id)
	}
}

// handlers is the handler table of every scenario.
const handlers = `
[handlers.runc]
type = "oci"
binary = "runc"
default = true

[handlers.crun]
type = "oci"
binary = "crun"

[handlers.wasm]
type = "wasm"
`

// everyHandler are the names in it.
var everyHandler = []string{"runc", "crun", "wasm"}

// start starts a node with the handlers above and its own, empty folder of CNI configurations. more is
// added to the [network] table.
func start(t *testing.T, more ...string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp(world.folder, "node-")
	if err != nil {
		t.Fatal(err)
	}
	return startIn(t, dir, more...)
}

// startIn starts one whose folder is dir.
func startIn(t *testing.T, dir string, more ...string) *machine {
	t.Helper()
	config := fmt.Sprintf("cgroup_driver = %q\n[network]\nconf_dir = %q\n%s\n%s", node.Driver(), filepath.Join(dir, "cni"), strings.Join(more, "\n"), handlers)
	n, err := node.Start(t.Context(), node.Options{Bin: world.bin, Dir: dir, Config: config})
	if err != nil {
		if _, sweep := node.Sweep(dir); sweep != nil {
			t.Error(sweep)
		}
		t.Fatal(err)
	}
	m := &machine{Node: n, t: t, pods: &ledger{}}
	m.before = m.look()
	t.Cleanup(m.finish)
	return m
}

// look sees all that belongs to the node, but images and compiled modules, which stay on purpose.
func (m *machine) look() leftovers.Snapshot {
	m.t.Helper()
	scope := m.Scope()
	scope.Network = true
	for _, id := range m.pods.all() {
		scope.Cgroups = append(scope.Cgroups, strings.TrimPrefix(node.PodCgroup(id), "/"))
	}
	keep := []string{filepath.Join(m.Root, "images"), filepath.Join(m.Root, "wasm"), m.Logs, m.LogFile}
	scope.SkipFile = func(path string) bool { return slices.Contains(keep, path) }
	snapshot, err := leftovers.Take(scope)
	if err != nil {
		m.t.Fatal(err)
	}
	daemon := fmt.Sprintf("process %d ", m.DaemonPID())
	return slices.DeleteFunc(snapshot, func(line string) bool { return strings.HasPrefix(line, daemon) })
}

// leafCgroup is where the cgroup of a container is, in a pod with a given parent.
func leafCgroup(t *testing.T, given, id string) string {
	t.Helper()
	parent, _, err := node.Layout().Pod("", given)
	if err != nil {
		t.Fatal(err)
	}
	return node.Layout().Path(node.Layout().Leaf(parent, id))
}

// finish lets the node check itself, removes the pods, looks for leftovers and takes the node away.
func (m *machine) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if m.Alive() {
		m.expectSound("at the scenario's end")
		if err := m.RemovePods(ctx); err != nil {
			m.t.Errorf("remove the pods: %v", err)
		}
		m.clean()
	}
	if forced, err := m.Close(); err != nil {
		m.t.Errorf("close the node: %v", err)
	} else if len(forced) > 0 {
		m.t.Errorf("left after the daemon's end:\n%s", strings.Join(forced, "\n"))
	}
}

// clean fails the scenario when anything is there that was not there at the start. The kernel takes
// links and processes away in the background, so it looks for a while.
func (m *machine) clean() {
	m.t.Helper()
	var fresh []string
	if node.Within(node.Patience, func() bool { fresh = m.look().Since(m.before); return len(fresh) == 0 }) {
		return
	}
	m.t.Errorf("left over:\n%s\nthe daemon said:\n%s", strings.Join(fresh, "\n"), m.DaemonLog())
}

// pull pulls an image as crictl does, without a handler.
func (m *machine) pull(ref string) string {
	m.t.Helper()
	return m.pullFor(ref, "")
}

func (m *machine) pullFor(ref, handler string) string {
	m.t.Helper()
	answer, err := m.PullImage(m.t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref, RuntimeHandler: handler}})
	if err != nil {
		m.t.Fatalf("pull %s: %v", ref, err)
	}
	return answer.GetImageRef()
}
