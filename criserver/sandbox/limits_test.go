package sandbox

import (
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/state"
)

func TestLimits(t *testing.T) {
	type r = runtime.LinuxContainerResources
	for _, c := range []struct {
		name                string
		resources, overhead *r
		want                cgroup.Limits
	}{
		{"nothing declared", nil, nil, cgroup.Limits{}},
		{"overhead alone limits nothing", nil, &r{MemoryLimitInBytes: 1 << 20, CpuShares: 10}, cgroup.Limits{}},
		{"memory", &r{MemoryLimitInBytes: 64 << 20}, &r{MemoryLimitInBytes: 16 << 20, CpuShares: 10, CpuQuota: 1000}, cgroup.Limits{Memory: 80 << 20}},
		{"without overhead", &r{MemoryLimitInBytes: 64 << 20, CpuShares: 512}, nil, cgroup.Limits{Memory: 64 << 20, Shares: 512}},
		{"shares", &r{CpuShares: 512}, &r{CpuShares: 10}, cgroup.Limits{Shares: 522}},
		{"quota", &r{CpuQuota: 50000, CpuPeriod: 100000}, &r{CpuQuota: 1000, CpuPeriod: 100000}, cgroup.Limits{Quota: 51000, Period: 100000}},
		{"quotas of different periods", &r{CpuQuota: 5000, CpuPeriod: 10000}, &r{CpuQuota: 1000}, cgroup.Limits{Quota: 5100, Period: 10000}},
		{"overhead in shares", &r{CpuQuota: 50000}, &r{CpuShares: 102}, cgroup.Limits{Quota: 59960, Period: 100000}},
		{"no quota stays none", &r{CpuQuota: -1, CpuShares: 2}, &r{CpuQuota: 1000}, cgroup.Limits{Shares: 2}},
	} {
		rec := state.Sandbox{Resources: state.Resources{Value: c.resources}, Overhead: state.Resources{Value: c.overhead}}
		if got := Limits(rec); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
