package resize

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// RE15: the order in which resizes that wait are judged.
func TestResizeOrder(t *testing.T) {
	at := time.Unix(1000, 0)
	resize := func(old, wanted string, since time.Time, change func(*corev1.Pod)) Waiting {
		sized := func(cpu string) *corev1.Pod {
			p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
			if change != nil {
				change(p)
			}
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Mi"),
			}
			if p.Spec.Containers[0].Resources.Limits != nil {
				p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
			}
			return p
		}
		return Waiting{Old: sized(old), New: sized(wanted), Since: since}
	}
	priority := func(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }
	guaranteed := func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{} }
	for _, tt := range []struct {
		name        string
		first, last Waiting
	}{
		{"no more before priority", resize("2", "1", time.Time{}, nil), resize("1", "2", at, priority(5))},
		{"the same is no more", resize("1", "1", time.Time{}, nil), resize("1", "2", at, priority(5))},
		{"priority before QoS", resize("1", "2", time.Time{}, priority(5)), resize("1", "2", at, guaranteed)},
		{"priority of two that take no more", resize("2", "1", time.Time{}, priority(5)), resize("2", "1", at, priority(4))},
		{"QoS before time", resize("1", "2", at.Add(1), guaranteed), resize("1", "2", at, nil)},
		{"time", resize("1", "2", at, nil), resize("1", "2", at.Add(1), nil)},
		{"one that was not judged is last", resize("1", "2", at, nil), resize("1", "2", time.Time{}, nil)},
	} {
		if a, b := tt.first.Before(tt.last), tt.last.Before(tt.first); a >= 0 || b <= 0 {
			t.Errorf("%s: %d and %d", tt.name, a, b)
		}
	}
	if n := resize("1", "2", at, nil).Before(resize("1", "3", at, nil)); n != 0 {
		t.Errorf("%d of two alike", n)
	}
}
