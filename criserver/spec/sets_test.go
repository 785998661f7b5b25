package spec

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Processors and memory nodes that are not on the host are refused with their field, in time that
// does not grow with the numbers.
func TestCheckSets(t *testing.T) {
	host := Host{CPUs: "0-3,8", MemoryNodes: "0"}
	for _, c := range []struct {
		cpus, mems string
		field      string // that is refused, "" for none
	}{
		{"", "", ""},
		{"0", "0", ""},
		{"0-3,8", "0-0", ""},
		{"0-3:1/2,8,8", "", ""},
		{"0-8:1/8", "", ""},
		{"4", "", "cpuset_cpus"},
		{"0-8", "", "cpuset_cpus"},
		{"3-1", "", "cpuset_cpus"},
		{"0-3:0/2", "", "cpuset_cpus"},
		{"0-3:3/2", "", "cpuset_cpus"},
		{"0-3:1/0", "", "cpuset_cpus"},
		{"0-4294967295", "", "cpuset_cpus"},
		{"0-99999999999999999999", "", "cpuset_cpus"},
		{"0" + strings.Repeat(",0", maxList), "", "cpuset_cpus"},
		{"0", "1", "cpuset_mems"},
	} {
		r := &runtime.LinuxContainerResources{CpusetCpus: c.cpus, CpusetMems: c.mems}
		if err := CheckAmounts(r); err != nil {
			t.Errorf("%.40q: %v", c.cpus, err)
		}
		err := CheckSets(r, host)
		if c.field == "" && err != nil || c.field != "" && (!errdefs.IsInvalidArgument(err) || !strings.HasPrefix(err.Error(), c.field+": ")) {
			t.Errorf("%.40q, %q: %v, want field %q", c.cpus, c.mems, err, c.field)
		}
		if err := CheckSets(r, Host{}); err != nil {
			t.Errorf("a host of which nothing is known: %v", err)
		}
	}
}
