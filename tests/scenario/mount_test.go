package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nested is a folder of the host with another file system mounted in it.
func nested(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", below, "tmpfs", 0, "mode=777"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(below, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Options and read-only flags of mounts are the kernel's under every OCI runtime.
func TestMountOptions(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "crun"} {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			dir := nested(t)
			config := sh(`grep -o ' /v/[a-z]* [a-z,]*' /proc/self/mountinfo | sort
touch /v/plain/below/new && echo wrote below; touch /v/all/below/new || echo refused below; touch /v/all/new || echo refused`)
			config.Mounts = []*runtime.Mount{
				{ContainerPath: "/v/plain", HostPath: dir, Readonly: true},
				{ContainerPath: "/v/all", HostPath: dir, Readonly: true, RecursiveReadOnly: true},
				{ContainerPath: "/v/strict", HostPath: t.TempDir(), MountOptions: []string{"noexec", "nodev", "nosuid"}},
				{ContainerPath: "/v/noexec", HostPath: t.TempDir(), MountOptions: []string{"noexec"}, Readonly: true},
			}
			c := p.begin(config)
			c.wait()
			got := c.text()
			for _, want := range []string{" /v/strict rw,nosuid,nodev,noexec", " /v/noexec ro,noexec", " /v/plain ro", " /v/all ro", "wrote below\n", "refused below\n", "refused\n"} {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in %q", want, got)
				}
			}
			p.remove()
		})
	}
	features, err := m.Status(t.Context(), &runtime.StatusRequest{})
	if err != nil || !features.GetFeatures().GetMountOptions() {
		t.Errorf("features %v, %v", features.GetFeatures(), err)
	}
	for _, h := range features.GetRuntimeHandlers() {
		if !h.GetFeatures().GetRecursiveReadOnlyMounts() {
			t.Errorf("handler %q has no recursive read-only mounts", h.GetName())
		}
	}
}

// A container that mounts the machine's /sys sees all of it, with the machine's cgroups.
func TestMountOfSys(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	var root unix.Stat_t
	if err := unix.Stat("/sys/fs/cgroup", &root); err != nil {
		t.Fatal(err)
	}
	for _, handler := range []string{"runc", "crun"} {
		config := sh("stat -c '%d %i' /sys/fs/cgroup")
		config.Mounts = []*runtime.Mount{{ContainerPath: "/sys", HostPath: "/sys", Readonly: true}}
		c := m.run(handler).begin(config)
		c.wait()
		if got, want := c.text(), fmt.Sprintf("%d %d\n", root.Dev, root.Ino); got != want {
			t.Errorf("the folder of cgroups is %q under %s, and %q on the machine", got, handler, want)
		}
	}
}

// What a mount cannot be is refused when the container is created, with the field that is wrong.
func TestMountsThatAreRefused(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	private := t.TempDir()
	if err := unix.Mount("tmpfs", private, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(private, 0)
	if err := unix.Mount("", private, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	p := m.run("runc")
	for _, tt := range []struct {
		mount *runtime.Mount
		code  codes.Code
		says  string
	}{
		{&runtime.Mount{MountOptions: []string{"noexec", "suid"}}, codes.InvalidArgument, `mounts[0].mount_options: "suid"`},
		{&runtime.Mount{RecursiveReadOnly: true}, codes.InvalidArgument, "mounts[0].recursive_read_only: needs readonly"},
		{&runtime.Mount{RecursiveReadOnly: true, Readonly: true, Propagation: runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}, codes.InvalidArgument, "mounts[0].recursive_read_only: needs propagation PRIVATE"},
		{&runtime.Mount{RecursiveReadOnly: true, Readonly: true, Propagation: runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL}, codes.InvalidArgument, "mounts[0].recursive_read_only: needs propagation PRIVATE"},
		{&runtime.Mount{Propagation: runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL}, codes.FailedPrecondition, "not on a shared mount"},
		{&runtime.Mount{Propagation: runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}, codes.FailedPrecondition, "neither a shared nor a slave mount"},
		{&runtime.Mount{ContainerPath: "/"}, codes.InvalidArgument, "mounts[0].container_path"},
		{&runtime.Mount{UidMappings: ownUsers().Uids, GidMappings: ownUsers().Gids}, codes.InvalidArgument, "no user namespace of its own"},
	} {
		config := sh("true")
		mount := tt.mount
		if mount.HostPath = private; mount.ContainerPath == "" {
			mount.ContainerPath = "/v"
		}
		config.Mounts = []*runtime.Mount{mount}
		if _, err := p.tryCreate(config); grpcstatus.Code(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v; want %s that says %q", err, tt.code, tt.says)
		}
	}
}
