package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
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
		w.server.mu.Lock() // the container is gone, and its image is not in use
		for id := range w.server.containers {
			w.server.end(id, 1)
			delete(w.server.containers, id)
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
