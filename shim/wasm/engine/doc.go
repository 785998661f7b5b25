// Package engine is the engine that runs WebAssembly guests.
//
// A container is one process of the shim's own binary (its guest face): in new mount, PID, IPC and
// UTS namespaces or the pod's, in the pod's network namespace, in a cgroup of its own, with its
// root moved into a private tree, without capabilities, under a seccomp list made for this one
// program. All of that is locked before a byte of the module is read. The engine never runs or
// compiles a module itself: package guest runs them, package compile compiles them, each in a
// process of its own, and package link is what the engine and a guest process say to each other.
//
// # Notes
//
//   - A guest never runs as root: uid 0 in the spec becomes 65534, and gid 0 with it. The
//     files it may write must be writable for that user. Other users are taken as they are.
//   - The spec's capabilities, seccomp profile and LSM labels are not used: what a guest process
//     is left with is always less. User namespaces are refused.
//   - proc, sysfs, cgroup, mqueue and devpts mounts are left out: WASI has no use for them. All
//     mounts are nosuid, nodev and noexec. Of /dev a guest sees null, zero, full, random and urandom.
//   - A guest ends when its shim dies.
//   - Linux 5.12 or newer is needed (mount_setattr, openat2).
package engine
