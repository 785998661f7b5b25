package probes

import (
	"fmt"
	"io"
	"strings"
)

// WriteMetrics writes counts in the text format of Prometheus, with a kubelet's names and labels
// (PR26). There are as many of them as pods have probes.
//
// prober_probe_duration_seconds has the sum and the number of the successful probes only: a
// kubelet's buckets would be a dozen lines for each probe.
func WriteMetrics(w io.Writer, counts []Count) error {
	var b strings.Builder
	const total, duration = "prober_probe_total", "prober_probe_duration_seconds"
	fmt.Fprintf(&b, "# HELP %s Cumulative number of a liveness, readiness or startup probe for a container by result.\n# TYPE %s counter\n", total, total)
	for _, c := range counts {
		for _, r := range []struct {
			name  string
			value uint64
		}{{"successful", c.Successful}, {"failed", c.Failed}, {"unknown", c.Unknown}} {
			fmt.Fprintf(&b, "%s{probe_type=%q,result=%q,container=%q,pod=%q,namespace=%q,pod_uid=%q} %d\n",
				total, c.Kind, r.name, c.Container, c.Pod, c.Namespace, c.UID, r.value)
		}
	}
	fmt.Fprintf(&b, "# HELP %s Duration in seconds for a probe response.\n# TYPE %s summary\n", duration, duration)
	for _, c := range counts {
		labels := fmt.Sprintf("{probe_type=%q,container=%q,pod=%q,namespace=%q}", c.Kind, c.Container, c.Pod, c.Namespace)
		fmt.Fprintf(&b, "%s_sum%s %g\n%s_count%s %d\n", duration, labels, c.Duration.Seconds(), duration, labels, c.Successful)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
