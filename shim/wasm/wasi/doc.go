// Package wasi is what a guest can do with its host: operations on files, directories, paths,
// sockets, clocks and polling. Values of Go go in and come out. There is no linear memory here, no
// WebAssembly engine, and no number of any WASI version; the packages that speak an ABI (wasip1,
// wasmedge) stand on this one.
//
// # Life of a System
//
// New makes the System of one guest. Its Stdio, Listener and Preopen make Files of host descriptors
// that the guest starts with. The guest opens others through them, and runs on one thread.
// Interrupt, from any thread, asks the guest to end by what it can notice: see there. The ABI
// closes the guest's Files and then the System. Systems share nothing with each other except what
// descriptors they are given.
//
// # Errors
//
// Errors of operations are unix.Errno values, never wrapped, so that an ABI can translate them by
// number. An operation that Interrupt ended is unix.ECANCELED.
//
// # Files
//
// A File stands for a host descriptor of its own. AsDir and AsSocket give what only directories and
// only sockets can do. Paths are resolved by package beneath. Below the preopen that is the guest's
// "/" links mean what they mean in a container. Directories that the guest opened itself are
// stricter: they lead to what is below them, and nowhere else. What lies in procfs cannot be opened
// (EACCES): it belongs to the process around the guest. New files have mode 0666 and directories
// 0777, less the process's umask.
//
// # Waiting
//
// A guest that waits sleeps in the kernel, in ppoll or epoll, and never in Go's poller, unless it
// waits for events of this process alone. The kernel's non-blocking mode is set on listeners and on
// sockets that the guest made. For everything else it exists in the File's flags alone, because the
// open files of the standard streams are shared with other processes.
package wasi
