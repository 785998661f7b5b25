package runtimeclass

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The kernel's and the kubelet's numbers for CPU: shares are relative weights
// with 1024 to the CPU, a quota is microseconds in each period.
const (
	MinShares     = 2
	MaxShares     = 262144
	sharesPerCPU  = 1024
	milliPerCPU   = 1000
	DefaultPeriod = 100_000 // µs
	minQuota      = 1000    // µs; the kernel refuses less
)

// Shares returns the CPU shares for a request in thousandths of a CPU, as the
// kubelet computes them.
func Shares(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return MinShares
	}
	return min(max(milliCPU*sharesPerCPU/milliPerCPU, MinShares), MaxShares)
}

// Quota returns the CPU time in µs per period for a limit in thousandths of a
// CPU; 0 for no limit. Period 0 is the default period.
func Quota(milliCPU, period int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	if period <= 0 {
		period = DefaultPeriod
	}
	return max(milliCPU*period/milliPerCPU, minQuota)
}

// MilliFromShares turns shares back into thousandths of a CPU, rounding up, so
// that Shares of the result is shares again for whole thousandths.
func MilliFromShares(shares int64) int64 {
	if shares <= MinShares {
		return 0
	}
	return int64(math.Ceil(float64(shares) * milliPerCPU / sharesPerCPU))
}

// MilliFromQuota turns a quota and its period, both in µs, into thousandths
// of a CPU; 0 for no limit.
func MilliFromQuota(quota, period int64) int64 {
	if quota <= 0 {
		return 0
	}
	if period <= 0 {
		period = DefaultPeriod
	}
	return quota * milliPerCPU / period
}

// Linux is an amount of resources as the CRI's LinuxContainerResources has it.
// Zero means not given.
type Linux struct {
	MemoryBytes                    int64
	CPUShares, CPUQuota, CPUPeriod int64 // quota and period in µs
}

// Amounts turns the numbers back into what a user wrote: request from shares, limit from quota.
func (l Linux) Amounts() (cpuRequest, cpuLimit, memory resource.Quantity) {
	return *resource.NewMilliQuantity(MilliFromShares(l.CPUShares), resource.DecimalSI),
		*resource.NewMilliQuantity(MilliFromQuota(l.CPUQuota, l.CPUPeriod), resource.DecimalSI),
		*resource.NewQuantity(l.MemoryBytes, resource.BinarySI)
}

// String writes the amount for people: "cpu 250m (limit 500m), memory 64Mi",
// "nothing" if nothing is given.
func (l Linux) String() string {
	request, limit, memory := l.Amounts()
	var parts []string
	switch {
	case !request.IsZero() && !limit.IsZero() && request.Cmp(limit) != 0:
		parts = append(parts, fmt.Sprintf("cpu %s (limit %s)", request.String(), limit.String()))
	case !request.IsZero():
		parts = append(parts, "cpu "+request.String())
	case !limit.IsZero():
		parts = append(parts, "cpu limit "+limit.String())
	}
	if !memory.IsZero() {
		parts = append(parts, "memory "+memory.String())
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// OverheadLinux turns a class's overhead into the numbers the kubelet puts
// into the sandbox's linux.overhead: memory and CPU as limits, and shares.
func OverheadLinux(overhead corev1.ResourceList) Linux {
	l := Linux{MemoryBytes: overhead.Memory().Value()}
	if cpu := overhead.Cpu().MilliValue(); cpu > 0 {
		l.CPUShares = Shares(cpu)
		l.CPUQuota = Quota(cpu, DefaultPeriod)
		l.CPUPeriod = DefaultPeriod
	}
	return l
}
