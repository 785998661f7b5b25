package scenario

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// freeOf are the bytes that a disk has left.
func freeOf(t *testing.T, disk string) int64 {
	t.Helper()
	var st unix.Statfs_t
	unix.Sync() // what was removed is given back with the journal
	if err := unix.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// A node whose disk is full says so, loses nothing, lets everything be removed, starts, and goes on
// once there is room.
func TestFullDisk(t *testing.T) {
	small := disk.New(t, world.Folder, 64)
	m := startIn(t, filepath.Join(small, "node"))
	// The next daemon's log is where there is room.
	if err := os.Remove(m.LogFile); err != nil {
		t.Fatal(err)
	}
	m.LogFile = filepath.Join(world.Folder, "fulldisk.log")
	m.pull(world.Busybox)
	m.pull(world.Guest)
	stays := map[string]*container{}
	for _, handler := range []string{"runc", "wasm"} {
		stays[handler] = m.run(handler).begin(sh("i=0; while :; do i=$((i+1)); echo tick $i; usleep 20000; done"))
		stays[handler].says("tick 2")
	}
	idle := m.run("wasm").begin(containerConfig(world.Guest, "idle"))
	idle.says("idle")
	doomed := m.run("runc")
	sleeper, unborn := doomed.begin(sh("sleep 1000")), doomed.create(sh("echo born; sleep 1000"))

	noRoom := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v; want ResourceExhausted", what, err)
		}
	}
	before := freeOf(t, small)
	big := pushBig(t)
	for range 2 {
		_, err := m.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: big}})
		noRoom("pull", err)
	}
	if after := freeOf(t, small); before-after > 1<<20 {
		t.Errorf("after the pull %d bytes are missing", before-after)
	}
	m.expectSound("after a pull that did not fit")

	free := disk.TakeBytes(t, small)
	for _, handler := range everyHandler {
		_, err := m.RunPodSandbox(t.Context(), &runtime.RunPodSandboxRequest{Config: m.podConfig("full"), RuntimeHandler: handler})
		noRoom("run a pod under "+handler, err)
	}
	config := sh("true")
	config.LogPath = "" // its folder would be the kubelet's to make
	_, err := doomed.tryCreate(config)
	noRoom("create a container", err)
	_, err = m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: unborn.id})
	noRoom("start a container", err)
	_, err = m.ExecSync(t.Context(), &runtime.ExecSyncRequest{ContainerId: sleeper.id, Cmd: []string{"/bin/echo", "hi"}, Timeout: 60})
	noRoom("exec", err)
	m.expectSound("full")

	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatalf("start on a full disk: %v\n%s", err, m.DaemonLog())
	}
	m.expectSound("started again, full")
	for handler, c := range stays {
		if got := c.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("%s: %v", handler, got)
		}
	}
	sleeper.stop(0)
	doomed.stop()
	doomed.remove()
	if _, err := m.RemoveImage(t.Context(), &runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: world.Guest}}); err != nil {
		t.Errorf("remove an image: %v", err)
	}
	m.expectSound("with less, full")

	free()
	for handler, c := range stays {
		n := strings.Count(c.text(), "\n")
		if !node.Within(node.Patience, func() bool { return strings.Count(c.text(), "\n") > n }) {
			t.Errorf("%s: the log does not go on: %q", handler, c.text())
		}
	}
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		p := m.run(handler)
		p.begin(sh("echo one; exit 3")).expectEnd(3, "Error")
	}
	m.expectSound("with room again")
}

// pushBig pushes an image that is larger than the disk.
func pushBig(t *testing.T) string {
	t.Helper()
	noise := make([]byte, 80<<20)
	if _, err := io.ReadFull(rand.Reader, noise); err != nil {
		t.Fatal(err)
	}
	image, err := oci.Busybox(oci.Host(), v1.Config{}, oci.Text("noise", string(noise)))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := world.Registry.Push(context.Background(), "big:v1", image)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
