package facts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/spec"
)

func TestHost(t *testing.T) {
	h, err := Host()
	if err != nil {
		t.Fatal(err)
	}
	if h.Hostname == "" || h.MinOOMScoreAdj < -1000 || h.MinOOMScoreAdj > 1000 || h.Capabilities == nil {
		t.Fatalf("%+v", h)
	}
	if o := Online(h); !strings.HasPrefix(o.CPUs, "0") || !strings.HasPrefix(o.MemoryNodes, "0") || o.Hostname != h.Hostname {
		t.Errorf("online: %+v", o)
	}
	if os.Geteuid() == 0 && !slices.Contains(h.Capabilities, "CAP_CHOWN") {
		t.Errorf("root has no CAP_CHOWN in %v", h.Capabilities)
	}
}

func TestCapabilityNames(t *testing.T) {
	got := capabilityNames(1<<0 | 1<<21 | 1<<40 | 1<<63)
	if want := []string{"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_CHECKPOINT_RESTORE"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestSources(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, "made", strings.Repeat("x", 256))
	if _, err := new(Paths).Sources(t.Context(), &runtime.ContainerConfig{Mounts: []*runtime.Mount{{HostPath: long}}}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a name that no file can have: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(long)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part of a path that cannot be was made: %v", err)
	}
	missing := filepath.Join(dir, "a/b")
	got, err := new(Paths).Sources(t.Context(), &runtime.ContainerConfig{Mounts: []*runtime.Mount{
		{HostPath: link}, {HostPath: missing}, {HostPath: ""}, {HostPath: "relative"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got[link].Path != filepath.Join(dir, "real") || got[missing].Path != missing || len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	if info, err := os.Stat(missing); err != nil || !info.IsDir() {
		t.Fatalf("missing path was not made: %v", err)
	}
}

// A file system whose server does not answer holds up nobody, and gets one question at a time.
func TestSourcesOfADeadFileSystem(t *testing.T) {
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("not run: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("dead", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())); err != nil {
		server.Close()
		t.Skipf("not run: mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "volume")
	config := &runtime.ContainerConfig{Metadata: &runtime.ContainerMetadata{Name: "c"}, Mounts: []*runtime.Mount{{HostPath: path}}}
	p := &Paths{Patience: 50 * time.Millisecond}
	for range 3 {
		if _, err := p.Sources(t.Context(), config); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v", err)
		}
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	p.Patience = time.Minute
	if _, err := p.Sources(soon, config); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) {
		t.Errorf("a request that ends sooner: %v", err)
	}
	if len(p.asked) != 1 {
		t.Errorf("%d questions are open", len(p.asked))
	}
	p.Patience = 50 * time.Millisecond
	if _, err := p.Read(t.Context(), path, 1); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), path) {
		t.Errorf("a file to read: %v", err)
	}
	devices := &runtime.ContainerConfig{Devices: []*runtime.Device{{HostPath: path}}}
	if _, err := p.Devices(t.Context(), devices); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "devices[0].host_path") {
		t.Errorf("a device: %v", err)
	}
	p.Patience = time.Minute
	other := &runtime.ContainerConfig{Mounts: []*runtime.Mount{{HostPath: t.TempDir()}}}
	if _, err := p.Sources(t.Context(), other); err != nil {
		t.Errorf("a path that has nothing to do with it: %v", err)
	}
	q := p.question("resolve "+path, nil)
	server.Close() // its end answers every question
	<-q.done
	if _, err := p.Sources(t.Context(), config); !errdefs.IsInvalidArgument(err) {
		t.Errorf("after its end: %v", err)
	}
}

// A file that a request names is read if it is a regular one, and not without end.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(file, []byte("12345"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var p Paths
	if data, err := p.Read(t.Context(), file, 5); err != nil || string(data) != "12345" {
		t.Errorf("%q, %v", data, err)
	}
	for _, name := range []string{pipe, dir, "/dev/zero", filepath.Join(dir, "missing")} {
		if _, err := p.Read(t.Context(), name, 5); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.Read(t.Context(), file, 4); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a long file: %v", err)
	}
}

// A path that stands for a whole disk is not searched for devices without end.
func TestDevicesOfALargeTree(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b/c", "d"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := devicesAt(dir, 5); err != nil {
		t.Error(err)
	}
	if _, err := devicesAt(dir, 4); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v", err)
	}
}

func TestPropagation(t *testing.T) {
	table := []*mountinfo.Info{
		{Mountpoint: "/", Optional: "shared:1"},
		{Mountpoint: "/a", Optional: "master:1"},
		{Mountpoint: "/a/b", Optional: ""},
		{Mountpoint: "/c", Optional: "shared:2"},
		{Mountpoint: "/c", Optional: "shared:3 master:2"},
	}
	for _, tt := range []struct {
		path          string
		shared, slave bool
	}{
		{"/x", true, false}, {"/a", false, true}, {"/ab", true, false}, {"/a/b/c", false, false}, {"/c/d", true, true},
	} {
		if shared, slave := propagation(table, tt.path); shared != tt.shared || slave != tt.slave {
			t.Errorf("%s: shared %v slave %v", tt.path, shared, slave)
		}
	}
}

func TestDevices(t *testing.T) {
	link := filepath.Join(t.TempDir(), "null")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	got, err := new(Paths).Devices(t.Context(), &runtime.ContainerConfig{Devices: []*runtime.Device{{HostPath: link}, {HostPath: "/dev/no-such-device"}}})
	if err != nil {
		t.Fatal(err)
	}
	list := got[link]
	if len(got) != 1 || len(list) != 1 || list[0].Type != "c" || list[0].Major != 1 || list[0].Minor != 3 || list[0].Path != "" {
		t.Fatalf("%+v", got)
	}
	all, err := HostDevices()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(d spec.Device) bool { return d.Path == "/dev/null" }) {
		t.Errorf("/dev/null is not among %d devices", len(all))
	}
}

// A kernel without entries of binfmt_misc says so; one that was just asked is asked again.
func TestRunsOtherFormats(t *testing.T) {
	fs, err := unix.Fsopen("binfmt_misc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatalf("this kernel has no binfmt_misc: %v", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatal(err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mount)
	write := func(name, text string) {
		t.Helper()
		fd, err := unix.Openat(mount, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if _, err := unix.Write(fd, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	before := RunsOtherFormats()
	write("register", ":sunaba-test:E::no-such-extension::/bin/true:")
	during := RunsOtherFormats()
	write("sunaba-test", "-1")
	if !during || RunsOtherFormats() != before {
		t.Errorf("before %v, with an entry %v, after %v", before, during, RunsOtherFormats())
	}
}
