package shims

import (
	"os/exec"
	"testing"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// A shim that dies before it has written the record of a container leaves that container's cgroup,
// in which its prewarmed process was born. The container ends there, so its cgroup is removed
// with the shim and not only with the pod.
func TestReleaseRemovesTheCgroupOfAPrewarmedProcess(t *testing.T) {
	w := newWorld(t)
	pod := state.Sandbox{ID: state.NewID(), CgroupParent: "/sunaba-test-shims-own"}
	container := state.DrawID(pod.ID)
	cgroups := w.Layout().Cgroups
	t.Cleanup(func() { _ = cgroups.RemovePod(pod.CgroupParent) })
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleep.Wait() }()
	t.Cleanup(func() { _ = sleep.Process.Kill() })
	leaf := cgroups.Leaf(pod.CgroupParent, container)
	if err := cgroups.Place(leaf, sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}

	for range 2 { // the server dies before it has recorded that the shim is gone
		if err := w.Release(t.Context(), pod, nil); err != nil {
			t.Fatal(err)
		}
		if left, err := cgroups.Leaves(pod.CgroupParent); err != nil || len(left) != 0 {
			t.Errorf("cgroups %q, %v are left of the pod's containers", left, err)
		}
	}
	<-ended
}
