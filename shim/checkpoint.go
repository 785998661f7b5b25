package shim

import "context"

// Checkpointer is a Container whose engine can write its state down. It is running or paused, and
// stays so on error.
//
// # Errors
//
// ErrFailedPrecondition with the cause if this machine, or this container as it is, cannot be
// checkpointed.
type Checkpointer interface {
	Checkpoint(ctx context.Context, c Checkpoint) error
}

// Restorer is an Engine that makes containers from the state that a Checkpointer wrote. What
// Restore returns has no process yet (Pid 0): Start makes it, as it was.
type Restorer interface {
	Restore(ctx context.Context, b *Bundle, io IO, o Options, images string) (Container, error)
}
