package runtimeclass

import (
	corev1 "k8s.io/api/core/v1"
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

// Linux is an amount of resources as the CRI's LinuxContainerResources has it.
// Zero means not given.
type Linux struct {
	MemoryBytes                    int64
	CPUShares, CPUQuota, CPUPeriod int64 // quota and period in µs
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
