package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/tests/node"
)

// rollup is a process's proportional set size as the kernel sums it up.
func rollup(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^Pss:\s+(\d+) kB`).FindSubmatch(data)
	if found == nil {
		t.Fatalf("process %d has no Pss in\n%s", pid, data)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// The measured overhead of 20 pods of each kind is what smaps_rollup says of their shims and
// engines from outside. A C guest's own memory is small enough to be within the tolerance.
func TestOverheadIsTrue(t *testing.T) {
	const pods, tolerance = 20, 0.10
	m := startOwn(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for handler, config := range map[string]*runtime.ContainerConfig{"runc": sh("exec sleep 1000"), "wasm": containerConfig(world.Guest, "idle")} {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			var all []*pod
			for range pods {
				p := m.run(handler)
				p.begin(config)
				all = append(all, p)
			}
			for i, p := range all {
				// Shims give memory back some time after a start, and asking wakes them, which
				// takes memory for a moment: the two looks are of the same pod only if nothing of
				// that is between them.
				var inside, outside int64
				var off float64
				if !node.Within(node.Patience, func() bool {
					inside, outside = p.measured()
					off = float64(inside-outside) / float64(outside)
					return off <= tolerance && off >= -tolerance
				}) {
					t.Errorf("pod %d: %d bytes measured, %d from outside: %+.1f %%", i, inside, outside, off*100)
				}
			}
			for _, p := range all {
				p.remove()
			}
		})
	}
}

// measured is the pod's measured overhead in bytes, and what its processes have as the kernel sums
// it up.
func (p *pod) measured() (inside, outside int64) {
	p.t.Helper()
	var info struct {
		Overhead struct {
			Measured struct {
				MemoryBytes int64
				Parts       []part
			}
		}
	}
	parse(p.t, p.status(), &info)
	for _, part := range info.Overhead.Measured.Parts {
		outside += rollup(p.t, part.PID)
	}
	return info.Overhead.Measured.MemoryBytes, outside
}

// parse reads the verbose part of a status.
func parse(t *testing.T, status *runtime.PodSandboxStatusResponse, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), into); err != nil {
		t.Fatal(err)
	}
}

// What pods cost is on the metrics page, in `sunaba top` and in `sunaba runtimeclass list`, with
// the class that was read from the manifests, which SIGHUP reads again.
func TestOverheadIsSeen(t *testing.T) {
	manifests, err := os.MkdirTemp(world.Folder, "classes-")
	if err != nil {
		t.Fatal(err)
	}
	class := func(name, handler string) {
		t.Helper()
		text := fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\noverhead: {podFixed: {memory: 64Mi, cpu: 100m}}\n", name, handler)
		if err := os.WriteFile(filepath.Join(manifests, "class.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	class("light", "wasm")
	m := start(t, fmt.Sprintf("[metrics]\naddress = \"127.0.0.1:0\"\n[overhead]\nevery = \"1s\"\nclasses = [%q]", manifests))
	m.pull(world.Guest)
	p := m.run("wasm", func(config *runtime.PodSandboxConfig) {
		config.Linux.Overhead = &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuShares: 102, CpuQuota: 10000, CpuPeriod: 100000}
	})
	p.begin(containerConfig(world.Guest, "idle")).says("idle")

	m.sees(`sunaba_pod_overhead_declared_bytes{class="light",handler="wasm"`, m.metrics)
	m.sees(`sunaba_pod_overhead_exceeded{class="light",handler="wasm"`, m.metrics)
	m.sees(`sunaba_pod_overhead_measured_cpu_seconds_total{class="light"`, m.metrics)
	m.sees(`sunaba_pod_overhead_bytes_count{handler="wasm"}`, m.metrics)

	class("light", "runc") // a handler cannot be changed
	if err := syscall.Kill(m.DaemonPID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.sees("its handler was", m.DaemonLog)
	class("heavy", "wasm")
	if err := syscall.Kill(m.DaemonPID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.sees(`sunaba_pod_overhead_declared_bytes{class="heavy",handler="wasm"`, m.metrics)

	line := regexp.MustCompile(`(?m)^\S+/\S+\s+wasm\s+[\d.]+\s+[\d.]+ [KM]iB\s+64\.0 MiB\s+\| [\d.]+ MiB\s+within\s+0$`)
	var code int
	var out, said string
	within := func() bool { // once the pod's processes have started, which costs more than the class declares
		code, out, said = m.Sunaba("top", "--once", "--every", "100ms", "--socket", m.Socket)
		return code != 0 || line.MatchString(out)
	}
	if !node.Within(node.Patience, within) || code != 0 {
		t.Errorf("top ends with %d:\n%s%s", code, out, said)
	}
	code, out, said = m.Sunaba("runtimeclass", "list", "--json", "--socket", m.Socket, "--runtimeclass", manifests)
	var rows []struct {
		Class   string
		Handler struct {
			Name    string
			Engines []string
		}
		MeasuredOverheadBytes []int64
	}
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) != 3 {
		t.Fatalf("list ends with %d, %v:\n%s%s", code, err, out, said)
	}
	if r := rows[0]; r.Class != "heavy" || r.Handler.Name != "wasm" || len(r.Handler.Engines) != 2 || len(r.MeasuredOverheadBytes) != 1 {
		t.Errorf("first row %+v", r)
	}
	class("other", "kata")
	code, out, _ = m.Sunaba("runtimeclass", "list", "--socket", m.Socket, "--runtimeclass", manifests)
	if code != 1 || !strings.Contains(out, `handler "kata" is not configured on this node (configured: crun, runc, wasm)`) {
		t.Errorf("list with an unknown handler ends with %d:\n%s", code, out)
	}
}

// The measuring command prints a class that its own reader takes, draws a picture, and leaves no
// pod.
func TestOverheadMeasure(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	plot := filepath.Join(m.Logs, "plot.svg")
	code, out, said := m.Sunaba("overhead", "measure", "--socket", m.Socket, "--handler", "wasm", "-n", "2", "--image", world.Guest,
		"--idle", "300ms", "--work", "500ms", "--plot", plot, "--", "/guest.wasm", "idle")
	if code != 0 {
		t.Fatalf("it ends with %d:\n%s", code, said)
	}
	classes, err := runtimeclass.Parse("stdout", []byte(out))
	if err != nil || len(classes) != 1 || classes[0].Name != "sunaba-wasm" || classes[0].Handler != "wasm" {
		t.Fatalf("%v in\n%s", err, out)
	}
	declared := runtimeclass.Overhead(&classes[0])
	if memory := declared.Memory().Value(); memory < 1<<20 || memory > 64<<20 {
		t.Errorf("it declares %d bytes:\n%s\n%s", memory, out, said)
	}
	if data, err := os.ReadFile(plot); err != nil || !bytes.HasPrefix(data, []byte("<svg ")) {
		t.Errorf("the picture: %v\n%s", err, data)
	}
	if list, err := m.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{}); err != nil || len(list.GetItems()) != 0 {
		t.Errorf("pods are left: %v, %v", list, err)
	}
	code, _, said = m.Sunaba("overhead", "measure", "--socket", m.Socket, "--handler", "wasm", "-n", "1", "--image", world.Guest,
		"--idle", "100ms", "--work", "100ms", "--", "/guest.wasm", "exit", "3")
	if code != 1 || !strings.Contains(said, "ended with 3") {
		t.Errorf("of a container that ends it ends with %d:\n%s", code, said)
	}
	code, _, said = m.Sunaba("overhead", "measure", "--socket", m.Socket, "--handler", "kata", "--image", world.Guest)
	if code != 1 || !strings.Contains(said, `handler "kata" is not configured on this node`) {
		t.Errorf("of an unknown handler it ends with %d:\n%s", code, said)
	}
}
