package scenario

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/tests/node"
)

// Prometheus finds what a shared shim costs, which is what its pods are charged with, and how often
// it was replaced.
func TestMetricsOfASharedShim(t *testing.T) {
	m := start(t, sharedHandlers+"[handlers.own-runc]\ntype = \"oci\"\nshim_scope = \"pod\"\n[metrics]\naddress = \"127.0.0.1:0\"")
	m.pull(world.Guest)
	pods := []*pod{m.run("shared-wasm"), m.run("shared-wasm")}
	for _, p := range pods {
		p.begin(containerConfig(world.Guest, "idle")).says("idle")
	}
	m.sees(`sunaba_handler_info{handler="shared-wasm",shim_scope="node",type="wasm"} 1`, m.metrics)
	m.sees(`sunaba_handler_info{handler="own-runc",shim_scope="pod",type="oci"} 1`, m.metrics)
	m.sees(`sunaba_shared_shim_pods{handler="shared-wasm"} 2`, m.metrics)
	m.sees(`sunaba_shared_shim_restarts_total{handler="shared-wasm"} 0`, m.metrics)
	for i := range 2 {
		pods[0].killSharedShim()
		m.sees(fmt.Sprintf(`sunaba_shared_shim_restarts_total{handler="shared-wasm"} %d`, i+1), m.metrics)
		m.sees(fmt.Sprintf(`sunaba_shared_shim_adopted_containers_total{handler="shared-wasm"} %d`, 2*(i+1)), m.metrics)
	}
	m.sees(`sunaba_shared_shim_lost_containers_total{handler="shared-wasm"} 0`, m.metrics)
	for _, name := range []string{`memory_bytes{handler="shared-wasm",process="shim"}`, `memory_bytes{handler="shared-wasm",process="supervisor"}`,
		`cpu_seconds_total{handler="shared-wasm"}`} {
		line := regexp.MustCompile(`(?m)^sunaba_shared_shim_` + regexp.QuoteMeta(name) + ` (\S+)$`)
		positive := func() bool {
			found := line.FindStringSubmatch(m.metrics())
			if found == nil {
				return false
			}
			value, err := strconv.ParseFloat(found[1], 64)
			return err == nil && value > 0
		}
		if !node.Within(node.Patience, positive) {
			t.Errorf("sunaba_shared_shim_%s is not above 0 in\n%s", name, m.metrics())
		}
	}
}

// metrics is what the daemon tells Prometheus.
func (m *machine) metrics() string {
	m.t.Helper()
	address := regexp.MustCompile(`serving metrics" address=(\S+)`).FindStringSubmatch(m.DaemonLog())
	if address == nil {
		m.t.Fatalf("no metrics are served:\n%s", m.DaemonLog())
	}
	resp, err := http.Get("http://" + address[1] + "/metrics")
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// sees waits until a text says something.
func (m *machine) sees(what string, in func() string) {
	m.t.Helper()
	if !node.Within(node.Patience, func() bool { return strings.Contains(in(), what) }) {
		m.t.Errorf("%q is not in\n%s\nthe daemon said:\n%s", what, in(), m.DaemonLog())
	}
}
