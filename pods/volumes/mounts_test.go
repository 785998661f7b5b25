package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/mount"
)

func container(mounts ...corev1.VolumeMount) *corev1.Container {
	return &corev1.Container{Name: "app", VolumeMounts: mounts}
}

func (n *node) mounts(pod *corev1.Pod, c *corev1.Container, in MountInput) ([]*runtime.Mount, func()) {
	n.t.Helper()
	list, release, err := n.Mounts(pod, c, in)
	if err != nil {
		n.t.Fatal(err)
	}
	return list, release
}

func TestMounts(t *testing.T) { // VO10, VO14, VO18, VO19, VO20
	n := newNode(t)
	n.configMap("c", map[string]string{"a": "1"})
	n.secret("s", nil)
	claimDir := n.claim("db")
	pod := podWith(
		emptyDir("disk"),
		volume("memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		volume("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}),
		volume("conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}),
		volume("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		claimVolume("db"),
		volume("image", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "example.org/i:1"}}),
	)
	n.setUp(pod)
	privileged := &corev1.SecurityContext{Privileged: ptr(true)}
	for _, c := range []struct {
		vm       corev1.VolumeMount
		security *corev1.SecurityContext
		in       MountInput
		want     *runtime.Mount
		err      string
	}{
		{vm: corev1.VolumeMount{Name: "disk", MountPath: "/m"}, want: &runtime.Mount{HostPath: n.path("volumes/disk"), SelinuxRelabel: true}},
		{vm: corev1.VolumeMount{Name: "disk", MountPath: "/m", ReadOnly: true}, want: &runtime.Mount{HostPath: n.path("volumes/disk"), SelinuxRelabel: true, Readonly: true}},
		{vm: corev1.VolumeMount{Name: "memory", MountPath: "/m"}, want: &runtime.Mount{HostPath: n.memory("memory"), SelinuxRelabel: true}},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m"}, want: &runtime.Mount{HostPath: "/srv"}},
		{vm: corev1.VolumeMount{Name: "conf", MountPath: "/m"}, want: &runtime.Mount{HostPath: n.path("volumes/conf"), SelinuxRelabel: true, Readonly: true}},
		{vm: corev1.VolumeMount{Name: "secret", MountPath: "/m"}, want: &runtime.Mount{HostPath: n.memory("secret"), SelinuxRelabel: true, Readonly: true}},
		{vm: corev1.VolumeMount{Name: "data", MountPath: "/m"}, want: &runtime.Mount{HostPath: claimDir, SelinuxRelabel: true}},
		{vm: corev1.VolumeMount{Name: "image", MountPath: "/m", SubPath: "a/b"}, in: MountInput{UserNamespace: 65536},
			want: &runtime.Mount{Readonly: true, Image: &runtime.ImageSpec{Image: "example.org/i:1", UserSpecifiedImage: "example.org/i:1"}, ImageSubPath: "a/b"}},
		{vm: corev1.VolumeMount{Name: "image", MountPath: "/m"}, in: MountInput{Images: map[string]*runtime.ImageSpec{"image": {Image: "sha256:1"}}},
			want: &runtime.Mount{Readonly: true, Image: &runtime.ImageSpec{Image: "sha256:1"}}},
		{vm: corev1.VolumeMount{Name: "image", MountPath: "/m", SubPath: "../x"}, err: "not a relative path"},
		{vm: corev1.VolumeMount{Name: "image", MountPath: "/m", BindMountOptions: []string{"noexec"}}, err: "image volumes have none"},
		{vm: corev1.VolumeMount{Name: "disk", MountPath: "/m", BindMountOptions: []string{"noexec", "nodev"}}, want: &runtime.Mount{HostPath: n.path("volumes/disk"), SelinuxRelabel: true, MountOptions: []string{"noexec", "nodev"}}},
		{vm: corev1.VolumeMount{Name: "disk", MountPath: "/m", BindMountOptions: []string{"suid"}}, err: `"suid" is not one of`},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m"}, in: MountInput{UserNamespace: 131072}, want: &runtime.Mount{HostPath: "/srv",
			UidMappings: []*runtime.IDMapping{{HostId: 131072, Length: 65536}}, GidMappings: []*runtime.IDMapping{{HostId: 131072, Length: 65536}}}},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", MountPropagation: ptr(corev1.MountPropagationHostToContainer)},
			want: &runtime.Mount{HostPath: "/srv", Propagation: runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", MountPropagation: ptr(corev1.MountPropagationBidirectional)}, err: "only to privileged containers"},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", MountPropagation: ptr(corev1.MountPropagationBidirectional)}, security: privileged,
			want: &runtime.Mount{HostPath: "/srv", Propagation: runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL}},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", MountPropagation: ptr(corev1.MountPropagationMode("X"))}, err: `"X" is not supported`},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled)}, in: MountInput{RecursiveReadOnly: true},
			want: &runtime.Mount{HostPath: "/srv", Readonly: true, RecursiveReadOnly: true}},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled)},
			err: `volume "host" requested recursive read-only mode, but it is not supported by the runtime`},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyIfPossible)}, want: &runtime.Mount{HostPath: "/srv", Readonly: true}},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyIfPossible)}, in: MountInput{RecursiveReadOnly: true}, err: "is not read-only"},
		{vm: corev1.VolumeMount{Name: "host", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyEnabled), MountPropagation: ptr(corev1.MountPropagationHostToContainer)},
			in: MountInput{RecursiveReadOnly: true}, err: "not compatible with propagation"},
		{vm: corev1.VolumeMount{Name: "none", MountPath: "/m"}, err: "the pod has no such volume"},
	} {
		app := container(c.vm)
		app.SecurityContext = c.security
		list, _, err := n.Mounts(pod, app, c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || !errdefs.IsInvalidArgument(err) {
				t.Errorf("%v: %v, want %q", c.vm, err, c.err)
			}
			continue
		}
		c.want.ContainerPath = "/m"
		if err != nil || len(list) != 1 || list[0].String() != c.want.String() {
			t.Errorf("%v: got\n%v, %v, want\n%v", c.vm, list, err, c.want)
		}
	}
	app := container()
	app.VolumeDevices = []corev1.VolumeDevice{{Name: "data"}}
	if _, _, err := n.Mounts(pod, app, MountInput{}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "hostPath with type BlockDevice") { // VO24
		t.Errorf("volumeDevices: %v", err)
	}
}

func TestSubPath(t *testing.T) { // VO15
	n := newNode(t)
	pod := withGroup(podWith(emptyDir("e")), 2000)
	n.setUp(pod)
	dir := n.path("volumes/e")
	old := unix.Umask(0o077)
	list, release := n.mounts(pod, container(corev1.VolumeMount{Name: "e", MountPath: "/a", SubPath: "x/./y"}), MountInput{})
	unix.Umask(old)
	for _, name := range []string{"x", "x/y"} {
		if got := stat(t, filepath.Join(dir, name)); got != "2777 0 2000" {
			t.Errorf("%s: %s", name, got)
		}
	}
	at := list[0].HostPath
	if !strings.HasPrefix(at, n.path("subpaths/app/")) {
		t.Errorf("place: %s", at)
	}
	write(t, filepath.Join(at, "f"), "1")
	if read(t, filepath.Join(dir, "x/y/f")) != "1" {
		t.Error("the place is not the subPath's")
	}
	// The next attempt, after the release of this one was lost; then a late release.
	n.Manager = n.manager()
	next, nextRelease := n.mounts(pod, container(corev1.VolumeMount{Name: "e", MountPath: "/a", SubPath: "x/y/f"}), MountInput{})
	if exists(at) || read(t, next[0].HostPath) != "1" {
		t.Error("the place of the earlier attempt is left")
	}
	release()
	if read(t, next[0].HostPath) != "1" {
		t.Error("a late release took the place of the next attempt")
	}
	nextRelease()
	if exists(n.path("subpaths")) {
		t.Error("a place is left after the release")
	}
	if read(t, filepath.Join(dir, "x/y/f")) != "1" {
		t.Error("the release deleted through a mount")
	}
	if n.log.Len() > 0 {
		t.Errorf("log: %s", n.log)
	}
}

func TestSubPathRefusals(t *testing.T) { // VO15
	n := newNode(t)
	n.configMap("c", map[string]string{"a": "1"})
	pod := podWith(emptyDir("e"), configMapVolume(&corev1.ConfigMapVolumeSource{}, "c"))
	n.setUp(pod)
	dir, outside := n.path("volumes/e"), filepath.Join(n.root, "outside")
	if err := errors.Join(
		os.Mkdir(outside, 0o755), os.Mkdir(filepath.Join(dir, "in"), 0o755),
		os.Symlink(outside, filepath.Join(dir, "absolute")), os.Symlink("../../../../outside", filepath.Join(dir, "relative")),
		os.Symlink("in", filepath.Join(dir, "inner")), os.Symlink("nowhere", filepath.Join(dir, "dangling")),
		os.Symlink("loop", filepath.Join(dir, "loop")), os.Symlink("/proc/self/root", filepath.Join(dir, "magic")),
		unix.Mknod(filepath.Join(dir, "pipe"), unix.S_IFIFO|0o600, 0),
	); err != nil {
		t.Fatal(err)
	}
	for subPath, want := range map[string]string{
		"absolute": "leads out of the volume", "relative": "leads out of the volume", "absolute/new": "leads out of the volume",
		"relative/new/x": "leads out of the volume", "magic/etc": "leads out of the volume",
		"..": "not a relative path", "a/../../b": "not a relative path", "/etc": "not a relative path", "in/..": "not a relative path",
		"a\x00b": "not a relative path", "dangling": "no such file", "loop": "too many levels", "pipe/x": "not a directory",
	} {
		_, _, err := n.Mounts(pod, container(corev1.VolumeMount{Name: "e", MountPath: "/a", SubPath: subPath}), MountInput{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `volumeMount "e" of container "app"`) {
			t.Errorf("%q: %v, want %q", subPath, err, want)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Error("something was made outside")
	}
	if mounts, _ := mount.Below(n.path()); len(mounts) > 0 || exists(n.path("subpaths/app/0")) {
		t.Errorf("mounts are left after refusals: %v", mounts)
	}
	for _, good := range []string{"inner", "inner/new", "pipe"} { // a link inside, and what is no file
		_, release := n.mounts(pod, container(corev1.VolumeMount{Name: "e", MountPath: "/a", SubPath: good}), MountInput{})
		release()
	}
	// VO11: a key as a file keeps its content; one that is not there is not made.
	list, release := n.mounts(pod, container(corev1.VolumeMount{Name: "v", MountPath: "/a", SubPath: "a"}), MountInput{})
	n.configMap("c", map[string]string{"a": "2"})
	if _, err := n.Refresh(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if read(t, list[0].HostPath) != "1" || read(t, n.path("volumes/v/a")) != "2" || !list[0].Readonly {
		t.Error("a subPath mount changed with its object")
	}
	release()
	_, _, err := n.Mounts(pod, container(corev1.VolumeMount{Name: "v", MountPath: "/a", SubPath: "none"}), MountInput{})
	if !errdefs.IsNotFound(err) || exists(n.path("volumes/v/none")) {
		t.Errorf("missing key: %v", err)
	}
}

func TestSubPathExpr(t *testing.T) { // VO16
	n := newNode(t)
	pod := podWith(emptyDir("e"))
	n.setUp(pod)
	for expr, want := range map[string]string{
		"$(POD)/x":      "web/x",
		"$$(POD)":       "$(POD)",
		"a$b$":          "a$b$",
		"$(POD":         "$(POD",
		"$(UP)/x":       "!not a relative path",
		"$(NO)$(EMPTY)": "!missing value for EMPTY, NO",
	} {
		vm := corev1.VolumeMount{Name: "e", MountPath: "/a", SubPathExpr: expr}
		list, release, err := n.Mounts(pod, container(vm), MountInput{Environment: map[string]string{"POD": "web", "UP": "..", "EMPTY": ""}})
		if text, bad := strings.CutPrefix(want, "!"); bad {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), text) {
				t.Errorf("%q: %v, want %q", expr, err, text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		write(t, filepath.Join(list[0].HostPath, "f"), "")
		if !exists(n.path("volumes/e", want, "f")) {
			t.Errorf("%q is not %q", expr, want)
		}
		release()
	}
	both := corev1.VolumeMount{Name: "e", MountPath: "/a", SubPathExpr: "a", SubPath: "b"}
	if _, _, err := n.Mounts(pod, container(both), MountInput{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("subPath and subPathExpr: %v", err)
	}
}

// TestSubPathSwap has a container exchange a folder and a link that leads out, all the time.
func TestSubPathSwap(t *testing.T) { // VO15
	n := newNode(t)
	pod := podWith(emptyDir("e"))
	n.setUp(pod)
	dir, outside := n.path("volumes/e"), filepath.Join(n.root, "outside")
	if err := errors.Join(
		os.Mkdir(outside, 0o755), os.Mkdir(filepath.Join(outside, "y"), 0o755), os.MkdirAll(filepath.Join(dir, "x/y"), 0o755),
		os.Symlink(outside, filepath.Join(dir, "link")),
	); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(outside, "y/secret"), "")
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "x"), unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	good, refused := 0, 0
	for i := 0; i < 500 || good == 0 || refused == 0; i++ {
		if i == 20000 {
			t.Fatalf("%d good, %d refused", good, refused)
		}
		sub := "x/y"
		if i%2 == 1 {
			sub = fmt.Sprintf("x/new%d", i)
		}
		list, release, err := n.Mounts(pod, container(corev1.VolumeMount{Name: "e", MountPath: "/a", SubPath: sub}), MountInput{})
		if err != nil {
			refused++
			continue
		}
		good++
		if exists(filepath.Join(list[0].HostPath, "secret")) {
			t.Error("the container got what is outside of its volume")
		}
		release()
	}
	close(done)
	<-stopped
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("folders were made outside: %v", entries)
	}
}
