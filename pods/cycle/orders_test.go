package cycle

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestStatusFields looks at the fields that a kubelet fills (PH11, PH12, ST7, ST8, ST9).
func TestStatusFields(t *testing.T) {
	pod := podOf(t, []string{"app=z", "app=b", "init=i"})
	pod.Generation = 7
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	enabled := corev1.RecursiveReadOnlyIfPossible
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &enabled}, {Name: "w", MountPath: "/w"}}
	w := newWorld(t, pod)
	w.set.RecursiveReadOnly = true
	w.settle()
	w.exit(w.newest("i"), 0)
	w.settle()
	w.advance(time.Minute)
	st := w.last.Status
	if st.ObservedGeneration != 7 || st.QOSClass != corev1.PodQOSBurstable || !st.StartTime.Time.Equal(w.start) {
		t.Fatalf("%+v", st)
	}
	if st.HostIP != "192.0.2.1" || st.PodIP != "10.0.0.1" || len(st.PodIPs) != 1 || len(st.HostIPs) != 1 {
		t.Fatalf("addresses: %+v", st)
	}
	z := st.ContainerStatuses[1] // ST9: by name
	if z.Name != "z" || st.ContainerStatuses[0].Name != "b" || z.ContainerID != "sunaba://"+w.newest("z").ID || z.ImageID != "i@sha256:1" {
		t.Fatalf("%+v", z)
	}
	if len(z.VolumeMounts) != 2 || *z.VolumeMounts[0].RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled || z.VolumeMounts[1].RecursiveReadOnly != nil {
		t.Fatalf("%+v", z.VolumeMounts)
	}
	if !z.AllocatedResources.Cpu().Equal(resource.MustParse("100m")) || !reflect.DeepEqual(*z.Resources, pod.Spec.Containers[0].Resources) {
		t.Fatalf("%+v", z)
	}
	var types []string
	for _, c := range st.Conditions {
		types = append(types, string(c.Type))
		if c.ObservedGeneration != 7 || !c.LastTransitionTime.Time.Equal(w.start) {
			t.Fatalf("%+v", c)
		}
	}
	if got := strings.Join(types, " "); got != "PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled" {
		t.Fatal(got)
	}
	w.exit(w.newest("z"), 1) // C.4: the time changes with the status only
	w.held[StartContainer] = true
	w.settle()
	if c := find(&w.last.Status, corev1.PodReady); c.Status != corev1.ConditionFalse || !c.LastTransitionTime.Time.Equal(w.now) {
		t.Fatalf("%+v", c)
	}
	if c := find(&w.last.Status, corev1.PodScheduled); !c.LastTransitionTime.Time.Equal(w.start) {
		t.Fatalf("%+v", c)
	}
}

// TestOrdersRefused is about orders to pods that are over.
func TestOrdersRefused(t *testing.T) {
	w := newWorld(t, podOf(t, []string{"policy=Never", "app=a"}))
	w.settle()
	if err := w.r.Restart([]string{"b"}, Reason{}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	w.exit(w.newest("a"), 0)
	w.settle()
	if err := w.r.Restart(nil, Reason{}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Fatal(err)
	}
	if err := w.r.AddEphemeral(corev1.EphemeralContainer{}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Fatal(err)
	}
	w.r.End(Final{Phase: corev1.PodFailed, Reason: "Evicted"}, 0, nil, w.now) // PH7
	w.settle()
	if w.last.Status.Phase != corev1.PodSucceeded {
		t.Fatal(w.last.Status.Phase)
	}
}

// TestPurge ends a pod that stays, with nothing left of it (EX7). A new start of the agent and the
// deletion change nothing about how it ended.
func TestPurge(t *testing.T) {
	w := newWorld(t, podOf(t, []string{"app=a", "init=i"}))
	w.settle()
	w.exit(w.newest("i"), 0)
	w.settle()
	w.r.Purge = true
	w.r.End(Final{corev1.PodFailed, "Evicted", "m"}, time.Second, nil, w.now)
	w.settle()
	for w.newest("a") != nil && w.newest("a").State == StateRunning {
		w.advance(time.Second)
	}
	check := func(when string) {
		t.Helper()
		st := w.last.Status
		if len(w.containers)+len(w.sandboxes) > 0 || !w.r.Live.TornDown || w.over || w.last.Waiting != "" || !w.last.Wake.IsZero() {
			t.Fatalf("%s: %d containers, %d sandboxes, torn down %v, over %v, waiting %q", when, len(w.containers), len(w.sandboxes), w.r.Live.TornDown, w.over, w.last.Waiting)
		}
		if end := st.ContainerStatuses[0].State.Terminated; st.Reason != "Evicted" || st.Phase != corev1.PodFailed || end == nil || end.Reason == unknownStatus {
			t.Fatalf("%s: %+v", when, st)
		}
	}
	w.settle()
	check("ended")
	w.reload()
	w.settle()
	check("after a new start")
	w.r.Delete(-1, w.now)
	w.settle()
	if !w.over {
		t.Fatal("the deletion never ends")
	}
}

// TestColumns has the cases of B.6 that no pod of this package comes to by itself.
func TestColumns(t *testing.T) {
	ended := func(code, signal int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Signal: signal, Reason: reason}}
	}
	for _, c := range []struct {
		state corev1.ContainerState
		init  bool
		want  string
	}{
		{ended(3, 0, ""), false, "ExitCode:3"},
		{ended(3, 9, ""), false, "Signal:9"},
		{ended(1, 0, "OOMKilled"), false, "OOMKilled"},
		{ended(3, 0, ""), true, "Init:ExitCode:3"},
		{ended(3, 9, ""), true, "Init:Signal:9"},
		{waiting("ErrImagePull", ""), true, "Init:ErrImagePull"},
		{waiting("PodInitializing", ""), true, "Init:0/1"},
	} {
		pod := podOf(t, []string{"init=i", "app=a"})
		s := corev1.ContainerStatus{Name: "x", State: c.state}
		if c.init {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{s}
		} else {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{s}
		}
		if _, got, _ := Columns(pod, time.Time{}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	pod := podOf(t, []string{"app=a", "app=b"}) // one completed, one runs
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Ready: true},
		{State: ended(0, 0, "Completed")}}
	if _, got, _ := Columns(pod, time.Time{}); got != "NotReady" {
		t.Error(got)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: corev1.PodScheduled, Reason: corev1.PodReasonSchedulingGated}}
	if ready, got, _ := Columns(pod, time.Time{}); got != "Running" || ready != "1/2" {
		t.Error(ready, got)
	}
}
