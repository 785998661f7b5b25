package scenario

import (
	"context"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/stage"
)

// machine is a node under test.
type machine struct {
	stage.Machine
	t     *testing.T
	first int // of the pods that ran, those before the subtest
}

// in is the machine within a subtest. The pods of one that fails are removed: the next finds the
// machine as it did.
func (m *machine) in(t *testing.T) *machine {
	inner := *m
	inner.t, inner.T, inner.first = t, t, len(m.Pods())
	t.Cleanup(func() {
		if !t.Failed() || !m.Alive() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
		defer cancel()
		for _, id := range inner.Pods()[inner.first:] {
			if _, err := m.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				t.Errorf("remove pod %q of a failed subtest: %v", id, err)
			}
		}
	})
	return &inner
}

// everyHandler are the names in stage.Handlers.
var everyHandler = []string{"runc", "crun", "wasm"}

// start starts a node with stage.Handlers and its own, empty folder of CNI configurations. more
// is added to the [network] table.
func start(t *testing.T, more ...string) *machine {
	t.Helper()
	return startIn(t, world.NodeDir(t), more...)
}

// startIn starts one whose folder is dir.
func startIn(t *testing.T, dir string, more ...string) *machine {
	t.Helper()
	return startWith(t, dir, stage.Handlers, more...)
}

// startOwn starts one whose pods have shims of their own.
func startOwn(t *testing.T) *machine {
	t.Helper()
	return startWith(t, world.NodeDir(t), node.OwnShims(stage.Handlers))
}

// eachScope runs a test on a node whose pods share their handler's shim, which another pod keeps
// running, and on one whose pods have shims of their own.
func eachScope(t *testing.T, test func(m *machine, own bool)) {
	t.Helper()
	t.Run("shared shim", func(t *testing.T) {
		m := start(t)
		m.pull(world.Guest)
		m.pull(world.Busybox)
		p := m.run("wasm")
		p.begin(containerConfig(world.Guest, "idle")).says("idle")
		p.begin(sh("echo idle; sleep 1000")).says("idle") // the OCI runtime's folder stays for as long as the shim
		if err := m.Reset(); err != nil {
			t.Fatal(err)
		}
		test(m, false)
	})
	t.Run("own shims", func(t *testing.T) {
		m := startOwn(t)
		m.pull(world.Guest)
		test(m, true)
	})
}

func startWith(t *testing.T, dir, tables string, more ...string) *machine {
	t.Helper()
	return &machine{Machine: world.Start(t, dir, tables, more...), t: t}
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

// clean fails the scenario when anything is there that was not there at the start.
func (m *machine) clean() {
	m.t.Helper()
	if left, err := m.Left(); err != nil || len(left) > 0 {
		m.t.Errorf("%v: left over:\n%s\nthe daemon said:\n%s", err, strings.Join(left, "\n"), m.DaemonLog())
	}
}

// pull pulls an image as crictl does, without a handler.
func (m *machine) pull(ref string) string {
	m.t.Helper()
	return m.Pull(ref, "")
}
