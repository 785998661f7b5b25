package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// shelf are the records of a test by id.
type shelf[T any] map[string]T

func (s shelf[T]) Get(id string) (T, error) {
	rec, found := s[id]
	if !found {
		return rec, fmt.Errorf("id %q: %w", id, errdefs.ErrNotFound)
	}
	return rec, nil
}

func ofPhase(phase state.Phase, labels map[string]string) (rec state.Sandbox) {
	rec.Phase, rec.Config.Value = phase, &runtime.PodSandboxConfig{Labels: labels}
	return rec
}

func inPhase(phase state.Phase, name string) (rec state.Container) {
	rec.Phase, rec.SandboxID, rec.Config.Value = phase, "ready", &runtime.ContainerConfig{Metadata: &runtime.ContainerMetadata{Name: name}}
	return rec
}

// A.3: only what runs is told, to whom listens, and never more than fits.
func TestStops(t *testing.T) {
	var log bytes.Buffer
	s := &stops{
		sandboxes:  shelf[state.Sandbox]{"ready": ofPhase(state.Ready, map[string]string{"pod": "web"}), "stopped": ofPhase(state.Stopped, nil)},
		containers: shelf[state.Container]{"runs": inPhase(state.Running, "app"), "over": inPhase(state.Exited, "app")},
		logger:     slog.New(slog.NewTextHandler(&log, nil)),
	}
	requests := map[string]any{
		"stop container": &runtime.StopContainerRequest{ContainerId: "runs"}, "remove container": &runtime.RemoveContainerRequest{ContainerId: "runs"},
		"stop sandbox": &runtime.StopPodSandboxRequest{PodSandboxId: "ready"}, "remove sandbox": &runtime.RemovePodSandboxRequest{PodSandboxId: "ready"},
		"stop what is over": &runtime.StopContainerRequest{ContainerId: "over"}, "remove what is over": &runtime.RemovePodSandboxRequest{PodSandboxId: "stopped"},
		"stop nothing": &runtime.StopPodSandboxRequest{PodSandboxId: "x"}, "look": &runtime.ContainerStatusRequest{ContainerId: "runs"},
	}
	want := map[string]string{"stop container": "web/app", "remove container": "web/app", "stop sandbox": "web/", "remove sandbox": "web/"}
	for name, r := range requests {
		s.see(t.Context(), r) // without a listener
		told := make(chan Stop, 1)
		s.listen(told)
		s.see(t.Context(), r)
		s.listen(nil)
		got := ""
		select {
		case stop := <-told:
			if got = stop.Labels["pod"] + "/" + stop.Container; stop.Known {
				t.Errorf("%s: a caller is named though there is no connection: %+v", name, stop.Process)
			}
		default:
		}
		if got != want[name] {
			t.Errorf("%s: told %q, want %q", name, got, want[name])
		}
	}
	s.listen(make(chan Stop))
	s.see(context.Background(), requests["stop sandbox"]) // does not wait
	if !bytes.Contains(log.Bytes(), []byte("too slow")) {
		t.Errorf("log: %s", &log)
	}
}
