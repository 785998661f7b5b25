package runtimeclass

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func container(r corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: r, Limits: r}}
}

func sidecar(r corev1.ResourceList) corev1.Container {
	c, always := container(r), corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func TestEffective(t *testing.T) {
	type cs = []corev1.Container
	for _, tt := range []struct {
		name     string
		init     cs
		app      cs
		pod      corev1.ResourceList // pod level
		overhead corev1.ResourceList
		requests corev1.ResourceList
		limits   corev1.ResourceList // nil: like requests
	}{
		{name: "nothing", requests: list()},
		{name: "one", app: cs{container(list("cpu", "100m"))}, requests: list("cpu", "100m")},
		{name: "sum", app: cs{container(list("cpu", "100m", "memory", "1Mi")), container(list("memory", "2Mi"))},
			requests: list("cpu", "100m", "memory", "3Mi")},
		{name: "overhead", app: cs{container(list("memory", "1Mi"))}, overhead: list("memory", "2Mi"), requests: list("memory", "3Mi")},
		{name: "overhead of what has no limit", app: cs{container(list("memory", "1Mi"))}, overhead: list("cpu", "10m"),
			requests: list("memory", "1Mi", "cpu", "10m"), limits: list("memory", "1Mi")},
		{name: "overhead alone", overhead: list("memory", "2Mi"), requests: list("memory", "2Mi"), limits: list()},
		{name: "small init", init: cs{container(list("memory", "1Mi"))}, app: cs{container(list("memory", "2Mi"))}, requests: list("memory", "2Mi")},
		{name: "large init", init: cs{container(list("memory", "5Mi"))}, app: cs{container(list("memory", "2Mi"))}, requests: list("memory", "5Mi")},
		{name: "inits do not add up", init: cs{container(list("memory", "5Mi")), container(list("memory", "4Mi"))},
			app: cs{container(list("memory", "2Mi"))}, requests: list("memory", "5Mi")},
		{name: "init decides one resource", init: cs{container(list("cpu", "2", "memory", "1Mi"))},
			app: cs{container(list("cpu", "1", "memory", "2Mi"))}, requests: list("cpu", "2", "memory", "2Mi")},
		{name: "sidecar adds to containers", init: cs{sidecar(list("memory", "1Mi"))}, app: cs{container(list("memory", "2Mi"))}, requests: list("memory", "3Mi")},
		{name: "sidecar before a large init raises it", init: cs{sidecar(list("memory", "1Mi")), container(list("memory", "5Mi"))},
			app: cs{container(list("memory", "2Mi"))}, requests: list("memory", "6Mi")},
		{name: "sidecar after a large init does not", init: cs{container(list("memory", "5Mi")), sidecar(list("memory", "1Mi"))},
			app: cs{container(list("memory", "2Mi"))}, requests: list("memory", "5Mi")},
		{name: "two sidecars around an init", init: cs{sidecar(list("memory", "1Mi")), container(list("memory", "4Mi")), sidecar(list("memory", "2Mi"))},
			app: cs{container(list("memory", "1Mi"))}, requests: list("memory", "5Mi")},
		{name: "sidecars start with one another", init: cs{sidecar(list("memory", "3Mi")), sidecar(list("memory", "2Mi"))},
			app: cs{container(list("memory", "1Mi"))}, requests: list("memory", "6Mi")},
		{name: "pod level replaces", app: cs{container(list("cpu", "1", "memory", "2Mi"))}, pod: list("memory", "10Mi"),
			requests: list("cpu", "1", "memory", "10Mi")},
		{name: "pod level below the sum", app: cs{container(list("memory", "20Mi"))}, pod: list("memory", "10Mi"), requests: list("memory", "10Mi")},
		{name: "pod level and overhead", app: cs{container(list("memory", "2Mi"))}, pod: list("memory", "10Mi"), overhead: list("memory", "1Mi"),
			requests: list("memory", "11Mi")},
		{name: "pod level huge pages", pod: list("hugepages-2Mi", "4Mi"), requests: list("hugepages-2Mi", "4Mi")},
		{name: "pod level of another resource does not count", app: cs{container(list("example.org/gpu", "1"))}, pod: list("example.org/gpu", "9"),
			requests: list("example.org/gpu", "1")},
		{name: "document example", init: cs{container(list("cpu", "200m")), sidecar(list("cpu", "50m"))},
			app: cs{container(list("cpu", "100m")), container(list("cpu", "20m"))}, overhead: list("cpu", "10m"), requests: list("cpu", "210m")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: tt.init, Containers: tt.app}}
			if tt.pod != nil {
				pod.Spec.Resources = &corev1.ResourceRequirements{Requests: tt.pod, Limits: tt.pod}
			}
			before := pod.DeepCopy()
			same(t, "requests", EffectiveRequests(pod, tt.overhead), tt.requests)
			want := tt.limits
			if want == nil {
				want = tt.requests
			}
			same(t, "limits", EffectiveLimits(pod, tt.overhead), want)
			for i := range before.Spec.Containers {
				same(t, "the pod itself", pod.Spec.Containers[i].Resources.Requests, before.Spec.Containers[i].Resources.Requests)
			}
		})
	}
}

func same(t *testing.T, what string, got, want corev1.ResourceList) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for name, q := range want {
		if have, ok := got[name]; !ok || have.Cmp(q) != 0 {
			t.Errorf("%s: %s is %s, want %s", what, name, have.String(), q.String())
		}
	}
}

func TestCPU(t *testing.T) {
	for _, tt := range []struct{ milli, shares, quota int64 }{
		{0, 2, 0}, {1, 2, 1000}, {5, 5, 1000}, {100, 102, 10000}, {250, 256, 25000},
		{1000, 1024, 100000}, {1500, 1536, 150000}, {-5, 2, 0},
	} {
		if got := Shares(tt.milli); got != tt.shares {
			t.Errorf("Shares(%d) = %d, want %d", tt.milli, got, tt.shares)
		}
		if got := Quota(tt.milli, 0); got != tt.quota {
			t.Errorf("Quota(%d) = %d, want %d", tt.milli, got, tt.quota)
		}
	}
	if got := Shares(1 << 40); got != MaxShares {
		t.Errorf("Shares of very much = %d", got)
	}
}

func TestOverheadLinux(t *testing.T) {
	for _, tt := range []struct{ in, want Linux }{
		{OverheadLinux(list("cpu", "250m", "memory", "120Mi")), Linux{MemoryBytes: 120 << 20, CPUShares: 256, CPUQuota: 25000, CPUPeriod: 100000}},
		{OverheadLinux(list("memory", "1Mi")), Linux{MemoryBytes: 1 << 20}},
		{OverheadLinux(nil), Linux{}},
	} {
		if tt.in != tt.want {
			t.Errorf("%+v, want %+v", tt.in, tt.want)
		}
	}
}
