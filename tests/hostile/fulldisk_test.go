package hostile

import (
	"path/filepath"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
)

// With no byte or no inode left, pods are stopped and removed: that is how room is made.
func TestRemoveOnAFullDisk(t *testing.T) {
	for name, take := range map[string]func(*testing.T, string) func(){"bytes": disk.TakeBytes, "inodes": disk.TakeInodes} {
		t.Run(name, func(t *testing.T) {
			full := disk.New(t, world.folder, 64, "-N", "2048")
			n := startIn(t, filepath.Join(full, "node"))
			n.pull(world.busybox)
			n.pull(world.guest)
			type running struct {
				p       *pod
				c, made *container
			}
			var pods []running
			for _, handler := range []string{"runc", "wasm"} {
				for range 2 {
					p := n.run(handler)
					c := p.start(idle(handler))
					made, err := p.tryCreate(idle(handler))
					n.check(err)
					pods = append(pods, running{p, c, made})
				}
			}
			free := take(t, full)
			for i, r := range pods {
				if i%2 == 0 {
					_, err := n.StopContainer(n.within(node.Patience), &runtime.StopContainerRequest{ContainerId: r.c.id})
					n.check(err)
					_, err = n.RemoveContainer(n.within(node.Patience), &runtime.RemoveContainerRequest{ContainerId: r.c.id})
					n.check(err)
				}
				r.p.stop()
				answer, err := n.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: r.p.id})
				n.check(err)
				if state := answer.GetStatus().GetState(); state != runtime.PodSandboxState_SANDBOX_NOTREADY {
					t.Errorf("a pod that was stopped is %v", state)
				}
			}
			for _, r := range pods {
				r.p.remove()
			}
			free()
			n.run("runc").start(sh("exit 3")).wait()
		})
	}
}
