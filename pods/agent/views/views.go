// Package views holds what others see of the pods. What is given out is never changed.
package views

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

// Views are what others see of the pods. The zero value has none.
type Views struct {
	mu        sync.Mutex
	pods      map[types.UID]view
	version   uint64
	changed   chan struct{}
	listening bool
	summary   string
	starts    starts
	expected  map[types.UID]struct{} // on record, and not shown yet
	whole     chan struct{}          // nil until somebody asked
}

// view is one pod as it is shown.
type view struct {
	pod   *corev1.Pod
	next  string
	until time.Time
	// since is when a pod was shown first that has not started yet, zero for others.
	since time.Time
}

// Signal wakes those who watch.
func (v *Views) Signal() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wake()
}

func (v *Views) wake() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Watch is closed at the next change.
func (v *Views) Watch() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// Listen notes whether the CRI server's events are followed.
func (v *Views) Listen(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listening != on {
		v.listening = on
		v.wake()
	}
}

// Expect notes a pod that is on record and is not shown yet. It is called before Whole.
func (v *Views) Expect(uid types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.expected == nil {
		v.expected = map[types.UID]struct{}{}
	}
	v.expected[uid] = struct{}{}
}

// Whole is closed once all expected pods were shown or dropped: before, a list would lack pods that
// there are.
func (v *Views) Whole() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.whole == nil {
		v.whole = make(chan struct{})
		if len(v.expected) == 0 {
			close(v.whole)
		}
	}
	return v.whole
}

// came notes that an expected pod was shown or dropped. The caller holds v.mu.
func (v *Views) came(uid types.UID) {
	if _, expected := v.expected[uid]; !expected {
		return
	}
	delete(v.expected, uid)
	if len(v.expected) == 0 && v.whole != nil {
		close(v.whole)
	}
}

// Put shows a pod, and what is waited for with it, and says whether that changed anything.
func (v *Views) Put(pod *corev1.Pod, next string, until time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.came(pod.UID) // after it is in the list
	old, known := v.pods[pod.UID]
	if known && sameView(old.pod, pod) {
		v.pods[pod.UID] = view{old.pod, next, until, old.since}
		return false
	}
	v.version++
	pod.ResourceVersion = strconv.FormatUint(v.version, 10)
	if v.pods == nil {
		v.pods = map[types.UID]view{}
	}
	since := old.since
	if !known && pod.Status.Phase == corev1.PodPending && time.Since(pod.CreationTimestamp.Time) < newPod {
		since = time.Now()
	}
	if !since.IsZero() && started(pod) {
		v.starts.take(time.Since(since))
		since = time.Time{}
	}
	v.pods[pod.UID] = view{pod, next, until, since}
	v.wake()
	return true
}

func sameView(a, b *corev1.Pod) bool {
	return equality.Semantic.DeepEqual(a.Status, b.Status) && equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) && a.Generation == b.Generation
}

// Drop forgets a pod.
func (v *Views) Drop(uid types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.came(uid)
	if _, known := v.pods[uid]; known {
		delete(v.pods, uid)
		v.version++
		v.wake()
	}
}

// Summary is the number of pods in words, "6 pods, 5 ready", and whether that changed since the
// last call.
func (v *Views) Summary() (text string, changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	ready := 0
	for _, one := range v.pods {
		if cycle.Ready(one.pod) {
			ready++
		}
	}
	text = fmt.Sprintf("%d pods, %d ready", len(v.pods), ready)
	changed = text != v.summary
	v.summary = text
	return text, changed
}

// Pods are all pods, sorted by namespace and name.
func (v *Views) Pods() []*corev1.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := make([]*corev1.Pod, 0, len(v.pods))
	for _, one := range v.pods {
		list = append(list, one.pod)
	}
	slices.SortFunc(list, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return list
}

// Has says whether a pod is shown.
func (v *Views) Has(uid types.UID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, shown := v.pods[uid]
	return shown
}

// Next is what is waited for with a pod, and until when.
func (v *Views) Next(uid types.UID) (text string, until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods[uid].next, v.pods[uid].until
}

// Listening says what Listen noted last.
func (v *Views) Listening() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.listening
}
