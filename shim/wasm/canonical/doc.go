// Package canonical is the canonical ABI of the component model, as far as the host functions of a
// lowered component need it: flat values, memory of the guest, handles, canonical options and
// traps. Which functions there are is told by a World; the packages that speak a WASI version have
// one.
//
// # Life of an Instance
//
// Provide defines, once in a wazero runtime, the modules that a guest's imports name, each function
// bound to its canonical options. The guest's module may then be instantiated many times: an
// Instance holds what host functions know of one of them, and travels in the context of its calls
// (With), that of the instantiation included. An instance runs on one thread at a time. End may be
// called by others. Close, after the last call, drops the handles that are left.
//
// # Names
//
// An import is named as a component names it: module "wasi:io/streams@0.2.12", function
// "[method]output-stream.write" or "[resource-drop]output-stream". Every 0.2.x is served by the
// same functions, also mixed in one guest; functions that came with a later 0.2.x are there for
// all.
//
// # Handles
//
// An instance has one table of handles for all types of resources, numbered from 1; the number
// given back last is given out first, as in wasmtime. There are at most MaxHandles, and resources
// that may be large (Sized) hold at most MaxBytes together.
//
// # Traps
//
// What a guest that keeps to the specification cannot do is a Trap, and its end: an unknown handle,
// one of another type, one that still has children dropped, memory out of bounds or not aligned, a
// string that is not UTF-8, a call of an import out of realloc.
package canonical
