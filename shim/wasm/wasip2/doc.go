// Package wasip2 is the ABI of WASI 0.2: the functions of the world wasi:cli/command@0.2 for a
// lowered component, which is one core module whose imports are the component's lowered functions.
// They read flat values of the canonical ABI, look handles up, call package wasi and write what it
// answers; what an operation does is told there.
//
// # Life of a Host
//
// New takes host descriptors. Instantiate defines, in a wazero runtime, the modules that the
// guest's imports name, each function bound to its canonical options. The guest's own module is
// instantiated after it, and Run calls its export wasi:cli/run. Close, after the guest has ended,
// gives everything back. A Host serves one module of one guest, which runs on one thread.
//
// # Names
//
// An import is named as a component names it: module "wasi:io/streams@0.2.12", function
// "[method]output-stream.write" or "[resource-drop]output-stream". Every 0.2.x is served by the same
// functions, also mixed in one guest; functions that came with a later 0.2.x are there for all.
// Lookup knows what is served, and its flat signature.
//
// # Handles
//
// A guest has one table of handles for all types of resources, numbered from 1; the number given
// back last is given out first, as in wasmtime. A pollable is the child of the stream that it was
// made of. A stream and the descriptor that it was made of share the open file, and each may be
// dropped first.
//
// # Errors and traps
//
// What the kernel refuses is an error-code, or a stream-error and the stream is closed from then
// on. What a guest that keeps to the specification cannot do is a Trap, and its end: an unknown
// handle, one of another type, a stream with pollables dropped, memory out of bounds or not
// aligned, a string that is not UTF-8, a call of an import out of realloc, more written than
// check-write permitted, an empty list to poll.
//
// # Limits
//
// One read moves at most 64 KiB and one call of get-random-bytes at most 64 MiB. A path has
// at most beneath.MaxPath bytes (name-too-long). There are at most maxHandles handles and 65536
// pollables in one poll.
//
// # Sockets
//
// Sockets are those of the guest's network namespace, and behave as in wasmtime: an operation is done
// when it is started, and what it ended with is told when it is finished. A name is looked up in the
// files and by the servers that the guest sees; the call that asks for the first address waits. One
// call moves at most 16 datagrams.
package wasip2
