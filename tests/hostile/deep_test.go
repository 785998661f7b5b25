package hostile

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container nests folders deeper than a path can say, and than the daemon may have files open: it
// is measured and removed as any other.
func TestDeepFolders(t *testing.T) {
	n := start(t)
	n.pull(world.busybox)
	var limit unix.Rlimit
	if err := unix.Prlimit(n.DaemonPID(), unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = min(small.Cur, 2000)
	if err := unix.Prlimit(n.DaemonPID(), unix.RLIMIT_NOFILE, &small, nil); err != nil {
		t.Fatal(err)
	}
	p := n.run("runc")
	c := p.start(sh("sleep 1000"))
	const height = 4000
	tower(t, fmt.Sprintf("/proc/%d/root", c.process()), height)
	measured, err := n.ContainerStats(n.within(30e9), &runtime.ContainerStatsRequest{ContainerId: c.id})
	n.check(err)
	if inodes := measured.GetStats().GetWritableLayer().GetInodesUsed().GetValue(); inodes < height {
		t.Errorf("%d files in the writable layer, want more than %d", inodes, height)
	}
	room, err := n.ImageFsInfo(n.within(30e9), &runtime.ImageFsInfoRequest{})
	n.check(err)
	if inodes := room.GetContainerFilesystems()[0].GetInodesUsed().GetValue(); inodes < height {
		t.Errorf("%d files of containers, want more than %d", inodes, height)
	}
	_, err = n.StopContainer(n.within(30e9), &runtime.StopContainerRequest{ContainerId: c.id})
	n.check(err)
	_, err = n.RemoveContainer(n.within(30e9), &runtime.RemoveContainerRequest{ContainerId: c.id})
	n.check(err)
	p.stop()
	p.remove()
	room, err = n.ImageFsInfo(n.within(30e9), &runtime.ImageFsInfoRequest{})
	n.check(err)
	if inodes := room.GetContainerFilesystems()[0].GetInodesUsed().GetValue(); inodes > 10 {
		t.Errorf("%d files are left", inodes)
	}
}

// tower makes folders in folders.
func tower(t *testing.T, dir string, height int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range height {
		if err := unix.Mkdirat(fd, "folder", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "folder", unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}
