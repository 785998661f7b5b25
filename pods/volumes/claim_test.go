package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/volumes/tree"
)

func claimVolume(claim string) corev1.Volume {
	return volume("data", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}

func (n *node) claim(name string, modes ...corev1.PersistentVolumeAccessMode) string {
	n.objects.claims["default/"+name] = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes}}
	return filepath.Join(n.options.Claims, "default", name)
}

func TestClaim(t *testing.T) { // VO17
	n := newNode(t)
	pod := podWith(claimVolume("db"))
	if err := n.SetUp(t.Context(), pod); !errdefs.IsNotFound(err) || !strings.HasSuffix(err.Error(), `persistentvolumeclaim "db" not found`) {
		t.Errorf("missing claim: %v", err)
	}
	dir := n.claim("db", corev1.ReadWriteOnce)
	n.setUp(pod)
	if got := stat(t, dir); got != "777 0 0" {
		t.Errorf("claim: %s", got)
	}
	write(t, filepath.Join(dir, "f"), "kept")
	if err := n.ClaimUnused("default", "db"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a claim that a pod uses is unused: %v", err)
	}
	if err := n.ClaimUnused("default", "other"); err != nil {
		t.Errorf("a claim that nobody uses: %v", err)
	}
	if err := n.RemoveClaim("default", "db"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("removal of a claim that is used: %v", err)
	}
	if err := n.TearDown(uid); err != nil {
		t.Fatal(err)
	}
	if exists(n.path()) || read(t, filepath.Join(dir, "f")) != "kept" {
		t.Error("the claim did not outlive its pod")
	}
	// Somebody has mounted a disk there.
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveClaim("default", "db"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "unmount it first") {
		t.Errorf("removal of a claim that is a mount point: %v", err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.RemoveClaim("default", "db"); err != nil || exists(dir) {
			t.Errorf("removal: %v", err)
		}
	}
	for _, bad := range []string{"", "..", "../x", "a/b"} {
		if err := n.RemoveClaim("default", bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("removal of %q: %v", bad, err)
		}
		if err := n.RemoveClaim(bad, "db"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("removal in namespace %q: %v", bad, err)
		}
	}
	n.claim("block")
	n.objects.claims["default/block"].Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
	if err := n.SetUp(t.Context(), podWith(claimVolume("block"))); !errdefs.IsInvalidArgument(err) {
		t.Errorf("volumeMode Block: %v", err)
	}
}

func TestClaimOfOnePod(t *testing.T) { // VO17
	n := newNode(t)
	n.claim("db", corev1.ReadWriteOncePod)
	first, second := podWith(claimVolume("db")), podWith(claimVolume("db"))
	second.UID = types.UID(otherUID)
	n.setUp(first)
	n.Manager = n.manager() // who uses it is on disk
	n.setUp(first)
	n.options.Name = func(id types.UID) (name types.NamespacedName) {
		if id == types.UID(uid) {
			name = types.NamespacedName{Namespace: "default", Name: "web"}
		}
		return name
	}
	if err := n.manager().SetUp(t.Context(), second); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), `pod "default/web" uses it`) {
		t.Errorf("second pod: %v", err)
	}
	if err := n.manager().ClaimUnused("default", "db"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), `pod "default/web" uses it`) {
		t.Errorf("claim in use: %v", err)
	}
	if err := n.SetUp(t.Context(), second); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), uid) {
		t.Errorf("second pod: %v", err)
	}
	if err := n.TearDown(uid); err != nil {
		t.Fatal(err)
	}
	n.setUp(second)
	n.claim("many", corev1.ReadWriteMany)
	first, second = podWith(claimVolume("many")), podWith(claimVolume("many"))
	second.UID = types.UID(otherUID)
	if err := n.TearDown(otherUID); err != nil {
		t.Fatal(err)
	}
	n.setUp(first)
	n.setUp(second)
}

func TestClaimGroup(t *testing.T) { // VO21
	n := newNode(t)
	dir := n.claim("db")
	outside := filepath.Join(n.root, "outside")
	for _, d := range []string{dir, filepath.Join(dir, "d"), outside, filepath.Join(dir, "mounted")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"f", "d/inner"} {
		write(t, filepath.Join(dir, f), "")
	}
	write(t, filepath.Join(outside, "f"), "")
	steps := errors.Join(
		os.Chmod(filepath.Join(dir, "f"), 0o4701|os.ModeSetuid),
		os.Chown(filepath.Join(dir, "d/inner"), 5, 6),
		os.Symlink(filepath.Join(outside, "f"), filepath.Join(dir, "link")),
		os.Symlink(outside, filepath.Join(dir, "folder-link")),
		unix.Mknod(filepath.Join(dir, "pipe"), unix.S_IFIFO|0o600, 0),
		unix.Mount(outside, filepath.Join(dir, "mounted"), "", unix.MS_BIND, ""),
	)
	if steps != nil {
		t.Fatal(steps)
	}
	pod := withGroup(podWith(claimVolume("db")), 2000)
	check := func(what string, want map[string]string) {
		t.Helper()
		for name, want := range want {
			if got := stat(t, filepath.Join(dir, name)); got != want {
				t.Errorf("%s: %s: %s, want %s", what, name, got, want)
			}
		}
	}
	n.setUp(pod)
	given := map[string]string{
		".": "2775 0 2000", "f": "4761 0 2000", "d": "2775 0 2000", "d/inner": "664 5 2000",
		"link": "777 0 2000", "folder-link": "777 0 2000", "pipe": "660 0 2000",
		"../../../../outside": "755 0 0", "../../../../outside/f": "644 0 0",
	}
	check("Always", given)
	reset := func() {
		t.Helper()
		if err := errors.Join(os.Chown(filepath.Join(dir, "f"), 0, 0), os.Chmod(filepath.Join(dir, "f"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	reset()
	pod.Spec.SecurityContext.FSGroupChangePolicy = ptr(corev1.FSGroupChangeOnRootMismatch)
	n.setUp(pod)
	check("OnRootMismatch, root matches", map[string]string{"f": "600 0 0"})
	for _, mismatch := range []func() error{
		func() error { return os.Chown(dir, 0, 1) },
		func() error { return os.Chmod(dir, 0o770) },
		func() error { return unix.Chmod(dir, 0o2755) },
	} {
		reset()
		if err := mismatch(); err != nil {
			t.Fatal(err)
		}
		n.setUp(pod)
		check("OnRootMismatch, root differs", map[string]string{"f": "660 0 2000"})
	}
	// A read-only use changes nothing, and what is interrupted does not look finished.
	if err := os.Chown(dir, 0, 1); err != nil {
		t.Fatal(err)
	}
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	n.setUp(pod)
	check("readOnly", map[string]string{".": "2775 0 1"})
	interrupted, stop := context.WithCancel(t.Context())
	stop()
	if err := (tree.Group{Set: true, ID: 2000}).Give(interrupted, dir, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	check("interrupted", map[string]string{".": "2775 0 1"})
	deep := dir
	for i := range 129 {
		deep = filepath.Join(deep, fmt.Sprint(i))
		if err := os.Mkdir(deep, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = false
	if err := n.SetUp(t.Context(), pod); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "nested more than 128 deep") {
		t.Errorf("deep tree: %v", err)
	}
	bad := withGroup(podWith(emptyDir("x")), 1<<31)
	if err := n.SetUp(t.Context(), bad); !errdefs.IsInvalidArgument(err) {
		t.Errorf("fsGroup 2147483648: %v", err)
	}
}
