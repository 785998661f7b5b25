package bundle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// userNamespace is the path of a user namespace whose users begin at 70000 and groups at 80000
// outside.
func userNamespace(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: 70000, Size: 65536}}, GidMappings: []syscall.SysProcIDMap{{HostID: 80000, Size: 65536}},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		cmd.Wait()
	})
	return fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid)
}

func owner(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}

func makeFile(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

func TestMappedRoot(t *testing.T) {
	needRoot(t)
	dir, layers, userns := t.TempDir(), t.TempDir(), userNamespace(t)
	makeFile(t, filepath.Join(layers, "1/fs/below"), 0, 0)
	makeFile(t, filepath.Join(layers, "2/fs/above"), 33, 44)
	upper, work := filepath.Join(layers, "3/fs"), filepath.Join(layers, "3/work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := Mount{Type: "overlay", Source: "overlay", Options: []string{
		"lowerdir=" + layers + "/2/fs:" + layers + "/1/fs", "upperdir=" + upper, "workdir=" + work, "uidmap=0:70000:65536", "gidmap=0:80000:65536",
	}}
	if _, err := MountRoot(dir, []Mount{m}, ""); !errdefs.IsNotImplemented(err) {
		t.Errorf("without a user namespace: %v", err)
	}
	root, err := MountRoot(dir, []Mount{m}, userns)
	if err != nil {
		t.Fatal(err)
	}
	if got := owner(t, filepath.Join(root, "below")) + " " + owner(t, filepath.Join(root, "above")); got != "70000:80000 70033:80044" {
		t.Errorf("owners %s", got)
	}
	makeFile(t, filepath.Join(root, "written"), 70001, 80001)
	if got := owner(t, filepath.Join(upper, "written")); got != "70001:80001" {
		t.Errorf("owner of what was written: %s", got)
	}
	if _, err := os.Lstat(filepath.Join(dir, MappedName)); !os.IsNotExist(err) {
		t.Errorf("the mapped layers are left: %v", err)
	}
	if err := UnmountRoot(dir); err != nil || mounted(t, dir) {
		t.Errorf("unmount: %v", err)
	}
}

func TestMappedVolumes(t *testing.T) {
	needRoot(t)
	dir, data, userns := t.TempDir(), t.TempDir(), userNamespace(t)
	makeFile(t, filepath.Join(data, "file"), 5, 6)
	ids := []specs.LinuxIDMapping{{HostID: 70000, Size: 65536}}
	spec := &specs.Spec{
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.UserNamespace, Path: userns}}},
		Mounts: []specs.Mount{
			{Destination: "/plain", Source: data},
			{Destination: "/folder", Source: data, Options: []string{"rbind"}, UIDMappings: ids, GIDMappings: ids},
			{Destination: "/file", Source: filepath.Join(data, "file"), UIDMappings: ids, GIDMappings: ids},
		},
	}
	if err := MapVolumes(dir, spec); err != nil {
		t.Fatal(err)
	}
	read, err := ReadSpec(dir)
	if err != nil {
		t.Fatal(err)
	}
	if read.Mounts[0].Source != data || read.Mounts[1].UIDMappings != nil {
		t.Errorf("%+v", read.Mounts)
	}
	for _, path := range []string{filepath.Join(read.Mounts[1].Source, "file"), read.Mounts[2].Source} {
		if got := owner(t, path); got != "70005:80006" {
			t.Errorf("%s belongs to %s", path, got)
		}
	}
	for range 2 {
		if err := UnmapVolumes(dir); err != nil || mounted(t, dir) {
			t.Errorf("unmap: %v", err)
		}
	}
	if _, err := os.Lstat(filepath.Join(data, "file")); err != nil {
		t.Errorf("the volume itself: %v", err)
	}
}

func TestMappedVolumeThatCannotBeLeavesNothing(t *testing.T) {
	needRoot(t)
	dir, userns := t.TempDir(), userNamespace(t)
	ids := []specs.LinuxIDMapping{{HostID: 70000, Size: 65536}}
	spec := &specs.Spec{
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.UserNamespace, Path: userns}}},
		Mounts: []specs.Mount{
			{Destination: "/a", Source: t.TempDir(), UIDMappings: ids},
			{Destination: "/b", Source: "/proc", UIDMappings: ids},
		},
	}
	if err := MapVolumes(dir, spec); !errdefs.IsNotImplemented(err) || mounted(t, dir) {
		t.Errorf("%v", err)
	}
}
