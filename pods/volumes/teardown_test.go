package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/host/mount"
)

func TestTearDownWithMounts(t *testing.T) {
	n := newNode(t)
	n.secret("s", map[string]string{"k": "v"})
	pod := podWith(emptyDir("e"), volume("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
	n.setUp(pod)
	n.mounts(pod, container(corev1.VolumeMount{Name: "e", MountPath: "/a", SubPath: "x"}), MountInput{}) // never released
	outside := filepath.Join(n.root, "outside")
	e := n.path("volumes/e")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(outside, "inner"), 0o755), os.MkdirAll(filepath.Join(e, "a/b c"), 0o755),
		unix.Mount(outside, filepath.Join(e, "a/b c"), "", unix.MS_BIND, ""),
		unix.Mount(outside, filepath.Join(e, "a/b c/inner"), "", unix.MS_BIND, ""),
		unix.Mount(outside, e, "", unix.MS_BIND, ""), // over the volume itself
		unix.Mount(outside, n.memory("s"), "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(outside, "kept"), "kept")
	write(t, filepath.Join(n.root, "pods", "agent"), "")
	for range 2 {
		if err := n.TearDown(uid); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, filepath.Join(outside, "kept")) != "kept" || !exists(filepath.Join(outside, "inner")) {
		t.Error("deleted through a mount")
	}
	if mounts, _ := mount.Below(n.root); len(mounts) != 1 || exists(n.path()) || exists(n.memory()) {
		t.Errorf("left: %v", mounts)
	}
}

func TestTearDownOfHostileTrees(t *testing.T) {
	n := newNode(t)
	n.setUp(podWith(emptyDir("e")))
	dir, outside := n.path("volumes/e"), filepath.Join(n.root, "outside")
	if err := errors.Join(
		os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "kept"), nil, 0o644),
		os.Symlink(outside, filepath.Join(dir, "link")), unix.Mknod(filepath.Join(dir, "pipe"), unix.S_IFIFO|0o600, 0),
		unix.Mknod(filepath.Join(dir, "device"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))),
		os.Mkdir(filepath.Join(dir, "locked"), 0), os.Link(filepath.Join(outside, "kept"), filepath.Join(dir, "hard")),
	); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		write(t, filepath.Join(dir, fmt.Sprintf("%d\n\xff", i)), "")
	}
	if err := n.TearDown(uid); err != nil || exists(n.path()) || !exists(filepath.Join(outside, "kept")) {
		t.Errorf("%v", err)
	}
}

func TestTearDownKeepsRecord(t *testing.T) {
	n := newNode(t)
	n.setUp(podWith(emptyDir("e")))
	write(t, n.path("pod.json"), "{}")
	if _, err := n.WriteHosts(uid, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.TerminationLog(uid, "app", 0); err != nil {
		t.Fatal(err)
	}
	if err := n.TearDown(uid); err != nil {
		t.Fatal(err)
	}
	if got := list(t, n.path()); got != "pod.json 644 0 0 \"{}\"\n" {
		t.Errorf("left:\n%s", got)
	}
}

func TestSweep(t *testing.T) { // GC4
	n := newNode(t)
	const recorded = "99999999-2222-4333-8444-555555555555"
	pod := podWith(emptyDir("e"), volume("m", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}))
	for _, id := range []string{uid, otherUID, recorded} {
		pod.UID = types.UID(id)
		n.setUp(pod)
	}
	n.claim("db")
	write(t, filepath.Join(n.options.Dir, recorded, "pod.json"), "{}")
	// Only in memory; and names that are not those of pods.
	only := "00000000-0000-4000-8000-000000000000"
	for _, dir := range []string{filepath.Join(n.options.Memory, only), filepath.Join(n.options.Dir, "manifests"), filepath.Join(n.options.Dir, "broken/x"), filepath.Join(n.options.Memory, "other")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Sweep(func(pod types.UID) bool { return string(pod) == uid }); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		n.path("volumes/e"): true, n.memory("m"): true,
		filepath.Join(n.options.Dir, otherUID): false, filepath.Join(n.options.Memory, otherUID): false,
		filepath.Join(n.options.Memory, only):               false,
		filepath.Join(n.options.Dir, recorded, "volumes/e"): true,
		filepath.Join(n.options.Dir, "manifests"):           true,
		filepath.Join(n.options.Dir, "broken/x"):            true,
		filepath.Join(n.options.Memory, "other"):            true,
		n.options.Claims:                                    true,
	} {
		if exists(path) != want {
			t.Errorf("%s is there: %v", path, !want)
		}
	}
	if log := n.log.String(); !strings.Contains(log, "volumes of deleted pod removed") || !strings.Contains(log, recorded) {
		t.Errorf("log:\n%s", log)
	}
}

func TestHosts(t *testing.T) { // VO25
	n := newNode(t)
	path, err := n.WriteHosts(uid, []byte("1"))
	if err != nil || path != n.path("hosts") || stat(t, path) != "644 0 0" || read(t, path) != "1" {
		t.Fatalf("%s, %v", path, err)
	}
	inode := func() uint64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	before := inode()
	if _, err := n.WriteHosts(uid, []byte("1")); err != nil || inode() != before {
		t.Errorf("the same content was written again: %v", err)
	}
	write(t, path, "changed by a container")
	if _, err := n.WriteHosts(uid, []byte("1")); err != nil || read(t, path) != "1" {
		t.Errorf("%v", err)
	}
}

func TestTermination(t *testing.T) { // DL3, DL4
	n := newNode(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	first, err := n.TerminationLog(uid, "app", 0)
	if err != nil || first != n.path("containers/app/0") || stat(t, first) != "666 0 0" {
		t.Fatalf("%s, %v", first, err)
	}
	if got, err := ReadTermination(first); got != "" || err != nil {
		t.Errorf("empty: %q, %v", got, err)
	}
	second, err := n.TerminationLog(uid, "app", 1)
	if err != nil || second == first {
		t.Errorf("two attempts have one file: %v", err)
	}
	write(t, first, strings.Repeat("a", 904)+strings.Repeat("b", 4096))
	if _, err := n.TerminationLog(uid, "app", 0); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadTermination(first); got != strings.Repeat("b", 4096) || err != nil {
		t.Errorf("5000 bytes: %d, %v", len(got), err)
	}
	if _, err := ReadTermination(n.path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	pipe := filepath.Join(n.root, "pipe")
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTermination(pipe); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("pipe: %v", err)
	}
	if err := os.Truncate(second, 1<<40); err != nil { // a sparse file is not read as a whole
		t.Fatal(err)
	}
	if got, err := ReadTermination(second); len(got) != 4096 || err != nil {
		t.Errorf("1 TiB: %d, %v", len(got), err)
	}
}

func TestLogEnd(t *testing.T) { // DL5
	line := func(stream, tag, text string) string {
		return "2026-11-22T14:00:00.000000000Z " + stream + " " + tag + " " + text + "\n"
	}
	var hundred, wanted strings.Builder
	for i := range 100 {
		hundred.WriteString(line("stdout", "F", fmt.Sprintf("line %d", i)))
		if i >= 20 {
			fmt.Fprintf(&wanted, "line %d\n", i)
		}
	}
	long := strings.Repeat("x", 16<<10)
	path := filepath.Join(t.TempDir(), "0.log")
	for _, c := range []struct{ what, log, want string }{
		{"empty", "", ""},
		{"one", line("stderr", "F", "a b  c"), "a b  c\n"},
		{"both streams", line("stdout", "F", "a") + line("stderr", "F", "b"), "a\nb\n"},
		{"a line in parts", line("stdout", "P", "a") + line("stdout", "F", "b"), "ab\n"},
		{"eighty lines", hundred.String(), wanted.String()},
		{"its last 2048 bytes", line("stdout", "F", strings.Repeat("a", 3000)+strings.Repeat("b", 2047)), strings.Repeat("b", 2047) + "\n"},
		{"far more than is read", strings.Repeat(line("stdout", "P", long), 50) + line("stdout", "F", "end"), strings.Repeat("x", 2044) + "end\n"},
		{"cut off", line("stdout", "F", "a") + "2026-11-22T14:00:00.0Z stdout F b", "a\nb"},
		{"no log", "garbage\n" + line("stdout", "F", "a"), "a\n"},
		{"no lines", strings.Repeat("y", 1<<20), ""},
	} {
		write(t, path, c.log)
		if got, err := ReadLogEnd(path); got != c.want || err != nil {
			t.Errorf("%s: %d bytes %.100q, %v, want %d bytes %.100q", c.what, len(got), got, err, len(c.want), c.want)
		}
	}
	if _, err := ReadLogEnd(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}
