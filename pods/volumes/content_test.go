package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
)

func (n *node) configMap(name string, data map[string]string) {
	n.objects.configMaps["default/"+name] = &corev1.ConfigMap{Data: data}
}

func (n *node) secret(name string, data map[string]string) {
	s := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	n.objects.secrets["default/"+name] = s
}

func configMapVolume(v *corev1.ConfigMapVolumeSource, object string) corev1.Volume {
	v.Name = object
	return volume("v", corev1.VolumeSource{ConfigMap: v})
}

// shown lists what applications see in a volume: "NAME=CONTENT ...".
func shown(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") {
			out = append(out, e.Name()+"="+read(t, filepath.Join(dir, e.Name())))
		}
	}
	return strings.Join(out, " ")
}

// files are those of a volume as applications see them: "path mode uid gid content".
func files(t *testing.T, dir string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	return list(t, real)
}

func TestConfigMapVolume(t *testing.T) { // VO7, VO22
	n := newNode(t)
	n.configMap("c", map[string]string{"a": "1", "b.txt": "2"})
	n.objects.configMaps["default/c"].BinaryData = map[string][]byte{"bin": {0, 255}}
	for _, c := range []struct {
		what  string
		v     corev1.ConfigMapVolumeSource
		group *int64
		want  string
	}{
		{"all keys", corev1.ConfigMapVolumeSource{}, nil,
			"a 644 0 0 \"1\"\nb.txt 644 0 0 \"2\"\nbin 644 0 0 \"\\x00\\xff\"\n"},
		{"items and modes", corev1.ConfigMapVolumeSource{DefaultMode: ptr[int32](0o400), DefaultUser: ptr[int64](9), Items: []corev1.KeyToPath{
			{Key: "a", Path: "x/y"}, {Key: "b.txt", Path: "z", Mode: ptr[int32](0o755), User: ptr[int64](8)},
		}}, nil, "x/ 755 0 0\nx/y 400 9 0 \"1\"\nz 755 8 0 \"2\"\n"},
		{"group", corev1.ConfigMapVolumeSource{DefaultMode: ptr[int32](0o400), Items: []corev1.KeyToPath{{Key: "a", Path: "x/y"}}}, ptr[int64](2000),
			"x/ 2755 0 2000\nx/y 440 0 2000 \"1\"\n"},
		{"an optional key", corev1.ConfigMapVolumeSource{Optional: ptr(true), Items: []corev1.KeyToPath{{Key: "none", Path: "x"}, {Key: "a", Path: "a"}}}, nil,
			"a 644 0 0 \"1\"\n"},
	} {
		pod := podWith(configMapVolume(&c.v, "c"))
		if c.group != nil {
			withGroup(pod, *c.group)
		}
		n.setUp(pod)
		if got := files(t, n.path("volumes/v")); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.what, got, c.want)
		}
		if err := n.TearDown(uid); err != nil {
			t.Fatal(err)
		}
	}
	n.setUp(podWith(configMapVolume(&corev1.ConfigMapVolumeSource{Optional: ptr(true)}, "none")))
	if got := files(t, n.path("volumes/v")); got != "" {
		t.Errorf("an optional object that is missing: %s", got)
	}
	for path, want := range map[string]string{
		"../x": "must not contain '..'", "a/../../x": "must not contain '..'", "/x": "must be a relative path", "": "must not be empty",
		"..x": "must not start with '..'", "..data/x": "must not start with '..'", "./..data": "must not start with '..'", ".": "must name a file", "x/": "must name a file",
		"a\x00b": "zero byte", strings.Repeat("x", 256): "no more than 255 bytes", strings.Repeat("x/", 1500) + "x": "no more than 2048 bytes",
	} {
		v := corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "a", Path: path}}}
		err := n.SetUp(t.Context(), podWith(configMapVolume(&v, "c")))
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("path %q: %v, want %q", path, err, want)
		}
	}
	err := n.SetUp(t.Context(), podWith(configMapVolume(&corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "none", Path: "x"}}}, "c")))
	if want := `MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: none`; err == nil || err.Error() != want || !errdefs.IsNotFound(err) {
		t.Errorf("missing key: %v", err)
	}
}

func TestHostileKeys(t *testing.T) {
	n := newNode(t)
	for _, key := range []string{"..", "../x", "a/b", "..data", "/etc/passwd", "", "."} {
		n.configMap("c", map[string]string{"ok": "1", key: "bad"})
		if err := n.SetUp(t.Context(), podWith(configMapVolume(&corev1.ConfigMapVolumeSource{}, "c"))); !errdefs.IsInvalidArgument(err) {
			t.Errorf("key %q: %v", key, err)
		}
	}
	items := []corev1.KeyToPath{{Key: "ok", Path: "a/b"}, {Key: "ok", Path: "a"}}
	for range 2 { // in both orders
		n.configMap("c", map[string]string{"ok": "1"})
		if err := n.SetUp(t.Context(), podWith(configMapVolume(&corev1.ConfigMapVolumeSource{Items: items}, "c"))); !errdefs.IsInvalidArgument(err) {
			t.Errorf("a file that is a folder: %v", err)
		}
		items[0], items[1] = items[1], items[0]
	}
	many := map[string]string{}
	for i := range mostFiles + 1 {
		many[fmt.Sprint("k", i)] = ""
	}
	n.configMap("c", many)
	if err := n.SetUp(t.Context(), podWith(configMapVolume(&corev1.ConfigMapVolumeSource{}, "c"))); !errdefs.IsInvalidArgument(err) {
		t.Errorf("too many files: %v", err)
	}
	n.configMap("c", map[string]string{"big": strings.Repeat("x", mostBytes+1)})
	if err := n.SetUp(t.Context(), podWith(configMapVolume(&corev1.ConfigMapVolumeSource{}, "c"))); !errdefs.IsInvalidArgument(err) {
		t.Errorf("too many bytes: %v", err)
	}
	for _, bad := range []corev1.ConfigMapVolumeSource{{DefaultMode: ptr[int32](0o4755)}, {DefaultMode: ptr[int32](-1)}, {DefaultUser: ptr[int64](-1)}, {DefaultUser: ptr[int64](1 << 32)}} {
		n.configMap("c", map[string]string{"a": "1"})
		if err := n.SetUp(t.Context(), podWith(configMapVolume(&bad, "c"))); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := os.Stat(n.path("volumes/v")); err == nil {
		t.Error("a refused volume was made")
	}
}

func TestSecretsStayInMemory(t *testing.T) { // VO8, VO12, VO13
	n := newNode(t)
	n.secret("s", map[string]string{"key": "secret"})
	n.configMap("c", map[string]string{"conf": "x"})
	pod := podWith(
		volume("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr[int32](0o400)}}),
		volume("down", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "cpu", Mode: ptr[int32](0o600), ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "app", Resource: "limits.cpu"}},
		}}}),
		volume("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Items: []corev1.KeyToPath{{Key: "key", Path: "d/key"}}}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "d/labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
			{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Optional: ptr(true), Path: "ca"}},
		}}}),
	)
	pod.Labels = map[string]string{"b": "2", "a": "1\n"}
	n.setUp(pod)
	for name, want := range map[string]string{
		"secret": "key 400 0 0 \"secret\"\n",
		"down":   "cpu 600 0 0 \"app:limits.cpu\"\nlabels 644 0 0 \"a=\\\"1\\\\n\\\"\\nb=\\\"2\\\"\"\n",
		"all":    "conf 644 0 0 \"x\"\nd/ 755 0 0\nd/key 644 0 0 \"secret\"\nd/labels 644 0 0 \"a=\\\"1\\\\n\\\"\\nb=\\\"2\\\"\"\n",
	} {
		if got := files(t, n.memory(name)); got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
		if exists(n.path("volumes", name)) {
			t.Errorf("%s is on disk", name)
		}
		if mounted, err := mountinfo.Mounted(n.memory(name)); mounted || err != nil {
			t.Errorf("%s has a tmpfs of its own: %v", name, err)
		}
	}
	pod.Labels["a"] = "3"
	if changed, err := n.Refresh(t.Context(), pod); !changed || err != nil || !strings.Contains(files(t, n.memory("down")), `a=\"3\"`) {
		t.Errorf("labels: %v, %v", changed, err)
	}
	if changed, err := n.Refresh(t.Context(), pod); changed || err != nil {
		t.Errorf("nothing changed: %v, %v", changed, err)
	}
}

func TestProjectedRefusals(t *testing.T) { // VO12, VO13
	n := newNode(t)
	n.configMap("c", map[string]string{"a": "1"})
	source := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}
	field := func(path string) corev1.VolumeProjection {
		return corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "x", FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}}}
	}
	for want, sources := range map[string][]corev1.VolumeProjection{
		"is given by two sources":              {source, source},
		"serviceAccountToken is not supported": {{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}},
		"clusterTrustBundle is not supported":  {{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "t"}}},
		"podCertificate is not supported":      {{PodCertificate: &corev1.PodCertificateProjection{}}},
		"a source without a kind":              {{}},
		"fields of metadata only":              {field("status.podIP")},
		"containerName: is required":           {{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "x", ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}}}}},
		"neither fieldRef nor":                 {{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "x"}}}}},
	} {
		err := n.SetUp(t.Context(), podWith(volume("v", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}})))
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// Items of one ConfigMap may have one path: the last one counts, as a kubelet has it.
	n.configMap("c", map[string]string{"a": "1", "b": "2"})
	n.setUp(podWith(configMapVolume(&corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "a", Path: "x"}, {Key: "b", Path: "x"}}}, "c")))
	if got := files(t, n.path("volumes/v")); got != "x 644 0 0 \"2\"\n" {
		t.Errorf("one path twice: %s", got)
	}
}

func TestRefresh(t *testing.T) { // VO11
	n := newNode(t)
	n.configMap("c", map[string]string{"a": "1"})
	pod := podWith(configMapVolume(&corev1.ConfigMapVolumeSource{}, "c"), emptyDir("e"))
	n.setUp(pod)
	n.configMap("c", map[string]string{"a": "2", "b": "3"})
	if changed, err := n.Refresh(t.Context(), pod); !changed || err != nil || shown(t, n.path("volumes/v")) != "a=2 b=3" {
		t.Errorf("%v, %v, %s", changed, err, shown(t, n.path("volumes/v")))
	}
	delete(n.objects.configMaps, "default/c")
	if changed, err := n.Refresh(t.Context(), pod); changed || !errdefs.IsNotFound(err) || shown(t, n.path("volumes/v")) != "a=2 b=3" {
		t.Errorf("the object was deleted: %v, %v, %s", changed, err, shown(t, n.path("volumes/v")))
	}
}
