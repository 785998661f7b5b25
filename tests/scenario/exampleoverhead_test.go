package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	nodev1 "k8s.io/api/node/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/tests/node"
)

// The classes of examples/runtimeclasses.yaml declare as much memory as a lonely pod of the example
// greeter costs: `sunaba top` calls it within.
func TestOverheadOfTheExamplesClasses(t *testing.T) {
	file, err := filepath.Abs("../../examples/runtimeclasses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		var class nodev1.RuntimeClass
		if err := yaml.Unmarshal([]byte(text), &class); err != nil {
			t.Fatal(err)
		}
		t.Run(class.Name, func(t *testing.T) {
			m := start(t, "[overhead]\nevery = \"1s\"\nclasses = [\""+file+"\"]")
			m.pull(world.Greeter)
			memory, cpu := class.Overhead.PodFixed.Memory().Value(), class.Overhead.PodFixed.Cpu().MilliValue()
			m.run(class.Handler, func(config *runtime.PodSandboxConfig) {
				config.Linux.Overhead = &runtime.LinuxContainerResources{MemoryLimitInBytes: memory, CpuShares: cpu * 1024 / 1000, CpuQuota: cpu * 100, CpuPeriod: 100000}
			}).begin(containerConfig(world.Greeter))
			line := regexp.MustCompile(`(?m)^\S+/\S+\s+` + class.Handler + `\s.*\s(within|over|undeclared)\s+\d+$`)
			verdict := func() string {
				code, out, said := m.Sunaba("top", "--once", "--every", "100ms", "--socket", m.Socket)
				found := line.FindStringSubmatch(out)
				if code != 0 || found == nil {
					t.Fatalf("top ends with %d:\n%s%s", code, out, said)
				}
				return found[1]
			}
			// A start costs processor time, which the class declares for later; memory is never
			// more.
			if !node.Within(node.Patience, func() bool { return verdict() == "within" }) {
				t.Fatalf("the greeter's pod is %s what its class declares", verdict())
			}
			for range 5 {
				time.Sleep(time.Second)
				var info struct {
					Overhead struct{ Measured struct{ MemoryBytes int64 } }
				}
				pods, err := m.ListPodSandbox(t.Context(), &runtime.ListPodSandboxRequest{})
				if err != nil || len(pods.GetItems()) != 1 {
					t.Fatalf("%v, %v", pods, err)
				}
				status, err := m.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: pods.GetItems()[0].GetId(), Verbose: true})
				if err != nil {
					t.Fatal(err)
				}
				if parse(t, status, &info); info.Overhead.Measured.MemoryBytes == 0 || info.Overhead.Measured.MemoryBytes > memory {
					t.Errorf("%d bytes measured, %d declared", info.Overhead.Measured.MemoryBytes, memory)
				}
			}
		})
	}
}
