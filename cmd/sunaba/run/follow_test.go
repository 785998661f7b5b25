package run

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The exit code is the first one that is not 0, of the containers that count for --exit-code.
func TestExitCode(t *testing.T) {
	const file = podHead + `spec:
  initContainers: [{name: init, image: i}, {name: side, image: i, restartPolicy: Always}]
  containers: [{name: a, image: i}, {name: b, image: i}]
`
	end := func(code int32, at int64) *runtime.ContainerStatus {
		return &runtime.ContainerStatus{ExitCode: code, FinishedAt: at}
	}
	type ends map[string]*runtime.ContainerStatus
	failed := corev1.PodStatus{Phase: corev1.PodFailed}
	late := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", Message: "too long"}
	for _, tt := range []struct {
		name           string
		ends           ends
		status         corev1.PodStatus
		why            error
		any, all, none int
		text           string
	}{
		{name: "success", ends: ends{"init": end(0, 1), "a": end(0, 2), "b": end(0, 3), "side": end(9, 4)}, status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
		{name: "the first", ends: ends{"a": end(5, 3), "b": end(4, 2)}, status: failed, any: 4, all: 4},
		{name: "one", ends: ends{"a": end(0, 2), "b": end(4, 3)}, status: failed, any: 4},
		{name: "init", ends: ends{"init": end(7, 1)}, status: failed, any: 7, all: 7},
		{name: "deadline", ends: ends{"a": end(0, 2)}, status: late, any: 1, text: "DeadlineExceeded: too long"},
		{name: "killed at the deadline", ends: ends{"a": end(137, 2)}, status: late, any: 137, all: 137, text: "DeadlineExceeded: too long"},
		{name: "nothing ran", status: late, any: 1, all: 1, none: 1, text: "DeadlineExceeded: too long"},
		{name: "interrupted", any: 1, all: 1, none: 1, text: "interrupted"},
		{name: "interrupted while it ran", ends: ends{"a": end(143, 2)}, any: 143, all: 143},
		{name: "cannot start", ends: ends{"a": end(0, 2)}, why: errors.New("no image"), any: 1, all: 1, none: 1, text: `run pod "default/p": no image`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, err := parseObjects("f.yaml", []byte(file))
			if err != nil {
				t.Fatal(err)
			}
			for kind, want := range map[string]int{Any: tt.any, All: tt.all, None: tt.none} {
				e := &ending{runner: &runner{Options: Options{ExitCode: kind}, objects: set}, status: tt.status, why: tt.why}
				code, err := e.code(&server{ends: tt.ends}, nil)
				if code != want || err != nil && (tt.text == "" || !strings.Contains(err.Error(), tt.text)) {
					t.Errorf("%s: code %d, %v; want %d", kind, code, err, want)
				}
				if err == nil && tt.text != "" && want != 0 {
					t.Errorf("%s: no error", kind)
				}
			}
		})
	}
}

// What does not come by itself ends a run; what ran once is left to the restart policy.
func TestBlocked(t *testing.T) {
	waiting := func(reason string, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "c", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}
	}
	running := corev1.ContainerStatus{Name: "r", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	event := func(reason string) []*corev1.Event { return []*corev1.Event{{Reason: reason, Message: "because"}} }
	for _, tt := range []struct {
		name       string
		init, main []corev1.ContainerStatus
		events     []*corev1.Event
		want       string
	}{
		{name: "starts", main: []corev1.ContainerStatus{waiting("ContainerCreating", 0)}, events: event("Pulling")},
		{name: "no image", main: []corev1.ContainerStatus{running, waiting("ErrImagePull", 0)}, want: "container c: ErrImagePull: why"},
		{name: "no image of an init container", init: []corev1.ContainerStatus{waiting("ErrImageNeverPull", 0)}, want: "container c: ErrImageNeverPull"},
		{name: "no ConfigMap", main: []corev1.ContainerStatus{waiting("CreateContainerConfigError", 0)}, want: "CreateContainerConfigError"},
		{name: "no image for a restart", main: []corev1.ContainerStatus{waiting("ErrImagePull", 1)}},
		{name: "back-off", main: []corev1.ContainerStatus{waiting("CrashLoopBackOff", 3)}},
		{name: "cannot be started", main: []corev1.ContainerStatus{waiting("RunContainerError", 0)}},
		{name: "no volume", main: []corev1.ContainerStatus{waiting("ContainerCreating", 0)}, events: event("FailedMount"), want: "FailedMount: because"},
		{name: "no room", events: event("FailedScheduling"), want: "FailedScheduling: because"},
		{name: "no sandbox", events: event("FailedCreatePodSandBox"), want: "FailedCreatePodSandBox: because"},
		{name: "another node's", events: event("Ignored"), want: "Ignored: because"},
		{name: "a new sandbox fails", main: []corev1.ContainerStatus{running}, events: event("FailedCreatePodSandBox")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := blocked(&corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: tt.init, ContainerStatuses: tt.main}}, tt.events)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
