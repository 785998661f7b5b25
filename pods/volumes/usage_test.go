package volumes

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/tests/disk"
)

func all(*corev1.Volume) bool { return true }

func TestUsage(t *testing.T) { // VO5
	n := newNode(t)
	pod := podWith(emptyDir("e"), volume("m", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		volume("h", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}))
	if uses, err := n.Usage(t.Context(), pod, all); err != nil || len(uses) != 0 {
		t.Errorf("before SetUp: %v, %v", uses, err)
	}
	n.setUp(pod)
	dir, outside := n.path("volumes/e"), filepath.Join(n.root, "outside")
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "d"), 0o755), os.Mkdir(filepath.Join(dir, "mounted"), 0o755), os.Mkdir(outside, 0o755),
		os.WriteFile(filepath.Join(dir, "d/f"), make([]byte, 1<<20), 0o644), os.WriteFile(filepath.Join(outside, "big"), make([]byte, 8<<20), 0o644),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o644),
		os.Link(filepath.Join(dir, "d/f"), filepath.Join(dir, "again")), os.Symlink(outside, filepath.Join(dir, "link")),
		unix.Mknod(filepath.Join(dir, "pipe"), unix.S_IFIFO|0o600, 0),
		unix.Mknod(filepath.Join(dir, "zero"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))),
		unix.Mount(outside, filepath.Join(dir, "mounted"), "", unix.MS_BIND, ""),
		unix.Mount(filepath.Join(outside, "big"), filepath.Join(dir, "file"), "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	uses, err := n.Usage(t.Context(), pod, all)
	use := uses["e"]
	// The folder, d, f, link, pipe, zero.
	if err != nil || len(uses) != 1 || use.Partial || use.Inodes != 6 || use.Bytes < 1<<20 || use.Bytes > 1<<20+64<<10 {
		t.Errorf("%+v, %v", uses, err)
	}
	if uses, err := n.Usage(t.Context(), pod, func(*corev1.Volume) bool { return false }); err != nil || len(uses) != 0 {
		t.Errorf("measured what nobody asked for: %v, %v", uses, err)
	}
	if err := unix.Fchdir(openDirectory(t, dir)); err != nil {
		t.Fatal(err)
	}
	defer os.Chdir("/")
	for range 3000 { // far beyond the longest path
		if err := errors.Join(unix.Mkdir("deep", 0o755), unix.Chdir("deep")); err != nil {
			t.Fatal(err)
		}
	}
	// What lies deep counts: it would be a way around the limit.
	if use, err := space.Used(t.Context(), dir); err != nil || use.Partial || use.Inodes != 6+3000 {
		t.Errorf("deep tree: %+v, %v", use, err)
	}
	if err := n.TearDown(uid); err != nil || exists(n.path()) {
		t.Errorf("TearDown of a deep tree: %v", err)
	}
	if !exists(filepath.Join(outside, "big")) {
		t.Error("deleted through a mount")
	}
}

func openDirectory(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestUsageIsNotMeasuredAllTheTime(t *testing.T) {
	n := newNode(t)
	pod := podWith(emptyDir("e"))
	n.setUp(pod)
	now := time.Unix(1000, 0)
	n.Manager.usage.now = func() time.Time { // each look takes a second
		now = now.Add(time.Second)
		return now
	}
	inodes := func() int64 {
		t.Helper()
		uses, err := n.Usage(t.Context(), pod, all)
		if err != nil {
			t.Fatal(err)
		}
		return uses["e"].Inodes
	}
	if got := inodes(); got != 1 {
		t.Fatal(got)
	}
	write(t, n.path("volumes/e/f"), "")
	now = now.Add(8 * time.Second)
	if got := inodes(); got != 1 {
		t.Errorf("measured again after 9 seconds: %d", got)
	}
	if got := inodes(); got != 2 {
		t.Errorf("not measured again after 10 seconds: %d", got)
	}
}

// The folder of an emptyDir is a project of its own where the file system has them, for a pod with
// users of its own: others could take their files out of it.
func TestUsageByProject(t *testing.T) { // VO5
	n := newNode(t)
	n.options.Dir = filepath.Join(disk.WithProjects(t, t.TempDir(), 64), "pods")
	n.Manager = n.manager()
	for _, own := range []bool{true, false} {
		pod := podWith(emptyDir("e"))
		pod.Spec.HostUsers = ptr(!own)
		n.setUp(pod)
		dir := filepath.Join(n.options.Dir, uid, "volumes/e")
		write(t, filepath.Join(dir, "f"), "content")
		open, err := os.Open(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(open.Name()); err != nil {
			t.Fatal(err)
		}
		want := int64(1) // by a walk
		if own {
			want = 2 // what is deleted and open counts
		}
		if uses, err := n.Usage(t.Context(), pod, all); err != nil || uses["e"].Inodes != want {
			t.Errorf("own users %t: %+v, %v", own, uses, err)
		}
		if err := errors.Join(open.Close(), n.TearDown(uid)); err != nil {
			t.Fatal(err)
		}
	}
}
