// Package overhead sets what RuntimeClasses declare as the overhead of a pod beside what it really
// costs, for every pod all the time: samples, verdicts, metrics, and a warning when a pod costs
// more than it may.
package overhead

import (
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Amounts are resources in the units people compare: thousandths of a core, and bytes. Zero is not
// given.
type Amounts struct {
	CPUMillis   int64 `json:"cpuMillis"`
	MemoryBytes int64 `json:"memoryBytes"`
}

// ToAmounts reads limits as the kubelet sends them: the quota if there is one, else the shares;
// 1024 shares are a core.
func ToAmounts(r *runtime.LinuxContainerResources) Amounts {
	a := Amounts{MemoryBytes: r.GetMemoryLimitInBytes()}
	switch {
	case r.GetCpuQuota() > 0 && r.GetCpuPeriod() > 0:
		a.CPUMillis = (r.GetCpuQuota()*1000 + r.GetCpuPeriod()/2) / r.GetCpuPeriod()
	case r.GetCpuShares() > 2: // 2 is the kernel's least and stands for none
		a.CPUMillis = (r.GetCpuShares()*1000 + 512) / 1024
	}
	return a
}

// Plus adds two amounts.
func (a Amounts) Plus(b Amounts) Amounts {
	return Amounts{CPUMillis: a.CPUMillis + b.CPUMillis, MemoryBytes: a.MemoryBytes + b.MemoryBytes}
}

// Sample is what a pod cost beyond its containers' own work at one time.
type Sample struct {
	At          time.Time
	MemoryBytes int64
	CPU         time.Duration // used since the pod started
	// CPUMillis is the rate since the sample before, in thousandths of a core; 0 for a first sample.
	CPUMillis int64
}

// Verdict compares a sample with what was declared.
type Verdict string

// The verdicts.
const (
	Undeclared Verdict = "undeclared" // nothing to compare with
	Within     Verdict = "within"
	Over       Verdict = "over" // in memory or CPU
)

// Judge compares. A resource that was not declared is not compared.
func Judge(declared Amounts, s Sample) Verdict {
	switch {
	case declared == Amounts{}:
		return Undeclared
	case declared.MemoryBytes > 0 && s.MemoryBytes > declared.MemoryBytes:
		return Over
	case declared.CPUMillis > 0 && s.CPUMillis > declared.CPUMillis:
		return Over
	}
	return Within
}
