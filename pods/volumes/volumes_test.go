package volumes

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/host/mount"
)

const (
	uid      = "11111111-2222-4333-8444-555555555555"
	otherUID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
)

// objects are a node's, by kind/namespace/name.
type objects struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	claims     map[string]*corev1.PersistentVolumeClaim
}

func (o *objects) ConfigMap(ns, name string) (*corev1.ConfigMap, bool) {
	c, ok := o.configMaps[ns+"/"+name]
	return c, ok
}

func (o *objects) Secret(ns, name string) (*corev1.Secret, bool) {
	s, ok := o.secrets[ns+"/"+name]
	return s, ok
}

func (o *objects) Claim(ns, name string) (*corev1.PersistentVolumeClaim, bool) {
	c, ok := o.claims[ns+"/"+name]
	return c, ok
}

type node struct {
	*Manager
	t       *testing.T
	root    string
	objects *objects
	options Options
	log     *bytes.Buffer
}

// newNode makes a Manager with folders of its own. The test must run as root: it mounts.
func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("must run as root")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mount.DetachBelow(root); err != nil {
			t.Error(err)
		}
	})
	n := &node{t: t, root: root, log: &bytes.Buffer{}, objects: &objects{
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}, claims: map[string]*corev1.PersistentVolumeClaim{},
	}}
	n.options = Options{
		Dir: filepath.Join(root, "pods"), Memory: filepath.Join(root, "state/pods/volumes"), Claims: filepath.Join(root, "pods/claims"),
		Objects: n.objects,
		Field: func(pod *corev1.Pod, path string) (string, error) {
			if path == "metadata.labels" {
				var lines []string
				for k, v := range pod.Labels {
					lines = append(lines, fmt.Sprintf("%s=%q", k, v))
				}
				sort.Strings(lines)
				return strings.Join(lines, "\n"), nil
			}
			return "", fmt.Errorf("field %s: %w", path, errdefs.ErrInvalidArgument)
		},
		Resource: func(_ *corev1.Pod, ref *corev1.ResourceFieldSelector) (string, error) {
			return ref.ContainerName + ":" + ref.Resource, nil
		},
		Allocatable: 64 << 20,
		Logger:      slog.New(slog.NewTextHandler(n.log, nil)),
	}
	n.Manager = n.manager()
	return n
}

// manager is a new one, as after a restart of the daemon.
func (n *node) manager() *Manager {
	n.t.Helper()
	m, err := New(n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	return m
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.root, "pods", uid}, parts...)...)
}

func (n *node) memory(parts ...string) string {
	return filepath.Join(append([]string{n.root, "state/pods/volumes", uid}, parts...)...)
}

func (n *node) setUp(pod *corev1.Pod) {
	n.t.Helper()
	if err := n.SetUp(n.t.Context(), pod); err != nil {
		n.t.Fatal(err)
	}
}

func podWith(volumes ...corev1.Volume) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Volumes: volumes},
	}
}

func withGroup(pod *corev1.Pod, id int64) *corev1.Pod {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &id}
	return pod
}

func ptr[T any](v T) *T { return &v }

func volume(name string, source corev1.VolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: source}
}

func emptyDir(name string) corev1.Volume {
	return volume(name, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
}

// stat answers mode (with the bits of the kernel), owner and group: "777 0 0".
func stat(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(path, err)
	}
	return fmt.Sprintf("%o %d %d", st.Mode&0o7777, st.Uid, st.Gid)
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSharedMemory(t *testing.T) { // VO8
	n := newNode(t)
	dir := n.options.Memory
	mounts := func() (list []*mountinfo.Info) {
		list, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	all, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil || len(all) != 1 || all[0].FSType != "tmpfs" {
		t.Fatalf("mounts: %v, %v", all, err)
	}
	if !strings.Contains(all[0].VFSOptions, "noswap") && !strings.HasPrefix(kernel(t), "5.") && !strings.HasPrefix(kernel(t), "6.1.") {
		t.Errorf("options are %q, without noswap", all[0].VFSOptions)
	}
	n.manager() // again
	if got := len(mounts()); got != 1 {
		t.Errorf("after a second New %d tmpfs are mounted", got)
	}
	if got := stat(t, dir); got != "700 0 0" {
		t.Errorf("mode of the tmpfs: %s", got)
	}
	// It stays for as long as a pod has files in it.
	file := filepath.Join(dir, uid)
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil || len(mounts()) != 1 {
		t.Errorf("closed with a pod's files: %v, %d mounts", err, len(mounts()))
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil || len(mounts()) != 0 {
		t.Errorf("closed: %v, %d mounts", err, len(mounts()))
	}
	// What is no tmpfs is not used, and not unmounted.
	other := filepath.Join(n.root, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(n.root, other, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	o := n.options
	o.Memory = other
	if _, err := New(o); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("New over another file system: %v", err)
	}
	if ok, err := mountinfo.Mounted(other); !ok || err != nil {
		t.Errorf("the other mount is gone: %v", err)
	}
}

func kernel(t *testing.T) string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Release[:])
}

func TestNamesAreChecked(t *testing.T) {
	n := newNode(t)
	for _, bad := range []string{"", "..", "../" + uid, strings.ToUpper(otherUID), "manifests", uid + "/x"} {
		pod := podWith(emptyDir("v"))
		pod.UID = types.UID(bad)
		if err := n.SetUp(t.Context(), pod); !errdefs.IsInvalidArgument(err) {
			t.Errorf("SetUp of UID %q: %v", bad, err)
		}
		if err := n.TearDown(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("TearDown of UID %q: %v", bad, err)
		}
		if _, err := n.WriteHosts(bad, nil); !errdefs.IsInvalidArgument(err) {
			t.Errorf("WriteHosts of UID %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "..", "a/b", "A"} {
		if err := n.SetUp(t.Context(), podWith(emptyDir(bad))); !errdefs.IsInvalidArgument(err) {
			t.Errorf("SetUp of volume %q: %v", bad, err)
		}
		if _, err := n.TerminationLog(uid, bad, 0); !errdefs.IsInvalidArgument(err) {
			t.Errorf("TerminationLog of container %q: %v", bad, err)
		}
	}
}

func TestSetUpNamesTheVolume(t *testing.T) { // VO1, VO23
	n := newNode(t)
	pod := podWith(
		volume("a", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}),
		volume("b", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}}),
		emptyDir("c"),
		volume("d", corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x"}}),
	)
	err := n.SetUp(t.Context(), pod)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	errs := joined.Unwrap()
	want := []string{
		`MountVolume.SetUp failed for volume "a" : this kind of volume is not supported: mount it on the node and use hostPath`,
		`MountVolume.SetUp failed for volume "b" : configmap "x" not found`,
	}
	if len(errs) != 2 || errs[0].Error() != want[0] || errs[1].Error() != want[1] || !errdefs.IsNotFound(errs[1]) || !errdefs.IsInvalidArgument(errs[0]) {
		t.Errorf("errors: %q", errs)
	}
	if !exists(n.path("volumes", "c")) {
		t.Error("a volume after those that failed was not made")
	}
	// It appears: the next try is good.
	n.objects.configMaps["default/x"] = &corev1.ConfigMap{}
	pod.Spec.Volumes = pod.Spec.Volumes[1:]
	n.setUp(pod)
}

// list lists what is below a folder: path, type, mode, owner and group, content or target.
func list(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch e.Type() {
		case fs.ModeDir:
			fmt.Fprintf(&out, "%s/ %s\n", name, stat(t, path))
		case fs.ModeSymlink:
			target, _ := os.Readlink(path)
			fmt.Fprintf(&out, "%s -> %s\n", name, target)
		default:
			fmt.Fprintf(&out, "%s %s %q\n", name, stat(t, path), read(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
