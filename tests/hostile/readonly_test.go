package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
)

// The file system of the node's root turns read-only, as after an error of its disk. Requests that
// need it are refused by name; pods are shown as they are, end, and can be stopped. Once it is
// repaired, nothing is lost that a client was told, pods are removed, and others run.
func TestFileSystemTurnsReadOnly(t *testing.T) {
	image, err := disk.NewImage(world.folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(image.Dir, 0); err != nil {
			t.Error(err)
		}
	})
	dir, err := os.MkdirTemp(world.folder, "node-")
	if err != nil {
		t.Fatal(err)
	}
	n := startWith(t, node.Options{Dir: dir, Root: filepath.Join(image.Dir, "root")}, node.OwnShims("[handlers.runc-own]\ntype = \"oci\"\n"))
	n.pull(world.busybox)
	n.pull(world.guest)
	type running struct {
		*pod
		killed, stays, created *container
	}
	var pods []running
	for _, handler := range []string{"runc", "wasm"} {
		p := n.run(handler)
		created, err := p.tryCreate(idle(handler))
		n.check(err)
		pods = append(pods, running{p, p.start(idle(handler)), p.start(idle(handler)), created})
	}
	orphan := n.run("runc-own")
	if err := image.Abort(); err != nil {
		t.Fatal(err)
	}
	const says = "read-only file system"
	_, err = n.tryRun("runc")
	n.refused(err, codes.FailedPrecondition, says)
	_, err = pods[0].tryCreate(idle("runc"))
	n.refused(err, codes.FailedPrecondition, says)
	_, err = n.RemoveImage(n.within(node.Patience), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: world.guest}})
	n.refused(err, codes.FailedPrecondition, says)
	for _, p := range pods {
		n.check(unix.Kill(p.killed.process(), unix.SIGKILL))
		if s := p.killed.wait(); s.GetExitCode() != 137 {
			t.Errorf("a container that was killed ended with %d, %s", s.GetExitCode(), s.GetReason())
		}
		p.stays.process()
		_, err := n.StartContainer(n.within(node.Patience), &runtime.StartContainerRequest{ContainerId: p.created.id})
		n.refused(err, codes.FailedPrecondition, says)
	}
	n.check(unix.Kill(orphan.shimPID(), unix.SIGKILL))
	if !node.Within(node.Patience, func() bool { return orphan.state() == runtime.PodSandboxState_SANDBOX_NOTREADY }) {
		t.Error("a pod whose shim was killed is ready")
	}
	for _, p := range pods {
		p.stop()
		if state := p.pod.state(); state != runtime.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("a pod that was stopped is %v", state)
		}
		_, err := n.RemovePodSandbox(n.within(node.Patience), &runtime.RemovePodSandboxRequest{PodSandboxId: p.id})
		n.refused(err, codes.FailedPrecondition, says)
	}
	orphan.stop()

	n.check(n.SignalDaemon(syscall.SIGKILL))
	if err := n.StartDaemon(n.within(node.Patience)); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("a start on a read-only file system: %v", err)
	}
	n.check(image.Repair())
	n.check(n.StartDaemon(n.within(node.Patience)))
	list, err := n.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{})
	n.check(err)
	if len(list.GetItems()) != 3 {
		t.Errorf("%d pods are there, want 3", len(list.GetItems()))
	}
	for _, p := range pods {
		if state := p.pod.state(); state != runtime.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("a pod that was stopped is %v", state)
		}
		p.killed.wait()
	}
	n.check(n.RemovePods(n.within(node.Patience)))
	for _, handler := range []string{"runc", "wasm"} {
		p := n.run(handler)
		p.start(idle(handler))
		p.remove()
	}
}

// state is the pod's.
func (p *pod) state() runtime.PodSandboxState {
	p.t.Helper()
	answer, err := p.PodSandboxStatus(p.within(node.Patience), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id})
	p.check(err)
	return answer.GetStatus().GetState()
}

// A container that was being made when the root turned read-only, and of which something is left
// for that, goes with its pod.
func TestUnfinishedContainerGoesWithItsPod(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	p := n.run("runc")
	for try := 0; !strings.Contains(n.DaemonLog(), "failed to undo container"); try++ {
		if try == 1000 {
			t.Fatal("the root was never read-only in the middle of a creation")
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = p.tryCreate(idle("runc"))
		}()
		time.Sleep(time.Duration(try%12) * time.Millisecond)
		writable := disk.Cover(t, n.Root)
		<-answered
		writable()
	}
	p.remove()
	n.check(n.Sound())
	n.restart()
}

// restart kills the daemon and starts it again: that removes what it could not while the root was
// read-only.
func (n *target) restart() {
	n.t.Helper()
	n.check(n.SignalDaemon(syscall.SIGKILL))
	n.check(n.StartDaemon(n.within(node.Patience)))
}
