package agent

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sunaba-project/sunaba/pods/agent/outside"
)

// A.3: the pod's event names who stops a container or the sandbox through the CRI; what is not the
// agent's is nobody's business.
func TestStoppedOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		stops := make(chan outside.Stop)
		o := w.options()
		o.Stops = func(ctx context.Context, f func(outside.Stop)) {
			for {
				select {
				case s := <-stops:
					f(s)
				case <-ctx.Done():
					return
				}
			}
		}
		w.startWith(o)
		w.runs("app#0")
		w.server.mu.Lock()
		var of outside.Stop
		for _, s := range w.server.sandboxes {
			of = outside.Stop{Labels: s.Labels, Annotations: s.Annotations, Known: true, PID: 4711, UID: 7, Name: "crictl"}
		}
		w.server.mu.Unlock()
		container, foreign := of, of
		container.Container, foreign.Annotations = "app", nil
		for _, s := range []outside.Stop{of, container, foreign, {Labels: map[string]string{}, Known: true}} {
			stops <- s
		}
		w.settle(time.Second)
		var got []string
		for _, e := range w.agent.Events() {
			if e.Reason == outside.Reason {
				got = append(got, e.Type+" "+e.InvolvedObject.FieldPath+" "+e.Message)
			}
		}
		const by = ` is being stopped through the CRI by process 4711 ("crictl"), user 7, not by the agent`
		want := []string{"Warning  Pod sandbox" + by, "Warning spec.containers{app} Container app" + by}
		if !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		w.stop()
	})
}
