package overhead

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus/testutil"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestAmounts(t *testing.T) {
	for _, c := range []struct {
		in   *runtime.LinuxContainerResources
		want Amounts
	}{
		{nil, Amounts{}},
		{&runtime.LinuxContainerResources{CpuShares: 2}, Amounts{}},
		{&runtime.LinuxContainerResources{CpuShares: 102}, Amounts{CPUMillis: 100}},
		{&runtime.LinuxContainerResources{CpuShares: 1024, MemoryLimitInBytes: 7}, Amounts{CPUMillis: 1000, MemoryBytes: 7}},
		{&runtime.LinuxContainerResources{CpuShares: 1024, CpuQuota: 1000, CpuPeriod: 100000}, Amounts{CPUMillis: 10}},
	} {
		if got := ToAmounts(c.in); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
	}
	if got := (Amounts{1, 2}).Plus(Amounts{3, 4}); got != (Amounts{4, 6}) {
		t.Errorf("%+v", got)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		declared Amounts
		sample   Sample
		want     Verdict
	}{
		{Amounts{}, Sample{MemoryBytes: 9, CPUMillis: 9}, Undeclared},
		{Amounts{MemoryBytes: 9}, Sample{MemoryBytes: 9, CPUMillis: 9}, Within},
		{Amounts{MemoryBytes: 9}, Sample{MemoryBytes: 10}, Over},
		{Amounts{CPUMillis: 9}, Sample{MemoryBytes: 10, CPUMillis: 9}, Within},
		{Amounts{CPUMillis: 9}, Sample{CPUMillis: 10}, Over},
		{Amounts{CPUMillis: 9, MemoryBytes: 9}, Sample{CPUMillis: 10, MemoryBytes: 1}, Over},
	} {
		if got := Judge(c.declared, c.sample); got != c.want {
			t.Errorf("%+v of %+v: %s, want %s", c.sample, c.declared, got, c.want)
		}
	}
}

// node is a machine whose pods cost what the test says.
type node struct {
	pods   []Pod
	memory map[string]int64
	cpu    map[string]time.Duration
	err    map[string]error
	log    bytes.Buffer
	watch  *Watch
	now    time.Time
}

func newNode(pods ...Pod) *node {
	n := &node{pods: pods, memory: map[string]int64{}, cpu: map[string]time.Duration{}, err: map[string]error{}, now: time.Unix(1000, 0)}
	n.watch = New(Options{
		Pods: func() []Pod { return n.pods },
		Measure: func(_ context.Context, id string) (int64, time.Duration, error) {
			return n.memory[id], n.cpu[id], n.err[id]
		},
		Every: 10 * time.Second, All: true, Patience: time.Minute, Logger: slog.New(slog.NewTextHandler(&n.log, nil)),
	})
	return n
}

// sample lets time pass and samples.
func (n *node) sample(t *testing.T, passed time.Duration) {
	n.now = n.now.Add(passed)
	n.watch.Sample(t.Context(), n.now)
}

func TestRateAndVerdict(t *testing.T) {
	n := newNode(Pod{ID: "a", Declared: Amounts{CPUMillis: 100, MemoryBytes: 50}})
	n.memory["a"], n.cpu["a"] = 40, 5*time.Second
	n.sample(t, 0)
	r, ok := n.watch.Report("a")
	if !ok || r.Verdict != Within || r.Sample.CPUMillis != 0 || r.Sample.CPU != 5*time.Second {
		t.Fatalf("first: %+v, %v", r, ok)
	}
	n.cpu["a"] += 2 * time.Second // of 10: 200 thousandths
	n.sample(t, 10*time.Second)
	if r, _ = n.watch.Report("a"); r.Verdict != Over || r.Sample.CPUMillis != 200 || !r.Since.Equal(n.now) {
		t.Errorf("second: %+v", r)
	}
	n.cpu["a"] = 0 // the shim is another: no rate
	n.sample(t, 10*time.Second)
	if r, _ = n.watch.Report("a"); r.Verdict != Within || r.Sample.CPUMillis != 0 {
		t.Errorf("third: %+v", r)
	}
}

func TestWarnsOnceOfALongExcess(t *testing.T) {
	n := newNode(Pod{ID: "a", Name: "web", Namespace: "prod", Handler: "wasm", Class: "light", Declared: Amounts{MemoryBytes: 50}})
	warnings := func() int { return strings.Count(n.log.String(), "level=WARN") }
	n.memory["a"] = 60
	for range 6 {
		n.sample(t, 10*time.Second)
	}
	if warnings() != 0 {
		t.Fatalf("warned before a minute:\n%s", n.log.String())
	}
	for range 6 {
		n.sample(t, 10*time.Second)
	}
	if warnings() != 1 {
		t.Fatalf("%d warnings, want 1:\n%s", warnings(), n.log.String())
	}
	for _, want := range []string{"pod=prod/web", "handler=wasm", "class=light", "declared_bytes=50", "measured_bytes=60"} {
		if !strings.Contains(n.log.String(), want) {
			t.Errorf("%q is not in %s", want, n.log.String())
		}
	}
	n.memory["a"] = 50
	n.sample(t, 10*time.Second)
	n.memory["a"] = 60
	for range 7 {
		n.sample(t, 10*time.Second)
	}
	if warnings() != 2 {
		t.Errorf("%d warnings after a second excess, want 2", warnings())
	}
}

func TestPodsThatGoOrCannotBeMeasured(t *testing.T) {
	n := newNode(Pod{ID: "a"}, Pod{ID: "b"}, Pod{ID: "c"})
	n.err["b"] = fmt.Errorf("measure: %w", errdefs.ErrNotFound)
	n.err["c"] = errors.New("boom")
	n.sample(t, 0)
	if got := n.watch.Reports(); len(got) != 1 || got[0].Pod.ID != "a" || got[0].Verdict != Undeclared {
		t.Fatalf("%+v", got)
	}
	n.pods = nil
	n.sample(t, time.Second)
	if got := n.watch.Reports(); len(got) != 0 {
		t.Errorf("a pod that is gone is still reported: %+v", got)
	}
	if _, ok := n.watch.Report("a"); ok {
		t.Error("a pod that is gone has a report")
	}
}

// A pod that declares nothing is measured only if somebody collects the samples, or asks.
func TestOnlyWhatIsAskedForIsMeasured(t *testing.T) {
	measured := map[string]int{}
	declares, silent := Pod{ID: "declares", Declared: Amounts{MemoryBytes: 50}}, Pod{ID: "silent"}
	w := New(Options{
		Pods: func() []Pod { return []Pod{declares, silent} },
		Measure: func(_ context.Context, id string) (int64, time.Duration, error) {
			measured[id]++
			return 40, 0, nil
		},
		Every: time.Second, Patience: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	start := time.Unix(1000, 0)
	w.Sample(t.Context(), start)
	if measured["declares"] != 1 || measured["silent"] != 0 {
		t.Fatalf("measured %v", measured)
	}
	for _, step := range []struct {
		at          time.Duration
		cpu         time.Duration
		millis      int64
		memory, got int64
	}{
		{0, time.Second, 0, 60, 60},
		{500 * time.Millisecond, 2 * time.Second, 0, 70, 60}, // too soon for a rate
		{10 * time.Second, 2 * time.Second, 100, 80, 80},
	} {
		r := w.Asked(silent, Sample{At: start.Add(step.at), MemoryBytes: step.memory, CPU: step.cpu})
		if r.Verdict != Undeclared || r.Sample.CPUMillis != step.millis || r.Sample.MemoryBytes != step.got {
			t.Errorf("asked after %v: %+v", step.at, r)
		}
	}
	// What Run samples is not taken from those who ask: its rate is between its own samples.
	if r := w.Asked(declares, Sample{At: start.Add(time.Second), MemoryBytes: 60}); r.Verdict != Within || r.Sample.MemoryBytes != 40 {
		t.Errorf("asked for a pod that is watched: %+v", r)
	}
	w.Sample(t.Context(), start.Add(2*time.Second))
	if _, ok := w.Report("silent"); !ok {
		t.Error("what was asked for is forgotten while the pod runs")
	}
}

func TestMetrics(t *testing.T) {
	n := newNode(
		Pod{ID: "a", Name: "web", Namespace: "prod", Handler: "wasm", Class: "light", Created: time.Unix(900, 0), Declared: Amounts{CPUMillis: 10, MemoryBytes: 50}},
		Pod{ID: "b", Name: "db", Namespace: "prod", Handler: "runc"})
	n.memory["a"], n.cpu["a"], n.memory["b"], n.cpu["b"] = 60, 1500*time.Millisecond, 70, time.Second
	n.sample(t, 0)
	want := `
# HELP sunaba_pod_overhead_declared_bytes Memory that the pod's RuntimeClass declares as overhead.
# TYPE sunaba_pod_overhead_declared_bytes gauge
sunaba_pod_overhead_declared_bytes{class="light",handler="wasm",namespace="prod",pod="web",sandbox="a"} 50
# HELP sunaba_pod_overhead_declared_cpu_seconds_total CPU time that the declared overhead allows since the pod was created.
# TYPE sunaba_pod_overhead_declared_cpu_seconds_total counter
sunaba_pod_overhead_declared_cpu_seconds_total{class="light",handler="wasm",namespace="prod",pod="web",sandbox="a"} 1
# HELP sunaba_pod_overhead_exceeded 1 if the pod costs more than it declares, else 0.
# TYPE sunaba_pod_overhead_exceeded gauge
sunaba_pod_overhead_exceeded{class="light",handler="wasm",namespace="prod",pod="web",sandbox="a"} 1
# HELP sunaba_pod_overhead_measured_bytes Memory that the pod costs beyond its containers' own work: proportional set size.
# TYPE sunaba_pod_overhead_measured_bytes gauge
sunaba_pod_overhead_measured_bytes{class="",handler="runc",namespace="prod",pod="db",sandbox="b"} 70
sunaba_pod_overhead_measured_bytes{class="light",handler="wasm",namespace="prod",pod="web",sandbox="a"} 60
# HELP sunaba_pod_overhead_measured_cpu_seconds_total CPU time that the pod has cost beyond its containers' own work.
# TYPE sunaba_pod_overhead_measured_cpu_seconds_total counter
sunaba_pod_overhead_measured_cpu_seconds_total{class="",handler="runc",namespace="prod",pod="db",sandbox="b"} 1
sunaba_pod_overhead_measured_cpu_seconds_total{class="light",handler="wasm",namespace="prod",pod="web",sandbox="a"} 1.5
`
	names := []string{"sunaba_pod_overhead_declared_bytes", "sunaba_pod_overhead_declared_cpu_seconds_total", "sunaba_pod_overhead_exceeded",
		"sunaba_pod_overhead_measured_bytes", "sunaba_pod_overhead_measured_cpu_seconds_total"}
	if err := testutil.CollectAndCompare(n.watch.Collector(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if got := testutil.CollectAndCount(n.watch.Collector(), "sunaba_pod_overhead_bytes"); got != 2 {
		t.Errorf("histograms of %d handlers, want 2", got)
	}
	if problems, err := testutil.CollectAndLint(n.watch.Collector()); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}
