package agent

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/logs"
)

// IM13, GC1: an image that an object names stays, also the one of the last good version while a new
// one is pulled, before its container was made and after it is gone.
func TestImagesOfPodsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, name := range []string{"old:1", "app:0", "gated:1", "far:1", "data:1", "setup:1"} {
			w.server.images[name] = true
		}
		pod := func(name, image, extra string) string {
			return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers: [{name: " + name +
				", image: '" + image + "'}]\n" + extra + "---\n"
		}
		others := pod("gated", "gated:1", "  schedulingGates: [{name: example.com/wait}]\n  initContainers: [{name: s, image: 'setup:1'}]\n"+
			"  volumes: [{name: v, image: {reference: 'data:1'}}]\n") +
			pod("far", "far:1", "  nodeName: elsewhere\n")
		w.wishes.set(t, pod("web", "app:1", "")+others)
		w.start()
		if _, err := w.agent.l.garbage.Reclaim(t.Context()); err != nil && !errdefs.IsUnavailable(err) {
			t.Fatal(err)
		}
		w.runs("web#0")
		w.server.mu.Lock()
		w.server.delay["PullImage"] = 10 * time.Minute
		w.server.mu.Unlock()
		w.wishes.set(t, pod("web", "app:2", "")+others)
		w.settle(time.Minute)
		w.server.mu.Lock() // the server does not say which image the container uses
		for _, c := range w.server.containers {
			c.Image = nil
		}
		w.server.mu.Unlock()
		stays := func(what, want string) {
			t.Helper()
			if _, err := w.agent.l.garbage.Reclaim(t.Context()); err != nil {
				t.Error(err)
			}
			w.server.mu.Lock()
			defer w.server.mu.Unlock()
			if got := strings.Join(slices.Sorted(maps.Keys(w.server.images)), " "); got != want {
				t.Errorf("%s: %s are left, want %s", what, got, want)
			}
		}
		stays("while the new image is pulled", "app:1 data:1 gated:1 setup:1")
		w.settle(10 * time.Minute)
		w.until("the new image runs", func() bool { return slices.Contains(w.server.running(), "web#1") })
		w.settle(time.Minute)
		stays("with the new image", "app:2 data:1 gated:1 setup:1")
		w.wishes.set(t, pod("web", "app:2", ""))
		w.settle(time.Minute)
		stays("without the other objects", "app:2")
		w.stop()
	})
}

// GC4: what is left of pods that are gone is removed within a minute, at any time; what is no pod's
// and the folders of pods that came later stay.
func TestLeftoversGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, "")
		w.start()
		w.settle(time.Hour)
		const uid = "81111111-2222-4333-8444-555555555555"
		left := map[string]bool{ // and whether it is to go
			filepath.Join(w.files.dir, uid): true, filepath.Join(w.dir, "logs", "default_gone_"+uid): true, filepath.Join(w.dir, "logs", "default_foreign_"+uid): false,
		}
		for dir, ours := range left {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if ours && strings.Contains(dir, "logs") {
				if err := logs.Make(dir, w.agent.l.mark); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.wishes.set(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: app, image: 'app:1'}]}")
		w.runs("app#0")
		w.settle(time.Minute)
		for dir, gone := range left {
			if _, err := os.Stat(dir); os.IsNotExist(err) != gone {
				t.Errorf("%s: %v", dir, err)
			}
		}
		log, err := filepath.Glob(filepath.Join(w.dir, "logs", "default_web_*"))
		if err != nil || len(log) != 1 {
			t.Errorf("log folders of the pod that runs: %q, %v", log, err)
		}
		w.stop()
	})
}

// SB1: a pod whose sandbox somebody stops runs again at once, also if a start in the old sandbox
// failed first.
func TestStoppedByCrictl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: app, image: 'app:1'}]}")
		w.start()
		w.runs("app#0")
		w.settle(time.Minute)
		w.server.mu.Lock()
		old := ""
		for id, s := range w.server.sandboxes { // its containers end before it is told that it has
			old = id
			s.State = runtime.PodSandboxState_SANDBOX_NOTREADY
		}
		for id, c := range w.server.containers {
			c.State, c.ExitCode, c.FinishedAt = runtime.ContainerState_CONTAINER_EXITED, 137, time.Now().UnixNano()
			close(c.ended)
			e := &runtime.ContainerEventResponse{ContainerId: id, PodSandboxStatus: w.server.status(old), ContainersStatuses: w.server.statuses(old)}
			e.PodSandboxStatus.State = runtime.PodSandboxState_SANDBOX_READY
			for l := range w.server.listeners {
				l <- e
			}
		}
		w.server.mu.Unlock()
		began := time.Now()
		w.until("a new container", func() bool { return len(w.server.running()) == 1 })
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the new container took %v\n%s", took, w.describe())
		}
		w.stop()
	})
}

// SO4: the image of a later container is pulled while an earlier one starts, those of later init
// containers only next to one that did not fail; they start in their order.
func TestPullsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.delay["StartContainer"], w.server.delay["PullImage"] = 5*time.Second, time.Second
		w.server.programs = func(name string, attempt uint32) program {
			if name == "setup" && attempt == 0 {
				return program{after: time.Second, code: 1}
			} else if name == "setup" || name == "second" || name == "third" {
				return program{after: 0}
			}
			return program{after: -1}
		}
		w.wishes.set(t, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  initContainers: [{name: setup, image: "setup:1"}, {name: second, image: "second:1"}, {name: third, image: "third:1"}]
  containers: [{name: a, image: "a:1"}, {name: b, image: "b:1"}, {name: c, image: "c:1"}]
`)
		w.start()
		w.settle(4 * time.Second) // setup starts
		pulled := func(image string) bool { return w.server.count("PullImage "+image) == 1 }
		if !pulled("second:1") || pulled("third:1") || pulled("a:1") {
			t.Errorf("while the first init container starts: %q", w.server.calls)
		}
		w.runs("a#0", "b#0", "c#0")
		w.server.mu.Lock()
		order := map[string]string{}
		for _, call := range w.server.calls {
			verb, what, _ := strings.Cut(call, " ")
			order[verb] += " " + what
		}
		w.server.mu.Unlock()
		if got, want := order["StartContainer"], " setup setup second third a b c"; got != want {
			t.Errorf("started%s, want%s", got, want)
		}
		if got, want := order["PullImage"], " setup:1 second:1 third:1 a:1 b:1 c:1"; got != want {
			t.Errorf("pulled%s, want%s", got, want)
		}
		if w.server.most > 1 {
			t.Errorf("%d pulls at once", w.server.most)
		}
		w.stop()
	})
}

// GC4: the volumes of a pod that comes while the node is swept stay.
func TestSweepBesideANewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs, w.files.pause = webPrograms, time.Minute
		w.start()
		w.settle(time.Second)
		w.wishes.set(t, web)
		w.until("ready", func() bool { return w.ready("web") })
		volumes := filepath.Join(w.files.dir, string(w.pod("web").UID))
		w.settle(time.Minute)
		if _, err := os.Stat(volumes); err != nil {
			t.Errorf("after the sweep: %v", err)
		}
		w.stop()
	})
}
