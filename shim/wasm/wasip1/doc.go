// Package wasip1 is Sunaba's WASI preview 1: the functions that a guest imports from the module
// wasi_snapshot_preview1.
//
// # Life of a Host
//
// New takes host descriptors and makes the guest's table: 0, 1 and 2 are the standard streams, then come
// the listeners, then the directories. Instantiate defines the module in a wazero runtime; the guest's
// own module is instantiated after it and runs on one thread. Interrupt, from any thread, asks the guest
// to end by what it can notice: see there. Close, after the guest has ended, gives everything back.
// Nothing of a Host is shared with another, and one process runs one guest.
//
// # Files
//
// A guest's descriptor stands for a host descriptor of its own. Paths are resolved by the kernel beneath
// the directory they start from (openat2), or on kernels without it step by step without ever following
// a link by name. A path or link that leaves its directory is EPERM. Below the preopen "/" links mean
// what they mean in a container: absolute ones start at "/", and ".." above it stays there. Descriptors
// of directories that the guest opened itself are stricter: they lead to what is below them, and nowhere
// else. What lies in procfs cannot be opened (EACCES): it belongs to the process around the guest.
//
// Names are bytes, as in Linux, not necessarily UTF-8. New files have mode 0666 and directories 0777,
// less the process's umask.
//
// Rights are kept and checked as the specification says. Where a right is missing because of what the
// file is, or how it was opened, the answer is the error that POSIX programs look for (EISDIR, ENOTDIR,
// ESPIPE, ENOTSOCK, EBADF); where the guest gave it up itself it is ENOTCAPABLE.
//
// # Waiting
//
// A guest that waits sleeps in the kernel, in ppoll or epoll, and never in Go's poller. The kernel's
// non-blocking mode is set on listeners only. For everything else it exists in the guest's table alone,
// because the open files of the standard streams are shared with other processes.
//
// # System calls
//
// Syscalls lists them with their reasons, for a seccomp allow list.
package wasip1
