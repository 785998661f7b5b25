package probes

import (
	"strings"
	"testing"
	"time"
)

// PR26: a kubelet's names and labels.
func TestWriteMetrics(t *testing.T) {
	var b strings.Builder
	if err := WriteMetrics(&b, []Count{{
		UID: "u", Namespace: "default", Pod: "web", Container: "app", Kind: Readiness, Successful: 3, Failed: 1, Duration: 1500 * time.Millisecond,
	}}); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP prober_probe_total Cumulative number of a liveness, readiness or startup probe for a container by result.
# TYPE prober_probe_total counter
prober_probe_total{probe_type="Readiness",result="successful",container="app",pod="web",namespace="default",pod_uid="u"} 3
prober_probe_total{probe_type="Readiness",result="failed",container="app",pod="web",namespace="default",pod_uid="u"} 1
prober_probe_total{probe_type="Readiness",result="unknown",container="app",pod="web",namespace="default",pod_uid="u"} 0
# HELP prober_probe_duration_seconds Duration in seconds for a probe response.
# TYPE prober_probe_duration_seconds summary
prober_probe_duration_seconds_sum{probe_type="Readiness",container="app",pod="web",namespace="default"} 1.5
prober_probe_duration_seconds_count{probe_type="Readiness",container="app",pod="web",namespace="default"} 3
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}
