package hostile

import (
	"testing"

	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Processors and memory nodes that this machine does not have are refused with their field. The
// container is as it was, and none is left of a refused one.
func TestLimitsThatCannotBe(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	n.pull(world.guest)
	for _, handler := range []string{"runc", "wasm"} {
		p := n.run(handler)
		config := func() *runtime.ContainerConfig {
			if handler == "wasm" {
				return of(world.guest, "/guest.wasm", "idle")
			}
			return sh("sleep 1000")
		}
		for field, r := range map[string]*runtime.LinuxContainerResources{
			"linux.resources: cpuset_cpus": {CpusetCpus: "0,4000"}, "linux.resources: cpuset_mems": {CpusetMems: "70"},
		} {
			c := config()
			c.Linux.Resources = r
			_, err := p.tryCreate(c)
			n.refused(err, codes.InvalidArgument, field)
		}
		c := p.start(config())
		update := func(r *runtime.LinuxContainerResources) error {
			_, err := n.UpdateContainerResources(t.Context(), &runtime.UpdateContainerResourcesRequest{ContainerId: c.id, Linux: r})
			return err
		}
		n.refused(update(&runtime.LinuxContainerResources{CpusetCpus: "4000"}), codes.InvalidArgument, "linux.cpuset_cpus")
		n.refused(update(&runtime.LinuxContainerResources{CpusetMems: "0-70"}), codes.InvalidArgument, "linux.cpuset_mems")
		answer, err := n.ContainerStatus(t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id})
		n.check(err)
		if s := answer.GetStatus(); s.GetState() != runtime.ContainerState_CONTAINER_RUNNING || s.GetResources().GetLinux().GetCpusetCpus() != "" {
			t.Errorf("%s: after what was refused: %v", handler, s)
		}
		all, err := n.ListContainers(t.Context(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: p.id}})
		n.check(err)
		if len(all.GetContainers()) != 1 {
			t.Errorf("%s: containers are left: %v", handler, all.GetContainers())
		}
		p.stop()
		p.remove()
	}
}
