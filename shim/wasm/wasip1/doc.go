// Package wasip1 is the ABI of WASI preview 1: the functions that a guest imports from the module
// wasi_snapshot_preview1. They read their parameters from linear memory, check rights, call package
// wasi and write what it answers; what an operation does is told there.
//
// # Life of a Host
//
// New takes host descriptors and makes the guest's table: 0, 1 and 2 are the standard streams, then
// come the listeners, then the directories. Instantiate defines the module in a wazero runtime; the
// guest's own module is instantiated after it and runs on one thread. Close, after the guest has
// ended, gives everything back.
//
// # Rights
//
// Rights are kept and checked as the specification says. Where a right is missing because of what
// the file is, or how it was opened, the answer is the error that POSIX programs look for (EISDIR,
// ENOTDIR, ESPIPE, ENOTSOCK, EBADF); where the guest gave it up itself it is ENOTCAPABLE.
//
// # Extensions
//
// Others add functions to the module (Function). They work on the same table, through the exported
// methods of Host.
package wasip1
