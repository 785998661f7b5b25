package overhead

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsOfShims(t *testing.T) {
	c := NewShimCollector([]Handler{{"runc", "oci", "node"}, {"wasm", "wasm", "pod"}}, func(context.Context) []SharedShim {
		return []SharedShim{{
			Handler: "runc", Pods: 3, Memory: map[string]uint64{"shim": 4096, "supervisor": 1024}, CPU: 1500 * time.Millisecond,
			Restarts: 2, Adopted: 5, Lost: 1,
		}}
	}, func() map[string]int { return map[string]int{"wasm": 4} })
	want := `
# HELP sunaba_handler_info 1 for each runtime handler, with its type and whether its new pods share a shim (node) or not (pod).
# TYPE sunaba_handler_info gauge
sunaba_handler_info{handler="runc",shim_scope="node",type="oci"} 1
sunaba_handler_info{handler="wasm",shim_scope="pod",type="wasm"} 1
# HELP sunaba_shared_shim_adopted_containers_total Containers that shims took over from the ones that died before them.
# TYPE sunaba_shared_shim_adopted_containers_total counter
sunaba_shared_shim_adopted_containers_total{handler="runc"} 5
# HELP sunaba_shared_shim_cpu_seconds_total CPU time of the shared shim and its supervisor, divided among the pods in their overhead.
# TYPE sunaba_shared_shim_cpu_seconds_total counter
sunaba_shared_shim_cpu_seconds_total{handler="runc"} 1.5
# HELP sunaba_shared_shim_lost_containers_total Containers that shims failed to adopt, and that have ended.
# TYPE sunaba_shared_shim_lost_containers_total counter
sunaba_shared_shim_lost_containers_total{handler="runc"} 1
# HELP sunaba_shared_shim_memory_bytes Memory of the shared shim and of its supervisor: proportional set size, divided among the pods in their overhead.
# TYPE sunaba_shared_shim_memory_bytes gauge
sunaba_shared_shim_memory_bytes{handler="runc",process="shim"} 4096
sunaba_shared_shim_memory_bytes{handler="runc",process="supervisor"} 1024
# HELP sunaba_shared_shim_pods Pods that share the handler's shim.
# TYPE sunaba_shared_shim_pods gauge
sunaba_shared_shim_pods{handler="runc"} 3
# HELP sunaba_shared_shim_restarts_total Shared shims that have died and that the supervisor has replaced.
# TYPE sunaba_shared_shim_restarts_total counter
sunaba_shared_shim_restarts_total{handler="runc"} 2
# HELP sunaba_shims Shims that run: those of pods that have their own (pod), and the one that the handler's pods share (node).
# TYPE sunaba_shims gauge
sunaba_shims{handler="runc",shim_scope="node"} 1
sunaba_shims{handler="wasm",shim_scope="pod"} 4
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}
