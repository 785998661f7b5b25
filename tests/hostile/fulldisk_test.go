package hostile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// newDisk mounts a small ext4 and returns where.
func newDisk(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(world.folder, "disk-")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{append(append([]string{"mkfs.ext4", "-q", "-F", "-m", "0"}, args...), file), {"mount", "-o", "loop", file, dir}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", cmd, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount disk: %v", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

// takeBytes takes the last byte of a disk.
func takeBytes(t *testing.T, disk string) (free func()) {
	t.Helper()
	name := filepath.Join(disk, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for err = nil; err == nil; {
			if _, err = f.Write(make([]byte, size)); err == nil && size < 1<<20 {
				err = f.Sync() // or room is only promised
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// takeInodes takes the last inode of a disk.
func takeInodes(t *testing.T, disk string) (free func()) {
	t.Helper()
	dir := filepath.Join(disk, "inodes")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// With no byte or no inode left, pods are stopped and removed: that is how room is made.
func TestRemoveOnAFullDisk(t *testing.T) {
	for name, take := range map[string]func(*testing.T, string) func(){"bytes": takeBytes, "inodes": takeInodes} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk(t, "-N", "2048")
			n := startIn(t, filepath.Join(disk, "node"))
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
			free := take(t, disk)
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
