package views

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The node's health is part of what is watched: that events are followed, or are not any more,
// wakes those who watch, once.
func TestListenWakes(t *testing.T) {
	var v Views
	for n, on := range []bool{true, true, false, false} {
		changed := v.Watch()
		v.Listen(on)
		woken := false
		select {
		case <-changed:
			woken = true
		default:
		}
		if first := n%2 == 0; woken != first || v.Listening() != on {
			t.Errorf("call %d with %v: woken %v, listening %v", n, on, woken, v.Listening())
		}
	}
}

// B.9: how long a pod took from its first sight to its first container is counted once, in the
// buckets from its time on; pods that were there before are not.
func TestStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Views
		put := func(uid string, phase corev1.PodPhase, created time.Time) {
			p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
			p.UID, p.CreationTimestamp = types.UID(uid), metav1.NewTime(created)
			v.Put(p, "", time.Time{})
		}
		begun := time.Now()
		put("a", corev1.PodPending, begun)
		put("old", corev1.PodPending, begun.Add(-time.Hour))
		put("runs", corev1.PodRunning, begun)
		put("refused", corev1.PodPending, begun)
		time.Sleep(300 * time.Millisecond)
		for range 2 {
			put("a", corev1.PodRunning, begun)
			put("old", corev1.PodRunning, begun)
			put("refused", corev1.PodFailed, begun)
			put("a", corev1.PodPending, begun)
		}
		put("a", corev1.PodRunning, begun)
		var b strings.Builder
		if err := v.WriteStarts(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"# TYPE kubelet_pod_start_duration_seconds histogram\n", `_bucket{le="0.25"} 0` + "\n", `_bucket{le="0.5"} 1` + "\n", `_bucket{le="3600"} 1` + "\n",
			`_bucket{le="+Inf"} 1` + "\n", "_sum 0.3\n", "_count 1\n",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	})
}
