package foreign

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/fakecri"
)

// uid is that of no pod of the machine.
const uid = "00000000-5a5a-4a5a-8a5a-00000000f0e1"

// server is a CRI server as containerd 1.6: it names no cgroup driver and limits no sandbox.
type server struct {
	runtime.UnimplementedRuntimeServiceServer
	parent string
	fail   error
	run    func()
	list   func()
	pods   []*runtime.PodSandbox
}

func (s *server) RunPodSandbox(_ context.Context, q *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	if s.parent = q.GetConfig().GetLinux().GetCgroupParent(); s.fail != nil {
		return nil, s.fail
	}
	if s.run != nil {
		s.run()
	}
	id := string(rune('a' + len(s.pods)))
	s.pods = append(s.pods, &runtime.PodSandbox{Id: id, Metadata: q.GetConfig().GetMetadata()})
	return &runtime.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (s *server) ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	if s.list != nil {
		s.list()
	}
	return &runtime.ListPodSandboxResponse{Items: s.pods}, nil
}

func (s *server) PodSandboxStatus(_ context.Context, q *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	for _, p := range s.pods {
		if p.Id == q.PodSandboxId {
			return &runtime.PodSandboxStatusResponse{Status: &runtime.PodSandboxStatus{Id: p.Id, Metadata: p.Metadata}, Timestamp: 1}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (s *server) ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	return &runtime.ListContainersResponse{}, nil
}

func (s *server) StopPodSandbox(context.Context, *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error) {
	return &runtime.StopPodSandboxResponse{}, nil
}

func (s *server) RemovePodSandbox(_ context.Context, q *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	var rest []*runtime.PodSandbox
	for _, p := range s.pods {
		if p.Id != q.PodSandboxId {
			rest = append(rest, p)
		}
	}
	s.pods = rest
	return &runtime.RemovePodSandboxResponse{}, nil
}

func connect(t *testing.T, s *server) Server {
	t.Helper()
	c, err := New(t.Context(), fakecri.Connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func request(uid string) *runtime.RunPodSandboxRequest {
	return &runtime.RunPodSandboxRequest{Config: &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{Name: "web", Uid: uid},
		Linux:    &runtime.LinuxPodSandboxConfig{Resources: &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}},
	}}
}

// A pod's cgroup is made before its first sandbox, with the limits of the pod, and removed with its
// last one.
func TestCgroupOfPod(t *testing.T) {
	s := &server{}
	c := connect(t, s)
	dirs := func() (there int) {
		for _, root := range c.cgroups.Roots() {
			if _, err := os.Stat(filepath.Join(root, s.parent)); err == nil {
				there++
			}
		}
		return there
	}
	t.Cleanup(func() {
		if parent, err := c.parent(uid); err == nil {
			_ = c.remove(parent)
		}
	})
	limited := func(want uint64) {
		t.Helper()
		name := "memory.limit_in_bytes"
		if c.cgroups.Unified != "" {
			name = "memory.max"
		}
		if got, err := c.cgroups.Group(s.parent).Number("memory", name); err != nil || got != want {
			t.Errorf("the pod is limited to %d, %v, want %d", got, err, want)
		}
	}
	one, err := c.RunPodSandbox(t.Context(), request(uid))
	if err != nil || s.parent == "" || dirs() != len(c.cgroups.Roots()) {
		t.Fatalf("%v: parent %q in %d hierarchies", err, s.parent, dirs())
	}
	limited(64 << 20)
	two, err := c.RunPodSandbox(t.Context(), request(uid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpdatePodSandboxResources(t.Context(), &runtime.UpdatePodSandboxResourcesRequest{
		PodSandboxId: two.PodSandboxId, Resources: &runtime.LinuxContainerResources{MemoryLimitInBytes: 32 << 20},
	}); err != nil {
		t.Fatal(err)
	}
	limited(32 << 20)
	for i, id := range []string{one.PodSandboxId, two.PodSandboxId, two.PodSandboxId} {
		if _, err := c.RemovePodSandbox(t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Fatal(err)
		}
		if gone := dirs() == 0; gone != (i > 0) {
			t.Errorf("after removal %d the cgroup is there: %v", i, !gone)
		}
	}
	s.fail = errors.New("no network")
	if _, err := c.RunPodSandbox(t.Context(), request(uid)); err == nil || dirs() != 0 {
		t.Errorf("%v: the cgroup of a sandbox that was not made is there", err)
	}
	for _, bad := range []string{"", "../x", "-", "a/b"} {
		if _, err := c.RunPodSandbox(t.Context(), request(bad)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("UID %q: %v", bad, err)
		}
	}
}

// A sweep removes the cgroup of a pod that a killed client has left, and none that a sandbox of the
// server knows, that holds a process, or in which a sandbox is being made.
func TestSweep(t *testing.T) {
	s := &server{}
	c := connect(t, s)
	parent, err := c.parent(uid)
	if err != nil {
		t.Fatal(err)
	}
	group := c.cgroups.Group(parent)
	t.Cleanup(func() { _ = c.remove(parent) })
	sweep := func(what string, stays bool) {
		t.Helper()
		if err := connect(t, s).Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if group.Exists() != stays {
			t.Errorf("%s: the cgroup stays: %v", what, !stays)
		}
	}
	sweep("no cgroup", false)
	left := func() {
		t.Helper()
		if err := c.cgroups.MakePod(parent); err != nil {
			t.Fatal(err)
		}
	}
	left()
	sweep("left by a killed client", false)

	left()
	ours := c.cgroups.Group("/sunaba/pod-" + strings.Repeat("0", 64)) // a pod's of our own server
	if err := ours.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Remove() })
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if err := group.Join(sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	sweep("with a process", true)
	_ = sleep.Process.Kill()
	_ = sleep.Wait()

	s.run = func() { sweep("being made", true) }
	one, err := c.RunPodSandbox(t.Context(), request(uid))
	if err != nil {
		t.Fatal(err)
	}
	s.run = nil
	sweep("of a sandbox", true)

	// A sandbox that is asked for while a sweep is removing its cgroup gets a new one.
	s.pods = nil
	started, made := make(chan struct{}), make(chan error, 1)
	s.list = func() {
		s.list = nil
		go func() {
			close(started)
			_, err := c.RunPodSandbox(t.Context(), request(uid))
			made <- err
		}()
		<-started
		time.Sleep(20 * time.Millisecond) // until it waits; earlier and later are right too
	}
	if err := connect(t, s).Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-made:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody asks what sandboxes there are, or makes one")
	}
	for _, dir := range group.Dirs() {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.RemovePodSandbox(t.Context(), &runtime.RemovePodSandboxRequest{PodSandboxId: one.PodSandboxId}); err != nil {
		t.Error(err)
	}
	if !ours.Exists() {
		t.Error("the cgroup of another server's pod was removed")
	}
}
