package translate

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// container app of 4Gi of memory; sums are in cpu milli and MiB.
func requests(cpu, memory string) string { return amounts("requests", cpu, memory) }

func limits(cpu, memory string) string { return amounts("limits", cpu, memory) }

func amounts(kind, cpu, memory string) string {
	var list []string
	if cpu != "" {
		list = append(list, "cpu: "+cpu)
	}
	if memory != "" {
		list = append(list, "memory: "+memory)
	}
	return kind + ": {" + strings.Join(list, ", ") + "}"
}

func set(list ...string) string { return "resources: {" + strings.Join(list, ", ") + "}" }

// RE3, RE4, RE5, RE11, RE14, RE16
func TestContainerResources(t *testing.T) {
	for _, tt := range []struct {
		name, spec, container         string
		shares, quota, memory, swap   int64
		unified, huge                 string
		version1, noAccounting, plain bool
	}{
		{name: "nothing", shares: 2},
		{name: "RE3: request", container: set(requests("100m", "")), shares: 102},
		{name: "RE3: least", container: set(requests("1m", "")), shares: 2},
		{name: "RE3: most", container: set(requests("1000", "")), shares: 262144},
		{name: "RE3: of the limit without a request", plain: true, container: set(limits("500m", "")), shares: 512, quota: 50000},
		{name: "RE3: of the request beside a limit", container: set(requests("250m", ""), limits("500m", "")), shares: 256, quota: 50000},
		{name: "RE4: least", container: set(limits("5m", "")), shares: 5, quota: 1000},
		{name: "RE5: memory", container: set(limits("", "64Mi")), shares: 2, memory: 64 << 20},
		{name: "RE11: version 1", version1: true, container: set(limits("", "64Mi")), shares: 2, memory: 64 << 20, swap: 64 << 20, unified: "map[]"},
		{name: "RE11: version 1 without a limit", version1: true, shares: 2, unified: "map[]"},
		{name: "RE11: swap that is not counted", noAccounting: true, container: set(limits("", "64Mi")), shares: 2, memory: 64 << 20, unified: "map[memory.oom.group:1]"},
		{name: "RE14", container: "resources: {limits: {memory: 1Gi, hugepages-1Gi: 2Gi}}", shares: 2, memory: 1 << 30, huge: "2MB=0 1GB=2147483648"},
		{name: "RE14: a size that the node lacks", container: "resources: {limits: {memory: 1Gi, hugepages-64Ki: 64Ki}}", shares: 2, memory: 1 << 30},
		{name: "RE14: less than nothing", container: "resources: {limits: {memory: 1Gi, hugepages-2Mi: -2Mi}}", shares: 2, memory: 1 << 30},
		{name: "RE16: own huge pages before the pod's", spec: "resources: {limits: {hugepages-2Mi: 8Mi}}", container: "resources: {limits: {hugepages-2Mi: 4Mi}}", shares: 2, huge: "2MB=4194304 1GB=0"},
		{name: "RE16: pod's limits", spec: "resources: {limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 2Mi}}", container: set(requests("100m", "")), shares: 102, quota: 200000, memory: 1 << 30, huge: "2MB=2097152 1GB=0"},
		{name: "RE16: own before the pod's", spec: "resources: {limits: {cpu: 2, memory: 1Gi}}", container: set(limits("1", "64Mi")), shares: 1024, quota: 100000, memory: 64 << 20},
		{name: "RE20: overhead is not the container's", spec: "overhead: {cpu: 1, memory: 1Gi}", container: set(limits("1", "64Mi")), shares: 1024, quota: 100000, memory: 64 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, tt.container))
			if tt.plain { // of a kubelet's input, not of the API server's
				in.Pod.Spec.Containers[0].Resources.Requests = nil
			}
			in.Node.CgroupV2, in.Node.SwapAccounting = !tt.version1, !tt.noAccounting
			if tt.unified == "" {
				tt.unified = "map[memory.oom.group:1 memory.swap.max:0]"
			}
			if tt.huge == "" {
				tt.huge = "2MB=0 1GB=0"
			}
			before := in.Pod.DeepCopy()
			r := Resources(in, &in.Pod.Spec.Containers[0])
			if r.GetCpuShares() != tt.shares || r.GetCpuQuota() != tt.quota || r.GetCpuPeriod() != 100000 ||
				r.GetMemoryLimitInBytes() != tt.memory || r.GetMemorySwapLimitInBytes() != tt.swap || fmt.Sprint(r.GetUnified()) != tt.unified {
				t.Errorf("%v", r)
			}
			var huge []string
			for _, h := range r.GetHugepageLimits() {
				huge = append(huge, fmt.Sprintf("%s=%d", h.GetPageSize(), h.GetLimit()))
			}
			if got := strings.Join(huge, " "); got != tt.huge {
				t.Errorf("huge pages %s, want %s", got, tt.huge)
			}
			if string(mustJSON(t, before)) != string(mustJSON(t, in.Pod)) {
				t.Error("the pod was changed")
			}
		})
	}
}

func TestPageSize(t *testing.T) {
	for bytes, want := range map[int64]string{1: "1B", 64 << 10: "64KB", 2 << 20: "2MB", 512 << 20: "512MB", 1 << 30: "1GB", 16 << 30: "16GB", 1500: "1500B"} {
		if got := pageSize(bytes); got != want {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}

// RE1, RE5, RE16, RE20, SC6
func TestSandboxResources(t *testing.T) {
	init := func(s string) string { return "initContainers: [{name: i, image: i, " + s + "}]" }
	side := func(s string) string {
		return "initContainers: [{name: s, image: s, restartPolicy: Always, " + s + "}]"
	}
	both := set(requests("100m", "64Mi"), limits("200m", "128Mi"))
	for _, tt := range []struct {
		name, spec, container string
		shares, quota, memory int64
		overhead              string
	}{
		{"nothing", "", "", 2, 0, 0, "nil"},
		{"one", "", both, 102, 20000, 128 << 20, "nil"},
		{"RE5: an init container without limits", init("command: [x]"), both, 102, 0, 0, "nil"},
		{"RE5: a sidecar with a memory limit only", side(set(limits("", "32Mi"))), both, 102, 0, 160 << 20, "nil"},
		{"RE1: a greater init container", init(set(requests("300m", "1Gi"), limits("1", "1Gi"))), both, 307, 100000, 1 << 30, "nil"},
		{"RE1: sidecar", side(set(requests("50m", "32Mi"), limits("100m", "32Mi"))), both, 153, 30000, 160 << 20, "nil"},
		{"RE20", "overhead: {cpu: 250m, memory: 16Mi}", both, 102, 20000, 128 << 20, "256 25000 100000 16777216"},
		{"RE20: memory only", "overhead: {memory: 16Mi}", both, 102, 20000, 128 << 20, "0 0 0 16777216"},
		{"RE16: pod's alone", "resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Gi}}", "", 512, 100000, 1 << 30, "nil"},
		{"RE16: pod's memory, containers' cpu", "resources: {limits: {memory: 1Gi}}", both, 102, 20000, 1 << 30, "nil"},
		{"RE16: pod's requests bound nothing", "resources: {requests: {cpu: 500m, memory: 1Gi}}", "", 512, 0, 0, "nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config, _, err := Sandbox(input(specPod(t, tt.spec, tt.container)))
			if err != nil {
				t.Fatal(err)
			}
			r := config.GetLinux().GetResources()
			if r.GetCpuShares() != tt.shares || r.GetCpuQuota() != tt.quota || r.GetCpuPeriod() != 100000 || r.GetMemoryLimitInBytes() != tt.memory || r.GetUnified()["memory.oom.group"] != "1" {
				t.Errorf("%v", r)
			}
			overhead := "nil"
			if o := config.GetLinux().Overhead; o != nil {
				overhead = fmt.Sprint(o.GetCpuShares(), o.GetCpuQuota(), o.GetCpuPeriod(), o.GetMemoryLimitInBytes())
			}
			if overhead != tt.overhead {
				t.Errorf("overhead %s, want %s", overhead, tt.overhead)
			}
			if config.GetLinux().GetCgroupParent() != "" {
				t.Errorf("cgroup parent %q", config.GetLinux().GetCgroupParent())
			}
		})
	}
}

// RE2, RE8: on a node of 4Gi.
func TestOOMScore(t *testing.T) {
	const sidecars = "initContainers: [{name: s, image: s, restartPolicy: Always, "
	for _, tt := range []struct {
		name, spec, container string
		want, init            int64 // init is 0 without an init container
	}{
		{"BestEffort", "", "", 1000, 0},
		{"Guaranteed", "", set(limits("1", "1Gi")), -997, 0},
		{"node critical", "priorityClassName: system-node-critical", "", -997, 0},
		{"cluster critical", "priorityClassName: system-cluster-critical", "", 1000, 0},
		{"a quarter", "", set(requests("", "1Gi")), 750, 0},
		{"rounded", "", set(requests("", "64Mi")), 985, 0},
		{"no memory request", "", set(requests("1", "")), 999, 0},
		{"everything", "", set(requests("", "4Gi")), 3, 0},
		{"more than everything", "", set(requests("", "8Ei")), 3, 0},
		{"sidecar as the least of the others", sidecars + set(requests("", "64Mi")) + "}]", set(requests("", "1Gi")), 750, 750},
		{"sidecar that requests more", sidecars + set(requests("", "2Gi")) + "}]", set(requests("", "1Gi")), 750, 500},
		{"init container by its own", "initContainers: [{name: i, image: i, " + set(requests("", "64Mi")) + "}]", set(requests("", "1Gi")), 750, 985},
		{"the pod's rest is spread", "resources: {requests: {memory: 3Gi}}", set(requests("", "1Gi")), 250, 0},
		{"and over init containers", "resources: {requests: {memory: 3Gi}}\ninitContainers: [{name: i, image: i}]", set(requests("", "1Gi")), 500, 750},
		{"also a sidecar's", "resources: {requests: {memory: 3Gi}}\n" + sidecars + set(requests("", "512Mi")) + "}]", set(requests("", "512Mi")), 625, 625},
		{"pod's CPU alone", "resources: {requests: {cpu: 1}}", set(requests("", "1Gi")), 750, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, tt.container))
			if got := Resources(in, &in.Pod.Spec.Containers[0]).GetOomScoreAdj(); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
			if tt.init == 0 {
				return
			}
			if got := Resources(in, &in.Pod.Spec.InitContainers[0]).GetOomScoreAdj(); got != tt.init {
				t.Errorf("init container: %d, want %d", got, tt.init)
			}
		})
	}
	// An ephemeral container requests nothing and counts for nothing.
	in := input(specPod(t, "", set(requests("", "1Gi"))))
	if got := Resources(in, &corev1.Container{Name: "debug"}).GetOomScoreAdj(); got != 999 {
		t.Errorf("ephemeral: %d", got)
	}
	in.Node.Memory = 0
	if got := Resources(in, &in.Pod.Spec.Containers[0]).GetOomScoreAdj(); got != 999 {
		t.Errorf("on a node of unknown memory: %d", got)
	}
}
