package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

// orders are those about a pod that runs, and what runs when they were carried out.
var orders = []struct {
	name string
	give func(w *world) error
	then []string
}{
	{"restart", func(w *world) error { return w.agent.Restart(w.t.Context(), "default", "web", "") }, []string{"app#1"}},
	{"debug", func(w *world) error {
		return w.agent.Debug(w.t.Context(), "default", "web", corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "look", Image: "app:1", ImagePullPolicy: corev1.PullIfNotPresent},
		})
	}, []string{"app#0", "look#0"}},
}

// E.2: an order that was answered is carried out, also if the agent is killed right after that: it
// is on record then.
func TestOrderKilled(t *testing.T) {
	for _, order := range orders {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, before %v", order.name, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.wishes.set(t, plain)
					w.start()
					w.runs("app#0")
					w.settle(time.Second)
					w.killAt, w.before = w.written+1, before // the write of the order
					err := order.give(w)
					if before && !errors.Is(err, errdefs.ErrUnavailable) {
						t.Errorf("the order is not on record, and the answer is %v", err)
					}
					w.stop()
					w.killed = false
					w.start()
					if before {
						w.settle(2 * time.Second)
						w.runs("app#0")
						if err := order.give(w); err != nil {
							t.Error(err)
						}
					}
					w.runs(order.then...)
					w.stop()
				})
			})
		}
	}
}

// An order that a full disk does not take is answered with an error, and carried out when the disk
// takes it.
func TestOrderOnFullDisk(t *testing.T) {
	for _, order := range orders {
		t.Run(order.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.wishes.set(t, plain)
				var full atomic.Bool
				o := w.options()
				o.Write = w.writeUnless(full.Load)
				w.startWith(o)
				w.runs("app#0")
				w.settle(time.Second)
				full.Store(true)
				if err := order.give(w); !errors.Is(err, errdefs.ErrUnavailable) {
					t.Errorf("the order is not on record, and the answer is %v", err)
				}
				full.Store(false)
				w.runs(order.then...)
				w.stop()
			})
		})
	}
}

// TM11: the volumes of a pod that is being stopped are not brought up to date when its ConfigMap is
// removed together with it, or changed by the edit that replaces it. No failure of that is told.
func TestVolumesOfEndingPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(string, uint32) program { return program{after: -1, deaf: true} }
		const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  volumes: [{name: v, configMap: {name: settings}}]
  containers: [{name: app, image: "app:1", volumeMounts: [{name: v, mountPath: /v}]}]
`
		w.wishes.set(t, objects)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		w.wishes.set(t, strings.NewReplacer("info", "debug", "/v}", "/w}").Replace(objects))
		w.settle(time.Second)
		w.wishes.set(t, "")
		w.gone()
		if n := w.files.refreshed; n != 0 {
			t.Errorf("the volumes of a pod that is being stopped were refreshed %d times", n)
		}
		w.stop()
	})
}
