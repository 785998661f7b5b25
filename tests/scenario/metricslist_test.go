package scenario

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// The list of metrics in docs/metrics.md is what a server answers that has done something of
// everything: names, types and labels.
func TestMetricsAreAsDocumented(t *testing.T) {
	m := start(t, sharedHandlers+"[handlers.own-wasm]\ntype = \"wasm\"\nshim_scope = \"pod\"\n[metrics]\naddress = \"127.0.0.1:0\"\n[overhead]\nevery = \"1s\"\n")
	m.pull(world.Guest)
	for _, handler := range []string{"shared-wasm", "own-wasm"} {
		m.run(handler, func(c *runtime.PodSandboxConfig) {
			c.Linux.Overhead = &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuPeriod: 100000, CpuQuota: 10000, CpuShares: 102}
		}).begin(containerConfig(world.Guest, "idle")).says("idle")
	}
	const missing = "127.0.0.1:1/sunaba/missing:v1"
	if _, err := m.PullImage(t.Context(), &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: missing}}); err == nil {
		t.Error("an image of no registry was pulled")
	}
	if _, err := m.StartContainer(t.Context(), &runtime.StartContainerRequest{ContainerId: "none"}); err == nil {
		t.Error("a container that is not there was started")
	}
	documented := documentedMetrics(t)
	var answered map[string]string
	node.Within(node.Patience, func() bool {
		answered = answeredMetrics(t, m.metrics())
		return maps.Equal(answered, documented)
	})
	for _, name := range slices.Sorted(maps.Keys(answered)) {
		if documented[name] == "" {
			t.Errorf("%s (%s) is not in docs/metrics.md", name, answered[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if documented[name] != answered[name] {
			t.Errorf("%s: docs/metrics.md says %q, the server %q", name, documented[name], answered[name])
		}
	}
	m.countsWhatWasDone()
}

// countsWhatWasDone looks at the figures of TestMetricsAreAsDocumented.
func (m *machine) countsWhatWasDone() {
	m.t.Helper()
	text := m.metrics()
	for _, want := range []string{
		`sunaba_cri_requests_total{code="NotFound",method="StartContainer"} 1`,
		`sunaba_cri_requests_total{code="OK",method="StartContainer"} 2`,
		`sunaba_cri_request_duration_seconds_count{method="StartContainer"} 3`,
		`sunaba_cri_errors_total{class="RegistryUnavailable"} 1`,
		`sunaba_image_pulls_total{result="OK"} 1`,
		`sunaba_image_pulls_total{result="RegistryUnavailable"} 1`,
		`sunaba_image_pull_duration_seconds_count 1`,
		`sunaba_pod_starts_total{handler="own-wasm",result="OK"} 1`,
		`sunaba_container_starts_total{handler="shared-wasm",result="OK"} 1`,
		`sunaba_container_start_duration_seconds_count{handler="own-wasm"} 1`,
		`sunaba_shims{handler="own-wasm",shim_scope="pod"} 1`,
		`sunaba_shims{handler="shared-wasm",shim_scope="node"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			m.t.Errorf("%s is not in\n%s", want, text)
		}
	}
	bytes := regexp.MustCompile(`(?m)^sunaba_image_pull_bytes_total (\S+)$`).FindStringSubmatch(text)
	if bytes == nil {
		m.t.Fatal("no bytes of pulls")
	}
	if n, err := strconv.ParseFloat(bytes[1], 64); err != nil || n < 1000 {
		m.t.Errorf("pulls fetched %s bytes: %v", bytes[1], err)
	}
}

// documentedMetrics are the types and labels of docs/metrics.md, by name.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\| .+\\|$").FindAllStringSubmatch(string(data), -1) {
		labels := regexp.MustCompile("[a-z_]+").FindAllString(row[3], -1)
		found[row[1]] = fmt.Sprint(row[2], labels)
	}
	if len(found) < 20 {
		t.Fatalf("docs/metrics.md lists %d metrics", len(found))
	}
	return found
}

// answeredMetrics are those of a text in Prometheus' format, in the same form.
func answeredMetrics(t *testing.T, text string) map[string]string {
	t.Helper()
	found, standard := map[string]string{}, map[string]bool{}
	for _, head := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		name := head[1]
		if prefix, _, _ := strings.Cut(name, "_"); prefix != "sunaba" {
			standard[prefix] = true
			continue
		}
		labels := map[string]bool{}
		for _, sample := range regexp.MustCompile(`(?m)^`+name+`(?:_bucket|_sum|_count)?\{(.*)\} \S+$`).FindAllStringSubmatch(text, -1) {
			for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(sample[1], -1) {
				labels[l[1]] = true
			}
		}
		delete(labels, "le")
		found[name] = fmt.Sprint(head[2], slices.Sorted(maps.Keys(labels)))
	}
	if !maps.Equal(standard, map[string]bool{"go": true, "process": true}) {
		t.Errorf("beside sunaba's there are metrics of %v", standard)
	}
	return found
}
