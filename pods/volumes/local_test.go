package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/host/mount"
)

func TestEmptyDir(t *testing.T) { // VO2, VO3, VO21
	n := newNode(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct {
		name  string
		mode  *int32
		group *int64
		want  string
	}{
		{"default", nil, nil, "777 0 0"},
		{"mode", ptr[int32](0o750), nil, "750 0 0"},
		{"sticky", ptr[int32](0o1777), nil, "1777 0 0"},
		{"group", nil, ptr[int64](2000), "2777 0 2000"},
		{"group-mode", ptr[int32](0o700), ptr[int64](2000), "2770 0 2000"},
	} {
		v := volume(c.name, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: c.mode}})
		pod := podWith(v, volume("none", corev1.VolumeSource{}))
		if c.group != nil {
			withGroup(pod, *c.group)
		}
		n.setUp(pod)
		dir := n.path("volumes", c.name)
		if got := stat(t, dir); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		// What the application makes of it stays, over restarts too.
		write(t, filepath.Join(dir, "f"), "kept")
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		n.Manager = n.manager()
		n.setUp(pod)
		if got := stat(t, dir); !strings.HasPrefix(got, "711") || read(t, filepath.Join(dir, "f")) != "kept" {
			t.Errorf("%s after a restart: %s", c.name, got)
		}
	}
	if got := stat(t, n.path("volumes", "none")); got != "2777 0 2000" && got != "777 0 0" {
		t.Errorf("volume without a source: %s", got)
	}
	for _, bad := range []corev1.EmptyDirVolumeSource{{Mode: ptr[int32](0o2777)}, {Mode: ptr[int32](-1)}, {Medium: "HugePages-2Mi"}} {
		err := n.SetUp(t.Context(), podWith(volume("v", corev1.VolumeSource{EmptyDir: &bad})))
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestMemoryEmptyDir(t *testing.T) { // VO4
	n := newNode(t)
	limited := func(pod string, containers ...string) *corev1.Pod {
		p := podWith()
		for _, c := range containers {
			list := corev1.ResourceList{}
			if c != "" {
				list[corev1.ResourceMemory] = resource.MustParse(c)
			}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Limits: list}})
		}
		if pod != "" {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(pod)}}
		}
		return p
	}
	for i, c := range []struct {
		pod   *corev1.Pod
		limit string
		want  int64
	}{
		{limited("", ""), "", 64 << 20},             // what the node has
		{limited("", "8Mi", "4Mi"), "", 12 << 20},   // the pod's limit
		{limited("", "8Mi", ""), "", 64 << 20},      // it has none
		{limited("2Mi", "8Mi", ""), "", 2 << 20},    // its own
		{limited("", "8Mi", "4Mi"), "1Mi", 1 << 20}, // the volume's
		{limited("", "8Mi", "4Mi"), "1Gi", 12 << 20},
		{limited("", ""), "0", 64 << 20},
	} {
		name := fmt.Sprintf("v%d", i)
		e := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		if c.limit != "" {
			e.SizeLimit = ptr(resource.MustParse(c.limit))
		}
		c.pod.Spec.Volumes = []corev1.Volume{volume(name, corev1.VolumeSource{EmptyDir: e})}
		n.setUp(c.pod)
		var st unix.Statfs_t
		if err := unix.Statfs(n.memory(name), &st); err != nil {
			t.Fatal(err)
		}
		if got := int64(st.Blocks) * int64(st.Bsize); got != c.want || int64(st.Type) != unix.TMPFS_MAGIC {
			t.Errorf("%d: size %d, want %d", i, got, c.want)
		}
		if got := stat(t, n.memory(name)); got != "1777 0 0" {
			t.Errorf("%d: %s", i, got)
		}
	}
	v := volume("group", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
	pod := withGroup(podWith(v), 2000)
	n.setUp(pod)
	if got := stat(t, n.memory("group")); got != "3777 0 2000" {
		t.Errorf("with fsGroup: %s", got)
	}
	write(t, n.memory("group", "f"), "kept")
	n.Manager = n.manager()
	n.setUp(pod)
	if mounts, _ := mount.Below(n.memory("group")); len(mounts) != 1 || read(t, n.memory("group", "f")) != "kept" {
		t.Errorf("a second SetUp mounted again: %v", mounts)
	}
	if err := n.TearDown(uid); err != nil {
		t.Fatal(err)
	}
	if mounts, _ := mount.Below(n.options.Memory); len(mounts) != 1 || exists(n.memory()) || exists(n.path()) {
		t.Errorf("after TearDown: %v", mounts)
	}
}

func TestHostPath(t *testing.T) { // VO6
	n := newNode(t)
	dir := filepath.Join(n.root, "host")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "")
	for name, mode := range map[string]uint32{"socket": unix.S_IFSOCK, "pipe": unix.S_IFIFO} {
		if err := unix.Mknod(filepath.Join(dir, name), mode|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mknod(filepath.Join(dir, "char"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dir, "block"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))); err != nil {
		t.Fatal(err)
	}
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct {
		kind corev1.HostPathType
		name string
		want string // error, or mode
	}{
		{"", "missing", ""},
		{"Directory", ".", ""},
		{"Directory", "missing", "is not a directory"},
		{"Directory", "file", "is not a directory"},
		{"File", "file", ""},
		{"File", "pipe", "is not a file"},
		{"Socket", "socket", ""},
		{"Socket", "file", "is not a socket file"},
		{"CharDevice", "char", ""},
		{"CharDevice", "block", "is not a character device"},
		{"BlockDevice", "block", ""},
		{"BlockDevice", "char", "is not a block device"},
		{"DirectoryOrCreate", "new/inner", ""},
		{"DirectoryOrCreate", "new/inner", ""},
		{"DirectoryOrCreate", "file", "is not a directory"},
		{"FileOrCreate", "new/file", ""},
		{"FileOrCreate", "none/file", "no such file or directory"},
		{"FileOrCreate", "new", "is not a file"},
		{"Folder", "new", "Folder is an invalid volume type"},
	} {
		path := filepath.Join(dir, c.name)
		err := n.SetUp(t.Context(), podWith(volume("v", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &c.kind}})))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v, want %q", c.kind, c.name, err, c.want)
		}
	}
	for name, want := range map[string]string{"new": "755 0 0", "new/inner": "755 0 0", "new/file": "644 0 0"} {
		if got := stat(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, bad := range []string{"a", "/a/../b", ""} {
		err := n.SetUp(t.Context(), podWith(volume("v", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: bad}})))
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if exists(filepath.Join(dir, "missing")) {
		t.Error("a hostPath without a type was made")
	}
}
