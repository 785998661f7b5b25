package agent

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// The agent of a `sunaba run` has a mark of its own kind, and the UID that was drawn for its pod.
func TestRunMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const uid = "11111111-2222-4333-8444-555555555555"
		w := newWorld(t)
		o := w.options()
		o.RunMark = "/run/runs/" + uid
		w.server.foreign("other", "21111111-2222-4333-8444-555555555555", o.RunMark) // with the annotation of agents
		w.wishes.set(t, one)
		w.wishes.entries[0].Pod().UID = uid
		w.startWith(o)
		w.until("the pod", func() bool { return w.server.count("RunPodSandbox web") == 1 && w.ready("web") })
		found := false
		w.server.mu.Lock()
		for _, s := range w.server.sandboxes {
			if s.GetLabels()[translate.PodUIDLabel] != uid {
				continue
			}
			found = true
			if a := s.GetAnnotations(); a[translate.RunAnnotation] != o.RunMark || a[translate.MarkAnnotation] != "" {
				t.Errorf("annotations %v", a)
			}
		}
		w.server.mu.Unlock()
		if !found {
			t.Error("no sandbox has the pod's UID")
		}
		w.wishes.set(t, "")
		if w.agent.l.garbage != nil || w.agent.l.o.Eviction.Reclaim != nil {
			t.Error("a run removes images of the node")
		}
		w.until("the pod gone", func() bool { return len(w.agent.Pods()) == 0 })
		if w.server.sandboxes["sandbox-of-other"] == nil {
			t.Error("the sandbox of an agent with the same value was removed")
		}
		w.stop()
	})
}

// AD6: a pod that waits for room can be deleted at any time, also while its record is being
// written.
func TestDeletedWhileWaiting(t *testing.T) {
	for _, later := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond} {
		t.Run(later.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				o := w.options()
				o.Write = func(path string, data []byte, mode records.Mode) error {
					time.Sleep(time.Second)
					return w.write(path, data, mode)
				}
				w.wishes.set(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\nspec: {containers: [{name: app, image: 'app:1', resources: {requests: {cpu: 100}}}]}\n")
				w.startWith(o)
				w.until("the pod", func() bool { return len(w.agent.Events()) > 0 })
				time.Sleep(later)
				w.wishes.set(t, "")
				w.until("its record gone", func() bool {
					left, err := filepath.Glob(filepath.Join(w.dir, "pods", "*-*"))
					return err == nil && len(left) == 0
				})
				w.gone()
				w.stop()
			})
		})
	}
}
