package desired

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// aPod is a pod of each kind of container, with its defaults as far as they matter here.
func aPod() *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID, p.Generation = "web", "default", "1", 3
	always, deadline := corev1.ContainerRestartPolicyAlways, int64(100)
	p.Labels = map[string]string{"app": "web"}
	resources := func(cpu, memory string) corev1.ResourceRequirements {
		list := func() corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		}
		return corev1.ResourceRequirements{Requests: list()}
	}
	p.Spec.InitContainers = []corev1.Container{
		{Name: "first", Image: "i:1", Resources: resources("10m", "1Mi")},
		{Name: "car", Image: "s:1", RestartPolicy: &always, Resources: resources("10m", "1Mi")},
	}
	p.Spec.Containers = []corev1.Container{
		{Name: "app", Image: "a:1", Resources: resources("100m", "64Mi")},
		{Name: "other", Image: "b:1"},
	}
	p.Spec.ActiveDeadlineSeconds = &deadline
	p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
	return p
}

func set[T any](v T) *T { return &v }

// The table "what an edit does" of pods.md B.2.
func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(p *corev1.Pod)
		want Edit
	}{
		"nothing": {func(*corev1.Pod) {}, Edit{}},
		"what no manifest says": {func(p *corev1.Pod) {
			p.UID, p.Generation, p.Status.Phase = "", 0, corev1.PodRunning
			p.Annotations = map[string]string{"kubernetes.io/config.hash": "x", "io.sunaba.file": "/a.yaml"}
		}, Edit{}},
		"another form of a quantity": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0.1")
		}, Edit{}},
		"empty instead of absent": {func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{} }, Edit{}},
		"label":                   {func(p *corev1.Pod) { p.Labels["app"] = "2" }, Edit{Kind: InPlace}},
		"annotation":              {func(p *corev1.Pod) { p.Annotations = map[string]string{"x": "y"} }, Edit{Kind: InPlace}},
		"image": {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "a:2" },
			Edit{Kind: InPlace, Spec: true, Restart: []string{"app"}, Fields: []string{"spec.containers[0].image"}}},
		"image of a sidecar": {func(p *corev1.Pod) { p.Spec.InitContainers[1].Image = "s:2" },
			Edit{Kind: InPlace, Spec: true, Restart: []string{"car"}, Fields: []string{"spec.initContainers[1].image"}}},
		"image of an init container": {func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "i:2" },
			Edit{Kind: InPlace, Spec: true, Fields: []string{"spec.initContainers[0].image"}}},
		"cpu": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("200m")
		}, Edit{Kind: InPlace, Spec: true, Resize: []string{"app"}, Fields: []string{"spec.containers[0].resources"}}},
		"a limit more": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}, Edit{Kind: InPlace, Spec: true, Resize: []string{"app"}, Fields: []string{"spec.containers[0].resources"}}},
		"memory of a sidecar and an image": {func(p *corev1.Pod) {
			p.Spec.InitContainers[1].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Mi")
			p.Spec.Containers[1].Image = "b:2"
		}, Edit{Kind: InPlace, Spec: true, Restart: []string{"other"}, Resize: []string{"car"},
			Fields: []string{"spec.containers[1].image", "spec.initContainers[1].resources"}}},
		"a request less": {func(p *corev1.Pod) { delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourceCPU) },
			Edit{Kind: Replace, Spec: true, Fields: []string{"spec.containers[0].resources"}}},
		"cpu of an init container": {func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("20m")
		}, Edit{Kind: Replace, Spec: true, Fields: []string{"spec.initContainers[0].resources"}}},
		"another resource": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		}, Edit{Kind: Replace, Spec: true, Fields: []string{"spec.containers[0].resources"}}},
		"deadline lowered": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = set(int64(99)) },
			Edit{Kind: InPlace, Spec: true, Fields: []string{"spec.activeDeadlineSeconds"}}},
		"deadline raised": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = set(int64(101)) },
			Edit{Kind: Replace, Spec: true, Fields: []string{"spec.activeDeadlineSeconds"}}},
		"deadline removed": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil },
			Edit{Kind: Replace, Spec: true, Fields: []string{"spec.activeDeadlineSeconds"}}},
		"toleration added": {func(p *corev1.Pod) {
			p.Spec.Tolerations = append([]corev1.Toleration{{Key: "b"}}, p.Spec.Tolerations...)
		}, Edit{Kind: InPlace, Spec: true, Fields: []string{"spec.tolerations"}}},
		"toleration removed": {func(p *corev1.Pod) { p.Spec.Tolerations = nil },
			Edit{Kind: Replace, Spec: true, Fields: []string{"spec.tolerations"}}},
		"gate removed": {func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, // AD5
			Edit{Kind: InPlace, Spec: true, Fields: []string{"spec.schedulingGates"}}},
		"gate added": {func(p *corev1.Pod) {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "h"})
		}, Edit{Kind: Replace, Spec: true, Fields: []string{"spec.schedulingGates"}}},
		"an image and something else": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Hostname = "a:2", "h"
		}, Edit{Kind: Replace, Spec: true, Fields: []string{"spec.containers[0].image", "spec.hostname"}}},
		"command": {func(p *corev1.Pod) { p.Spec.Containers[1].Command = []string{"x"} },
			Edit{Kind: Replace, Spec: true, Fields: []string{"spec.containers[1].command"}}},
		"containers in another order": {func(p *corev1.Pod) { slices.Reverse(p.Spec.Containers) },
			Edit{Kind: Replace, Spec: true, Fields: []string{"spec.containers[0].image", "spec.containers[0].name",
				"spec.containers[0].resources", "spec.containers[1].image", "spec.containers[1].name", "spec.containers[1].resources"}}},
		"a container more": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "new", Image: "n"})
		}, Edit{Kind: Replace, Spec: true, Fields: []string{"spec.containers"}}},
	} {
		t.Run(name, func(t *testing.T) {
			old, new := aPod(), aPod()
			c.edit(new)
			before := new.DeepCopy()
			if got := Compare(old, new); !reflect.DeepEqual(got, c.want) {
				t.Errorf("Compare = %+v, want %+v", got, c.want)
			}
			if !reflect.DeepEqual(old, aPod()) || !reflect.DeepEqual(new, before) {
				t.Error("Compare changed a pod")
			}
		})
	}
}

// RE15: the QoS class of a pod is fixed when it is admitted.
func TestCompareKeepsTheClassOfService(t *testing.T) {
	list := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	guaranteed := func(request, limit string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: list(request), Limits: list(limit)}}}
		return p
	}
	if e := Compare(guaranteed("1Gi", "1Gi"), guaranteed("2Gi", "2Gi")); e.Kind != InPlace || len(e.Resize) != 1 {
		t.Errorf("a resize of both: %+v", e)
	}
	if e := Compare(guaranteed("1Gi", "1Gi"), guaranteed("1Gi", "2Gi")); e.Kind != Replace || len(e.Resize) != 0 {
		t.Errorf("Guaranteed becomes Burstable: %+v, want Replace", e)
	}
}

// Any field that the table does not name replaces the pod, also one that Kubernetes adds later.
func TestCompareReplacesForAllOtherFields(t *testing.T) {
	// Overhead is the class's, or the pod is refused when it is admitted.
	inPlace := []string{"Overhead", "ActiveDeadlineSeconds", "Tolerations", "InitContainers", "Containers", "EphemeralContainers", "SchedulingGates"}
	spec := reflect.TypeFor[corev1.PodSpec]()
	for i := range spec.NumField() {
		if slices.Contains(inPlace, spec.Field(i).Name) {
			continue
		}
		old, new := aPod(), aPod()
		fill(reflect.ValueOf(&new.Spec).Elem().Field(i))
		if e := Compare(old, new); e.Kind != Replace {
			t.Errorf("spec.%s: %+v, want Replace", spec.Field(i).Name, e)
		}
	}
	container := reflect.TypeFor[corev1.Container]()
	for i := range container.NumField() {
		if name := container.Field(i).Name; name == "Image" || name == "Resources" {
			continue
		}
		old, new := aPod(), aPod()
		fill(reflect.ValueOf(&new.Spec.Containers[1]).Elem().Field(i))
		if e := Compare(old, new); e.Kind != Replace {
			t.Errorf("container's %s: %+v, want Replace", container.Field(i).Name, e)
		}
	}
}

// fill gives a field a value that is not its zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() != reflect.Struct {
			fill(v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

// What admission sets is no edit of the manifest, and stays (AD14, PH12).
func TestUpdate(t *testing.T) {
	old := aPod()
	old.Spec.RuntimeClassName, old.Spec.PriorityClassName = set("wasm"), "system-node-critical"
	old.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("10Mi")}
	old.Spec.Priority, old.Spec.NodeName = set(int32(2000001000)), "till-4"
	old.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	new := aPod()
	new.UID, new.Generation = "", 0
	new.Spec.RuntimeClassName, new.Spec.PriorityClassName = set("wasm"), "system-node-critical"
	if e := Compare(old, new); e.Kind != Unchanged {
		t.Errorf("Compare = %+v, want Unchanged", e)
	}
	new.Spec.Containers[0].Image, new.Labels = "a:2", map[string]string{"app": "3"}
	out := Update(old, new)
	want := old.DeepCopy()
	want.Spec.Containers[0].Image, want.Labels = "a:2", map[string]string{"app": "3"}
	if !reflect.DeepEqual(out, want) {
		t.Errorf("Update = %+v, want %+v", out, want)
	}
	if out.UID != types.UID("1") || out.Generation != 3 || new.UID != "" {
		t.Errorf("UID %q, generation %d", out.UID, out.Generation)
	}
	new.Spec.RuntimeClassName = set("runc")
	if e := Compare(old, new); e.Kind != Replace || Update(old, new).Spec.Overhead != nil {
		t.Errorf("another class: %+v, want Replace, without the overhead of the old one", e)
	}
}
