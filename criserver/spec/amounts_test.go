package spec

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCheckAmounts(t *testing.T) {
	huge := func(size string) *runtime.LinuxContainerResources {
		return &runtime.LinuxContainerResources{HugepageLimits: []*runtime.HugepageLimit{{PageSize: "2MB"}, {PageSize: size}}}
	}
	for _, c := range []struct {
		r     *runtime.LinuxContainerResources
		field string // that is refused, "" for none
	}{
		{nil, ""},
		{&runtime.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, CpuQuota: 1000, MemoryLimitInBytes: 1 << 20, OomScoreAdj: -1000}, ""},
		{&runtime.LinuxContainerResources{CpuShares: 262144, CpuPeriod: 1000000, CpuQuota: -1, MemoryLimitInBytes: -1, MemorySwapLimitInBytes: -1, OomScoreAdj: 1000}, ""},
		{&runtime.LinuxContainerResources{CpuPeriod: 1000, MemoryLimitInBytes: 5, MemorySwapLimitInBytes: 5}, ""},
		{&runtime.LinuxContainerResources{CpusetCpus: "0", CpusetMems: "0-3,7,8-31:2/4"}, ""},
		{huge("64KB"), ""},
		{&runtime.LinuxContainerResources{CpuShares: -1}, "cpu_shares"},
		{&runtime.LinuxContainerResources{CpuPeriod: -1}, "cpu_period"},
		{&runtime.LinuxContainerResources{CpuShares: 1}, "cpu_shares"},
		{&runtime.LinuxContainerResources{CpuShares: 262145}, "cpu_shares"},
		{&runtime.LinuxContainerResources{CpuPeriod: 999}, "cpu_period"},
		{&runtime.LinuxContainerResources{CpuPeriod: 1000001}, "cpu_period"},
		{&runtime.LinuxContainerResources{CpuQuota: -2}, "cpu_quota"},
		{&runtime.LinuxContainerResources{CpuQuota: 999}, "cpu_quota"},
		{&runtime.LinuxContainerResources{MemoryLimitInBytes: -2}, "memory_limit_in_bytes"},
		{&runtime.LinuxContainerResources{MemorySwapLimitInBytes: -2}, "memory_swap_limit_in_bytes"},
		{&runtime.LinuxContainerResources{MemorySwapLimitInBytes: 2}, "memory_swap_limit_in_bytes"},
		{&runtime.LinuxContainerResources{MemoryLimitInBytes: 3, MemorySwapLimitInBytes: 2}, "memory_swap_limit_in_bytes"},
		{&runtime.LinuxContainerResources{OomScoreAdj: 1001}, "oom_score_adj"},
		{&runtime.LinuxContainerResources{OomScoreAdj: -1001}, "oom_score_adj"},
		{&runtime.LinuxContainerResources{CpusetCpus: "all"}, "cpuset_cpus"},
		{&runtime.LinuxContainerResources{CpusetCpus: "0-"}, "cpuset_cpus"},
		{&runtime.LinuxContainerResources{CpusetMems: "0\n1"}, "cpuset_mems"},
		{huge(""), "hugepage_limits[1].page_size"},
		{huge("2mb"), "hugepage_limits[1].page_size"},
	} {
		err := CheckAmounts(c.r)
		if c.field == "" && err != nil || c.field != "" && (!errdefs.IsInvalidArgument(err) || !strings.HasPrefix(err.Error(), c.field+": ")) {
			t.Errorf("%v: %v, want field %q", c.r, err, c.field)
		}
	}
}

func TestCheckPodAmounts(t *testing.T) {
	for _, bad := range []*runtime.LinuxContainerResources{{CpuShares: -1}, {CpuPeriod: -1}, {MemoryLimitInBytes: -1}} {
		if err := CheckPodAmounts(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	for _, good := range []*runtime.LinuxContainerResources{nil, {}, {CpuQuota: -1}} {
		if err := CheckPodAmounts(good); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
}
