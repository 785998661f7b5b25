package hostile

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
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

// An end that was told on a full disk is told by the next server too: by one that comes while the
// disk is full, and, once the disk has had room, by one that comes after a loss of power.
func TestEndOnAFullDisk(t *testing.T) {
	for _, restarted := range []bool{true, false} {
		name := "told by one server"
		if restarted {
			name = "told by two"
		}
		t.Run(name, func(t *testing.T) {
			full := disk.New(t, world.folder, 64)
			n := startIn(t, filepath.Join(full, "node"))
			n.pull(world.busybox)
			n.pull(world.guest)
			var killed, made, stopped []*container
			for _, handler := range []string{"runc", "wasm"} {
				p := n.run(handler)
				killed, stopped = append(killed, p.start(idle(handler))), append(stopped, n.run(handler).start(idle(handler)))
				c, err := p.tryCreate(idle(handler))
				n.check(err)
				made = append(made, c)
			}
			free := disk.TakeBytes(t, full)
			told := map[*container]string{}
			for i, c := range killed {
				n.check(unix.Kill(c.process(), unix.SIGKILL))
				told[c] = c.end()
				if restarted {
					continue // of what is below, only the record tells
				}
				_, err := n.StartContainer(n.within(node.Patience), &runtime.StartContainerRequest{ContainerId: made[i].id})
				if i == 0 {
					n.refused(err, codes.ResourceExhausted) // by runc, which does not say why
				} else if err == nil { // a guest needs no room to start
					n.check(unix.Kill(made[i].process(), unix.SIGKILL))
				}
				stopped[i].pod.stop()
				told[made[i]], told[stopped[i]] = made[i].end(), stopped[i].end()
			}
			same := func(when string) {
				t.Helper()
				for c, before := range told {
					if now := c.end(); now != before {
						t.Errorf("%s it is told that a container %s; it was told that it %s", when, now, before)
					}
				}
			}
			if restarted {
				n.restart()
				same("started on a full disk,")
			}
			for i, c := range killed {
				if !restarted || i > 0 { // the shim of the other one has the only copy of an end
					n.check(unix.Kill(c.pod.shimPID(), unix.SIGKILL))
				}
			}
			recorded := func() bool {
				l, err := state.Read(filepath.Join(n.Root, "state", "containers"), state.CheckContainer)
				n.check(err)
				for c := range told {
					if l.Records[c.id].Phase != state.Exited {
						return false
					}
				}
				return true
			}
			if recorded() {
				t.Error("the disk was not full")
			}
			free()
			if !node.Within(node.Patience, recorded) {
				t.Error("there is room, and ends are not recorded")
			}
			n.check(n.SignalDaemon(syscall.SIGKILL))
			n.check(n.PowerOff(n.Pods()))
			n.check(n.StartDaemon(n.within(node.Patience)))
			same("after a loss of power")
		})
	}
}

// end waits for the container's end, and says how and when it was.
func (c *container) end() string {
	c.t.Helper()
	s := c.wait()
	return fmt.Sprintf("ended with %d, %s at %d", s.GetExitCode(), s.GetReason(), s.GetFinishedAt())
}
