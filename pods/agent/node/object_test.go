package node

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func status(runtime, network bool) *cri.StatusResponse {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: runtime, Reason: "R", Message: "r"}, {Type: cri.NetworkReady, Status: network, Reason: "N", Message: "n"},
	}}}
}

// NC1, SD6: Ready is False when the CRI server or its network is not ready, and while the node shuts
// down.
func TestReady(t *testing.T) {
	for want, h := range map[string]Health{
		"True AgentReady agent is posting ready status":                                                                                              {Status: status(true, true)},
		"False AgentNotReady container runtime network not ready: NetworkReady=false reason:N message:n":                                             {Status: status(true, false)},
		"False AgentNotReady container runtime not ready: RuntimeReady=false reason:R message:r":                                                     {Status: status(false, true)},
		"False AgentNotReady container runtime is down: gone":                                                                                        {Failed: errors.New("gone")},
		"False AgentNotReady node is shutting down":                                                                                                  {Status: status(true, true), ShuttingDown: true},
		"False AgentNotReady stuck; node is shutting down":                                                                                           {Status: status(true, true), Agent: errors.New("stuck"), ShuttingDown: true},
		"False AgentNotReady container runtime not ready: RuntimeReady is not known; container runtime network not ready: NetworkReady is not known": {},
	} {
		if c := Ready(h); string(c.Status)+" "+c.Reason+" "+c.Message != want || c.Type != corev1.NodeReady {
			t.Errorf("%s %s %s, want %s", c.Status, c.Reason, c.Message, want)
		}
	}
}

// NC1: a condition's transition is when its status changed, whatever its message.
func TestConditionTimes(t *testing.T) {
	var k Conditions
	start := time.Unix(1000, 0)
	at := func(seconds int, h Health) (transition, beat int64) {
		now := start.Add(time.Duration(seconds) * time.Second)
		c := k.Keep([]corev1.NodeCondition{Ready(h)}, now)[0]
		return c.LastTransitionTime.Unix() - 1000, c.LastHeartbeatTime.Unix() - 1000
	}
	for _, step := range []struct {
		seconds          int
		health           Health
		transition, beat int64
	}{
		{0, Health{Status: status(true, true)}, 0, 0},
		{10, Health{Status: status(true, true)}, 0, 0},
		{20, Health{Status: status(true, false)}, 20, 20},
		{30, Health{Status: status(false, true)}, 20, 30},
		{330, Health{Status: status(false, true)}, 20, 330},
		{340, Health{Status: status(true, true)}, 340, 340},
	} {
		if transition, beat := at(step.seconds, step.health); transition != step.transition || beat != step.beat {
			t.Errorf("after %d s: changed at %d, seen at %d; want %d, %d", step.seconds, transition, beat, step.transition, step.beat)
		}
	}
	given := corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}
	given.LastTransitionTime.Time, given.LastHeartbeatTime.Time = time.Unix(7, 0), time.Unix(8, 0)
	if got := k.Keep([]corev1.NodeCondition{given}, start)[0]; got != given {
		t.Errorf("times that were given: %+v", got)
	}
	// What is measured every few seconds and stays is no news to those who watch the node.
	again, later := given, time.Unix(18, 0)
	again.LastHeartbeatTime.Time = later
	if got := k.Keep([]corev1.NodeCondition{again}, later)[0]; got != given {
		t.Errorf("the same condition 10 s later: %+v", got)
	}
}

// NC2, NC3: what is read of the node is what is shown of it.
func TestObject(t *testing.T) {
	f, err := Read(Options{Name: "till-4", Root: t.TempDir(), Pods: 7, Reserved: corev1.ResourceList{}})
	if err != nil {
		t.Fatal(err)
	}
	s := status(true, true)
	s.RuntimeHandlers = []*cri.RuntimeHandler{{Name: "wasm", Features: &cri.RuntimeHandlerFeatures{UserNamespaces: true}}}
	n := f.Object(Seen{UID: "u", Created: time.Unix(5, 0), Version: "v1", Runtime: "sunaba", Status: s, Conditions: []corev1.NodeCondition{Ready(Health{Status: s})}})
	info := n.Status.NodeInfo
	if n.Name != "till-4" || n.UID != "u" || n.CreationTimestamp.Unix() != 5 || n.Labels[corev1.LabelHostname] != "till-4" {
		t.Errorf("metadata %+v", n.ObjectMeta)
	}
	if info.KubeletVersion != "v1" || info.ContainerRuntimeVersion != "sunaba://v1" || info.BootID == "" || info.KernelVersion == "" || info.OperatingSystem != "linux" {
		t.Errorf("info %+v", info)
	}
	if n.Status.Capacity.Pods().Value() != 7 || n.Status.Capacity.Memory().IsZero() || n.Status.Allocatable.Cpu().IsZero() || n.Status.Allocatable.StorageEphemeral().IsZero() {
		t.Errorf("capacity %v, allocatable %v", n.Status.Capacity, n.Status.Allocatable)
	}
	if h := n.Status.RuntimeHandlers; len(h) != 1 || h[0].Name != "wasm" || !*h[0].Features.UserNamespaces || *h[0].Features.RecursiveReadOnlyMounts {
		t.Errorf("handlers %+v", h)
	}
	if a := n.Status.Addresses; a[len(a)-1] != (corev1.NodeAddress{Type: corev1.NodeHostName, Address: "till-4"}) {
		t.Errorf("addresses %+v", a)
	}
}
