package agent

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// PR26: what probes came to is in the metrics, until the pod is gone.
func TestProbeMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one+"\n    readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1}\n    livenessProbe: {exec: {command: [\"false\"]}, failureThreshold: 100, periodSeconds: 1}")
		w.start()
		w.until("ready", func() bool { return w.ready("web") })
		w.settle(10 * time.Second)
		read := func() string {
			var b strings.Builder
			if err := w.agent.Metrics(&b); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		text := read()
		for _, want := range []string{
			`prober_probe_total{probe_type="Readiness",result="successful",container="app",pod="web",namespace="default",pod_uid="[-0-9a-f]{36}"} [1-9]`,
			`prober_probe_total{probe_type="Liveness",result="failed",container="app",pod="web",namespace="default",pod_uid="[-0-9a-f]{36}"} [1-9]`,
			`prober_probe_duration_seconds_count{probe_type="Readiness",container="app",pod="web",namespace="default"} [1-9]`,
		} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		w.wishes.set(t, "")
		w.gone()
		if text := read(); strings.Contains(text, `pod="web"`) {
			t.Errorf("of a pod that is gone:\n%s", text)
		}
		w.stop()
	})
}
