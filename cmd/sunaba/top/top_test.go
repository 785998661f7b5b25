package top

import (
	"bytes"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/overhead"
)

func TestPrintAndShow(t *testing.T) {
	rows := []Row{
		{Namespace: "prod", Name: "web", Handler: "wasm", CPU: 0.25, Memory: 20 << 20, Own: 11 << 20, Declared: overhead.Amounts{MemoryBytes: 8 << 20},
			Measured: 9 << 20, Verdict: overhead.Over, Restarts: 3},
		{Namespace: "prod", Name: "db", Handler: "runc", CPU: -1, Memory: 1 << 30, Own: 1<<30 - 3<<20, Measured: 3 << 20, Verdict: overhead.Undeclared},
	}
	var out bytes.Buffer
	if err := Print(&out, rows); err != nil {
		t.Fatal(err)
	}
	want := "POD       HANDLER  CPU    MEMORY    OVERHEAD DECLARED  | MEASURED  VERDICT     RESTARTS\n" +
		"prod/web  wasm     0.250  20.0 MiB  8.0 MiB            | 9.0 MiB   over        3\n" +
		"prod/db   runc     -      1.0 GiB   -                  | 3.0 MiB   undeclared  0\n"
	if out.String() != want {
		t.Errorf("\n%s, want\n%s", out.String(), want)
	}
	out.Reset()
	if err := show(&out, rows, 5); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "2 pods, memory 1.0 GiB: 1.0 GiB of their containers and 12.0 MiB overhead ") || !strings.Contains(out.String(), "and 1 more") || strings.Contains(out.String(), "prod/db") {
		t.Errorf("screen of five lines:\n%q", out.String())
	}
}

func TestCountRestarts(t *testing.T) {
	one := func(sandbox, name string, attempt uint32) *runtime.Container {
		return &runtime.Container{PodSandboxId: sandbox, Metadata: &runtime.ContainerMetadata{Name: name, Attempt: attempt}}
	}
	got := countRestarts([]*runtime.Container{one("a", "x", 0), one("a", "x", 2), one("a", "x", 1), one("a", "y", 1), one("b", "x", 0)})
	if got["a"] != 3 || got["b"] != 0 {
		t.Errorf("%v", got)
	}
}

func TestRates(t *testing.T) {
	usage := func(at int64, used uint64) *runtime.CpuUsage {
		return &runtime.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: &runtime.UInt64Value{Value: used}}
	}
	r := NewMeter()
	for i, c := range []struct {
		in   *runtime.CpuUsage
		want float64
	}{
		{usage(1000, 100), -1}, {usage(2000, 600), 0.5}, {usage(2000, 700), -1}, {usage(3000, 600), -1}, {nil, -1}, {usage(5000, 600), -1},
	} {
		if got := r.cores("a", c.in); got != c.want {
			t.Errorf("sample %d: %g, want %g", i, got, c.want)
		}
	}
}
