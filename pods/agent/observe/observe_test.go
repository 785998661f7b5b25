package observe

import (
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

func status(id string, state runtime.ContainerState) *runtime.ContainerStatus {
	return &runtime.ContainerStatus{Id: id, Metadata: &runtime.ContainerMetadata{Name: "app", Attempt: 1}, State: state, LogPath: "/logs/1.log"}
}

func sandbox(id string, state runtime.PodSandboxState) *runtime.PodSandboxStatus {
	return &runtime.PodSandboxStatus{Id: id, Metadata: &runtime.PodSandboxMetadata{Attempt: 2}, State: state, Network: &runtime.PodSandboxNetworkStatus{
		Ip: "10.0.0.2", AdditionalIps: []*runtime.PodIP{{Ip: "fd00::2"}}}}
}

// States only go forward, whatever the order in which answers come.
func TestOrder(t *testing.T) {
	created, running, exited, unknown := runtime.ContainerState_CONTAINER_CREATED, runtime.ContainerState_CONTAINER_RUNNING,
		runtime.ContainerState_CONTAINER_EXITED, runtime.ContainerState_CONTAINER_UNKNOWN
	for _, tt := range []struct {
		states []runtime.ContainerState
		want   cycle.State
	}{
		{[]runtime.ContainerState{created, running, exited}, cycle.StateExited},
		{[]runtime.ContainerState{exited, running, created}, cycle.StateExited},
		{[]runtime.ContainerState{running, created}, cycle.StateRunning},
		{[]runtime.ContainerState{running, unknown}, cycle.StateUnknown},
		{[]runtime.ContainerState{running, unknown, running}, cycle.StateRunning},
		{[]runtime.ContainerState{unknown, exited}, cycle.StateExited},
	} {
		p := New()
		for _, s := range tt.states {
			p.Take(sandbox("s", runtime.PodSandboxState_SANDBOX_READY), []*runtime.ContainerStatus{status("c", s)})
		}
		if got := p.Containers["c"].State; got != tt.want {
			t.Errorf("%v: %v, want %v", tt.states, got, tt.want)
		}
	}
	p := New()
	p.Take(sandbox("s", runtime.PodSandboxState_SANDBOX_NOTREADY), nil)
	p.Take(sandbox("s", runtime.PodSandboxState_SANDBOX_READY), nil)
	if s := p.Newest(); s.Ready || s.Attempt != 2 || len(s.IPs) != 2 || p.Live() {
		t.Errorf("sandbox %+v", s)
	}
}

// What is removed stays removed, for ten minutes; a complete answer removes what it does not have,
// unless that came after the question.
func TestRemoved(t *testing.T) {
	now := time.Now()
	ready := sandbox("s", runtime.PodSandboxState_SANDBOX_READY)
	all := []*runtime.ContainerStatus{status("c", runtime.ContainerState_CONTAINER_RUNNING)}
	p := New()
	p.Take(ready, all)
	asked := p.Turn
	p.Take(ready, append(all, status("later", runtime.ContainerState_CONTAINER_RUNNING)))
	ended := p.Ended("c")
	p.TakeAll(asked, ready, nil, now)
	if p.Containers["c"] != nil || !p.Gone("c") || p.Containers["later"] == nil {
		t.Errorf("containers %v", p.Containers)
	}
	select {
	case <-ended:
	default:
		t.Error("nobody was told of the end")
	}
	p.Take(ready, all)
	if p.Containers["c"] != nil {
		t.Error("a late event brought a removed container back")
	}
	p.Remove("s", now)
	if len(p.Sandboxes) != 0 || len(p.Containers) != 0 || !p.Gone("later") {
		t.Errorf("left %v, %v", p.Sandboxes, p.Containers)
	}
	p.Remove("x", now.Add(11*time.Minute))
	if p.Gone("c") || !p.Gone("x") {
		t.Error("removed ids are kept for ever")
	}
	select {
	case <-p.Ended("c"):
	default:
		t.Error("a container that is gone has not ended")
	}
}
