package manifest

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// podOf parses a Pod with this spec, in YAML's flow form.
func podOf(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	objects, _, err := Parse("f.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {"+spec+"}\n"), Options{})
	if err != nil {
		t.Fatalf("%v\nspec: %s", err, spec)
	}
	return objects[0].Pod()
}

// AD1: what `get -o yaml` shows of a Pod with a name and an image, and of one with everything that
// has a default.
func TestDefaultsGolden(t *testing.T) {
	for _, name := range []string{"small", "large"} {
		in, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/" + name + ".golden.yaml")
		if err != nil {
			t.Fatal(err)
		}
		objects, notes, err := Parse(name+".yaml", in, Options{})
		if err != nil || len(notes) > 0 {
			t.Fatalf("%s: error %v, notes %q", name, err, notes)
		}
		got, err := yaml.Marshal(objects[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		got = []byte(strings.ReplaceAll(string(got), "status: {}\n", ""))
		if string(got) != string(want) {
			t.Errorf("%s has with its defaults\n%s\nwant\n%s", name, got, want)
		}
		// Defaults of defaults change nothing, and what is printed can be applied.
		again, notes, err := Parse(name, got, Options{})
		void := slices.DeleteFunc(notes, func(n string) bool {
			return strings.Contains(n, "serviceAccount") || strings.Contains(n, "enableServiceLinks")
		})
		if err != nil || len(void) > 0 || again[0].Hash() != objects[0].Hash() {
			t.Errorf("%s: what is printed is not taken as it is: error %v, notes %q", name, err, void)
		}
	}
}

// IM1
func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"a": corev1.PullAlways, "a:latest": corev1.PullAlways, "a:1": corev1.PullIfNotPresent,
		"a@sha256:" + strings.Repeat("0", 64):        corev1.PullIfNotPresent,
		"a:1@sha256:" + strings.Repeat("0", 64):      corev1.PullIfNotPresent,
		"a:latest@sha256:" + strings.Repeat("0", 64): corev1.PullAlways,
		"localhost:5000/a":                           corev1.PullAlways, "localhost:5000/a:1": corev1.PullIfNotPresent,
		"localhost:5000/a:latest": corev1.PullAlways,
	} {
		pod := podOf(t, `containers: [{name: app, image: "`+image+`"}], volumes: [{name: v, image: {reference: "`+image+`"}}]`)
		if got := pod.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%s: policy %s, want %s", image, got, want)
		}
		if got := pod.Spec.Volumes[0].Image.PullPolicy; got != want {
			t.Errorf("volume of %s: policy %s, want %s", image, got, want)
		}
	}
}

// IM1: an edit of the image alone does not change the policy; NW4: whether dnsPolicy was given.
func TestDefaultedFields(t *testing.T) {
	parse := func(spec string) Object {
		objects, _, err := Parse("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {"+spec+"}\n"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return objects[0]
	}
	old := parse(`initContainers: [{name: i, image: "a:1"}], containers: [{name: app, image: "a:1"}, {name: b, image: "b:1"}],
  volumes: [{name: v, image: {reference: "v:1"}}]`)
	want := []string{"spec.restartPolicy", "spec.dnsPolicy", "spec.initContainers[0].imagePullPolicy", "spec.containers[0].imagePullPolicy",
		"spec.containers[1].imagePullPolicy", "spec.volumes[0].image.pullPolicy"}
	if !slices.Equal(old.Defaulted, want) {
		t.Errorf("defaulted %q, want %q", old.Defaulted, want)
	}
	edited := parse(`dnsPolicy: ClusterFirst, initContainers: [{name: i, image: a}], containers: [{name: new, image: a},
  {name: b, image: b, imagePullPolicy: Always}, {name: app, image: a}], volumes: [{name: v, image: {reference: v}}]`)
	if slices.Contains(edited.Defaulted, "spec.dnsPolicy") {
		t.Errorf("defaulted %q", edited.Defaulted)
	}
	kept := edited.KeepPullPolicies(old.Pod()).Pod()
	got := []corev1.PullPolicy{kept.Spec.InitContainers[0].ImagePullPolicy}
	for _, c := range kept.Spec.Containers {
		got = append(got, c.ImagePullPolicy)
	}
	got = append(got, kept.Spec.Volumes[0].Image.PullPolicy)
	if want := []corev1.PullPolicy{"IfNotPresent", "Always", "Always", "IfNotPresent", "IfNotPresent"}; !slices.Equal(got, want) {
		t.Errorf("policies %q, want %q", got, want)
	}
	if p := edited.Pod().Spec.InitContainers[0].ImagePullPolicy; p != corev1.PullAlways {
		t.Errorf("the object itself was changed: %s", p)
	}
}

// AD16: numbers of the built-in classes, and a number without a class.
func TestPriority(t *testing.T) {
	for fields, want := range map[string]int32{
		"": 0, "priority: 7,": 7, "priorityClassName: system-node-critical,": 2000001000,
		"priorityClassName: system-cluster-critical, priority: 2000000000,": 2000000000,
	} {
		pod := podOf(t, fields+` containers: [{name: app, image: a}]`)
		if got := pod.Spec.Priority; got == nil || *got != want || *pod.Spec.PreemptionPolicy != corev1.PreemptLowerPriority {
			t.Errorf("%q: priority %v, policy %v; want %d", fields, got, pod.Spec.PreemptionPolicy, want)
		}
	}
}

// AD1: requests are limits where only limits are given; of the Pod as a whole they are first what
// its containers request.
func TestResourceDefaults(t *testing.T) {
	pod := podOf(t, `containers: [{name: a, image: a, resources: {limits: {cpu: 2, memory: 1.0005}, requests: {cpu: 1}}},
  {name: b, image: b, resources: {limits: {cpu: 1}}}], resources: {limits: {cpu: 4, memory: 1Gi}}`)
	for i, want := range []string{"cpu 1, memory 1001m", "cpu 1"} {
		if got := amounts(pod.Spec.Containers[i].Resources.Requests); got != want {
			t.Errorf("container %d requests %s, want %s", i, got, want)
		}
	}
	if got := amounts(pod.Spec.Resources.Requests); got != "cpu 2, memory 1001m" {
		t.Errorf("the pod requests %s", got)
	}
	pod = podOf(t, `containers: [{name: a, image: a, resources: {limits: {cpu: 2, memory: 1Gi}}},
  {name: b, image: b, resources: {limits: {cpu: 1}}}], resources: {requests: {cpu: 3}}`)
	if got := amounts(pod.Spec.Resources.Limits); got != "cpu 3" {
		t.Errorf("the pod is limited to %s, want what all containers limit", got)
	}
}

func amounts(list corev1.ResourceList) string {
	var parts []string
	for name, q := range list {
		parts = append(parts, string(name)+" "+q.String())
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// B.3: stringData is merged into data and wins.
func TestSecretDefaults(t *testing.T) {
	objects, _, err := Parse("f", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: MQ==, b: Mg==}\nstringData: {b: three}\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := objects[0].Value.(*corev1.Secret)
	if string(s.Data["a"]) != "1" || string(s.Data["b"]) != "three" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("secret %+v", s)
	}
}

// H.2: what has no effect is told, and what a server writes is dropped.
func TestNotes(t *testing.T) {
	objects, notes, err := Parse("f.yaml", []byte(`
apiVersion: v1
kind: Pod
metadata: {name: web, finalizers: [x/y], uid: abc, annotations: {kubernetes.io/config.source: file, own: "1"}}
spec:
  containers: [{name: app, image: "a:1"}]
  enableServiceLinks: false
  tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}, {key: gpu, operator: Exists}, {operator: Exists}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
  affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}]}}
status: {phase: Failed}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	const pod = "f.yaml: document 1, pod default/web: "
	want := []string{
		pod + "metadata.uid: has no effect in a manifest and is left out",
		pod + "metadata.finalizers: has no effect in a manifest and is left out",
		pod + "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution: has no effect on one node",
		pod + "spec.enableServiceLinks: has no effect on one node",
		pod + "spec.topologySpreadConstraints: has no effect on one node",
		pod + "status: has no effect in a manifest and is left out",
		pod + "spec.tolerations[1]: has no effect on one node, which has no taints but those of pressure",
	}
	slices.Sort(want)
	slices.Sort(notes)
	if !slices.Equal(notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	got := objects[0].Pod()
	if got.UID != "" || got.Finalizers != nil || got.Status.Phase != "" || len(got.Annotations) != 1 || *got.Spec.EnableServiceLinks {
		t.Errorf("metadata %+v, status %+v", got.ObjectMeta, got.Status)
	}
}
