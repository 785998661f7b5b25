// Package cgroup is about the machine's cgroups, in both versions of their interface: where they
// are, creating and removing them, their limits, their processes, killing and freezing these, what
// the kernel counts, and its out-of-memory kills. Whose cgroups they are is the callers' business.
package cgroup
