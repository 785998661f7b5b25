// Package async is the asynchronous part of the canonical ABI, for guests that are lifted with a
// callback: tasks, subtasks, sets of waitables, streams, futures and error contexts, by
// design/mvp/CanonicalABI.md and definitions.py of github.com/WebAssembly/component-model. World
// has its built-ins, which a lowered component imports from canonical.BuiltIns.
//
// # Life of a task
//
// A lowered component runs its own loop: it calls the lifted function, passes what that returns to
// the built-in "task.next", which sleeps until there is an event, and calls the callback with that,
// until the function returns EXIT. Then "task.finish" tells what the task has returned. An instance
// has one task at a time.
//
// # The host's ends
//
// A stream or future has an end of the guest's and one of the host's, or both are the guest's. The
// host's are a Source, a Sink and a Promise. They move data when the guest asks for it, within its
// call if that needs no wait; other requests are work that continues while the guest waits. There
// are no goroutines: everything happens on the guest's thread. A Readable is an end that was given
// to the host and is not read yet: it can be given back. What the host moves from one of its own
// ends to another continues after the end of the task, by Settle.
//
// # Names
//
// The name of a built-in has what it needs to know of the canonical definition:
// "stream.read:1.1.n:a" is the asynchronous reading of a stream of numbers of 1 byte, aligned to 1.
// See Name.
//
// # Limits
//
// Waitables and sets are in the instance's table of handles, which has canonical.MaxHandles places.
// What continues belongs to a handle of the table, or there are maxSplices and maxAwaited of it. A
// text of an error context has at most maxText bytes.
package async
