package runtimeclass

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// classOf is a class called "c".
func classOf(overhead corev1.ResourceList, selector map[string]string, tolerations ...corev1.Toleration) nodev1.RuntimeClass {
	rc := nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Handler: "wasm"}
	if overhead != nil {
		rc.Overhead = &nodev1.Overhead{PodFixed: overhead}
	}
	if selector != nil || tolerations != nil {
		rc.Scheduling = &nodev1.Scheduling{NodeSelector: selector, Tolerations: tolerations}
	}
	return rc
}

// podOf names the class, if it is not "-".
func podOf(class string, overhead corev1.ResourceList, selector map[string]string, tolerations ...corev1.Toleration) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Overhead: overhead, NodeSelector: selector, Tolerations: tolerations}}
	if class != "-" {
		p.Spec.RuntimeClassName = &class
	}
	return p
}

func TestAdmit(t *testing.T) {
	for _, tt := range []struct {
		name     string
		pod      *corev1.Pod
		class    nodev1.RuntimeClass
		overhead corev1.ResourceList
		selector map[string]string
		is       func(error) bool
		err      string
	}{
		{name: "no class", pod: podOf("-", nil, nil), class: classOf(list("memory", "8Mi"), nil)},
		{name: "empty class name", pod: podOf("", nil, nil), class: classOf(list("memory", "8Mi"), nil)},
		{name: "class that declares nothing", pod: podOf("c", nil, nil), class: classOf(nil, nil)},
		{name: "class that declares an empty list", pod: podOf("c", nil, nil), class: classOf(list(), nil)},
		{name: "overhead set", pod: podOf("c", nil, nil), class: classOf(list("memory", "8Mi", "cpu", "5m"), nil), overhead: list("memory", "8Mi", "cpu", "5m")},
		{name: "same overhead", pod: podOf("c", list("memory", "8Mi"), nil), class: classOf(list("memory", "8Mi"), nil), overhead: list("memory", "8Mi")},
		{name: "same overhead in other words", pod: podOf("c", list("memory", "8192Ki", "cpu", "0.25"), nil),
			class: classOf(list("memory", "8Mi", "cpu", "250m"), nil), overhead: list("memory", "8Mi", "cpu", "250m")},
		{name: "empty overhead of the pod", pod: podOf("c", list(), nil), class: classOf(list("memory", "8Mi"), nil), overhead: list("memory", "8Mi")},
		{name: "other overhead", pod: podOf("c", list("memory", "9Mi"), nil), class: classOf(list("memory", "8Mi"), nil), is: errdefs.IsInvalidArgument,
			err: `spec.overhead: the pod has memory 9Mi and RuntimeClass "c" declares memory 8Mi`},
		{name: "less of the overhead", pod: podOf("c", list("memory", "8Mi"), nil), class: classOf(list("memory", "8Mi", "cpu", "1m"), nil), is: errdefs.IsInvalidArgument,
			err: `the pod has memory 8Mi and RuntimeClass "c" declares cpu 1m, memory 8Mi`},
		{name: "overhead of no class", pod: podOf("-", list("memory", "9Mi"), nil), class: classOf(nil, nil), is: errdefs.IsInvalidArgument,
			err: "spec.overhead: the pod has memory 9Mi and no RuntimeClass"},
		{name: "overhead the class lacks", pod: podOf("c", list("cpu", "1"), nil), class: classOf(nil, nil), is: errdefs.IsInvalidArgument,
			err: `spec.overhead: the pod has cpu 1 and RuntimeClass "c" declares none`},
		{name: "unknown class", pod: podOf("kata", nil, nil), class: classOf(nil, nil), is: errdefs.IsNotFound,
			err: `spec.runtimeClassName: find RuntimeClass "kata" (there are: c)`},
		{name: "selector set", pod: podOf("c", nil, nil), class: classOf(nil, map[string]string{"a": "1"}), selector: map[string]string{"a": "1"}},
		{name: "selectors joined", pod: podOf("c", nil, map[string]string{"b": "2"}), class: classOf(nil, map[string]string{"a": "1"}),
			selector: map[string]string{"a": "1", "b": "2"}},
		{name: "equal selectors", pod: podOf("c", nil, map[string]string{"a": "1"}), class: classOf(nil, map[string]string{"a": "1"}), selector: map[string]string{"a": "1"}},
		{name: "selector conflict", pod: podOf("c", nil, map[string]string{"a": "2"}), class: classOf(nil, map[string]string{"a": "1"}), is: errdefs.IsFailedPrecondition,
			err: `RuntimeClass "c": nodeSelector[a] is "1" in the class and "2" in the pod`},
		{name: "empty value conflicts", pod: podOf("c", nil, map[string]string{"a": ""}), class: classOf(nil, map[string]string{"a": "1"}), is: errdefs.IsFailedPrecondition,
			err: `"1" in the class and "" in the pod`},
		{name: "selector of a pod without class stays", pod: podOf("-", nil, map[string]string{"b": "2"}), class: classOf(nil, map[string]string{"a": "1"}),
			selector: map[string]string{"b": "2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.pod.DeepCopy()
			got, err := Admit(tt.pod, []nodev1.RuntimeClass{tt.class})
			if !equality.Semantic.DeepEqual(tt.pod, before) {
				t.Error("the given pod was changed")
			}
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !tt.is(err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			same(t, "overhead", got.Spec.Overhead, tt.overhead)
			if !maps.Equal(got.Spec.NodeSelector, tt.selector) {
				t.Errorf("selector %v, want %v", got.Spec.NodeSelector, tt.selector)
			}
		})
	}
}

// toleration reads "key op value effect seconds", "-" for what is not given.
func toleration(t *testing.T, text string) corev1.Toleration {
	t.Helper()
	f := strings.Fields(text + " - - - -")
	for i := range f {
		if f[i] == "-" {
			f[i] = ""
		}
	}
	out := corev1.Toleration{Key: f[0], Operator: corev1.TolerationOperator(f[1]), Value: f[2], Effect: corev1.TaintEffect(f[3])}
	if f[4] != "" {
		var seconds int64
		if _, err := fmt.Sscan(f[4], &seconds); err != nil {
			t.Fatal(err)
		}
		out.TolerationSeconds = &seconds
	}
	return out
}

func TestTolerations(t *testing.T) {
	for _, tt := range []struct {
		name, pod, class, want string // separated by ","
	}{
		{"into nothing", "", "k Exists", "k Exists"},
		{"nothing to add", "k Exists", "", "k Exists"},
		{"equal", "k Equal v", "k Equal v", "k Equal v"},
		{"no operator is Equal", "k - v", "k Equal v", "k - v"},
		{"other value", "k Equal v", "k Equal w", "k Equal v,k Equal w"},
		{"other key", "k Exists", "l Exists", "k Exists,l Exists"},
		{"included in the pod's", "k Exists", "k Equal v", "k Exists"},
		{"includes the pod's", "k Equal v", "k Exists", "k Exists"},
		{"everything in the pod", "- Exists", "k Equal v,l Exists - NoSchedule", "- Exists"},
		{"everything in the class", "k Equal v,l Exists", "- Exists", "- Exists"},
		{"any effect includes one", "k Exists", "k Exists - NoSchedule", "k Exists"},
		{"one effect does not include another", "k Exists - NoSchedule", "k Exists - NoExecute", "k Exists - NoSchedule,k Exists - NoExecute"},
		{"one effect does not include any", "k Exists - NoSchedule", "k Exists", "k Exists"},
		{"without seconds is for ever", "k Exists - NoExecute", "k Exists - NoExecute 60", "k Exists - NoExecute"},
		{"longer includes shorter", "k Exists - NoExecute 60", "k Exists - NoExecute 120", "k Exists - NoExecute 120"},
		{"shorter after longer", "k Exists - NoExecute 120", "k Exists - NoExecute 60", "k Exists - NoExecute 120"},
		{"the pod's own redundant one goes", "k Equal v,k Exists", "l Exists", "k Exists,l Exists"},
		{"order is kept", "c Exists,a Exists", "b Exists", "c Exists,a Exists,b Exists"},
		{"equal without key is not everything", "- Equal v", "k Equal v", "- Equal v,k Equal v"},
		{"three of one chain", "k Equal v NoSchedule", "k Exists - NoSchedule,k Exists", "k Exists"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parse := func(all string) (out []corev1.Toleration) {
				for text := range strings.SplitSeq(all, ",") {
					if text != "" {
						out = append(out, toleration(t, text))
					}
				}
				return out
			}
			rc := classOf(nil, map[string]string{}, parse(tt.class)...)
			got, err := Admit(podOf("c", nil, nil, parse(tt.pod)...), []nodev1.RuntimeClass{rc})
			if err != nil {
				t.Fatal(err)
			}
			if want := parse(tt.want); !equality.Semantic.DeepEqual(got.Spec.Tolerations, want) {
				t.Errorf("%+v, want %+v", got.Spec.Tolerations, want)
			}
		})
	}
}

func TestCheckReload(t *testing.T) {
	class := func(name, handler string) nodev1.RuntimeClass {
		return nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
	}
	type classes = []nodev1.RuntimeClass
	for _, tt := range []struct {
		name          string
		before, after classes
		err           string
	}{
		{"first", nil, classes{class("a", "x")}, ""},
		{"same", classes{class("a", "x")}, classes{class("a", "x")}, ""},
		{"gone", classes{class("a", "x")}, nil, ""},
		{"new", classes{class("a", "x")}, classes{class("b", "y"), class("a", "x")}, ""},
		{"changed", classes{class("b", "y"), class("a", "x")}, classes{class("a", "z")}, `RuntimeClass "a": its handler was "x" and is "z" now`},
	} {
		err := CheckReload(tt.before, tt.after)
		if (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), tt.err) || !errdefs.IsFailedPrecondition(err)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
		}
	}
}

func TestQOS(t *testing.T) {
	type cs = []corev1.Container
	with := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	both, more := list("cpu", "1", "memory", "1Gi"), list("cpu", "2", "memory", "1Gi")
	for _, tt := range []struct {
		name      string
		init, app cs
		pod       *corev1.ResourceRequirements
		want      corev1.PodQOSClass
	}{
		{name: "nothing", app: cs{with(nil, nil)}, want: corev1.PodQOSBestEffort},
		{name: "no containers", want: corev1.PodQOSBestEffort},
		{name: "zero is nothing", app: cs{with(list("cpu", "0"), list("memory", "0"))}, want: corev1.PodQOSBestEffort},
		{name: "other resources do not count", app: cs{with(list("example.org/gpu", "1"), list("example.org/gpu", "1"))}, want: corev1.PodQOSBestEffort},
		{name: "ephemeral storage does not count", app: cs{with(list("ephemeral-storage", "1Gi"), nil)}, want: corev1.PodQOSBestEffort},
		{name: "equal", app: cs{with(both, both)}, want: corev1.PodQOSGuaranteed},
		{name: "limits alone are requests", app: cs{with(nil, both)}, want: corev1.PodQOSGuaranteed},
		{name: "equal in other words", app: cs{with(list("cpu", "1000m", "memory", "1024Mi"), both)}, want: corev1.PodQOSGuaranteed},
		{name: "limit above request", app: cs{with(both, more)}, want: corev1.PodQOSBurstable},
		{name: "requests alone", app: cs{with(both, nil)}, want: corev1.PodQOSBurstable},
		{name: "one resource", app: cs{with(list("memory", "1Gi"), list("memory", "1Gi"))}, want: corev1.PodQOSBurstable},
		{name: "one request", app: cs{with(list("memory", "1Gi"), nil)}, want: corev1.PodQOSBurstable},
		{name: "two guaranteed", app: cs{with(both, both), with(more, more)}, want: corev1.PodQOSGuaranteed},
		{name: "one of two", app: cs{with(both, both), with(nil, nil)}, want: corev1.PodQOSBurstable},
		{name: "init container without", init: cs{with(nil, nil)}, app: cs{with(both, both)}, want: corev1.PodQOSBurstable},
		{name: "init container alone", init: cs{with(list("cpu", "1"), nil)}, app: cs{with(nil, nil)}, want: corev1.PodQOSBurstable},
		{name: "init container guaranteed", init: cs{with(more, more)}, app: cs{with(both, both)}, want: corev1.PodQOSGuaranteed},
		{name: "pod level guaranteed", app: cs{with(nil, nil)}, pod: &corev1.ResourceRequirements{Requests: both, Limits: both}, want: corev1.PodQOSGuaranteed},
		{name: "pod level burstable", app: cs{with(both, both)}, pod: &corev1.ResourceRequirements{Requests: both, Limits: more}, want: corev1.PodQOSBurstable},
		{name: "pod level limits alone", app: cs{with(nil, nil)}, pod: &corev1.ResourceRequirements{Limits: both}, want: corev1.PodQOSGuaranteed},
		{name: "pod level of nothing", app: cs{with(both, both)}, pod: &corev1.ResourceRequirements{}, want: corev1.PodQOSBestEffort},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: tt.init, Containers: tt.app, Resources: tt.pod}}
			pod = pod.DeepCopy()
			Default(pod)
			if got := QOS(pod); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestQuantities(t *testing.T) {
	for want, in := range map[string]corev1.ResourceList{
		"nothing": nil, "cpu 250m": list("cpu", "250m"), "cpu 1, memory 64Mi": list("memory", "64Mi", "cpu", "1"),
	} {
		if got := Quantities(in); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestClassOf(t *testing.T) {
	class := func(name, handler, memory string) nodev1.RuntimeClass {
		rc := nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		if memory != "" {
			rc.Overhead = &nodev1.Overhead{PodFixed: list("memory", memory, "cpu", "10m")}
		}
		return rc
	}
	classes := []nodev1.RuntimeClass{
		class("light", "wasm", "8Mi"), class("heavy", "wasm", "80Mi"), class("plain", "wasm", ""), class("native", "runc", "8Mi"),
		class("twin-a", "crun", "8Mi"), class("twin-b", "crun", "8Mi"),
	}
	for _, tt := range []struct {
		handler  string
		overhead Linux
		want     string
	}{
		{"wasm", OverheadLinux(list("memory", "8Mi", "cpu", "10m")), "light"},
		{"wasm", OverheadLinux(list("memory", "80Mi", "cpu", "10m")), "heavy"},
		{"wasm", Linux{}, "plain"},
		{"wasm", Linux{MemoryBytes: 8 << 20, CPUQuota: 1000, CPUPeriod: 100000}, "light"},
		{"wasm", OverheadLinux(list("memory", "9Mi", "cpu", "10m")), ""},
		{"wasm", OverheadLinux(list("memory", "8Mi", "cpu", "20m")), ""},
		{"runc", OverheadLinux(list("memory", "8Mi", "cpu", "10m")), "native"},
		{"crun", OverheadLinux(list("memory", "8Mi", "cpu", "10m")), ""},
		{"kata", Linux{}, ""},
	} {
		if got := ClassOf(classes, tt.handler, tt.overhead); got != tt.want {
			t.Errorf("%+v with %+v: %q, want %q", tt.handler, tt.overhead, got, tt.want)
		}
	}
}
