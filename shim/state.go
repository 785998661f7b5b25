package shim

import (
	"fmt"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
)

// state of a process.
//
//	created ──▶ running ◀──▶ paused      (only init pauses, and its container with it)
//	   │           │            │
//	   └───────────┴────────────┴──▶ stopped ──▶ deleted
//
// A created process may stop without having run: it was killed, or it never came to its start.
type state int

const (
	created state = iota + 1
	running
	paused
	stopped
	deleted
)

// moves are all there are.
var moves = map[state][]state{
	created: {running, stopped, deleted}, // deleted: an exec that was never started has no process
	running: {paused, stopped},
	paused:  {running, stopped},
	stopped: {deleted},
}

// to checks a move; the caller holds the process's lock and then sets the state.
func (s state) to(next state) error {
	for _, n := range moves[s] {
		if n == next {
			return nil
		}
	}
	if s == deleted {
		return fmt.Errorf("process is deleted: %w", errdefs.ErrNotFound)
	}
	return fmt.Errorf("process is %s, it cannot become %s: %w", s, next, errdefs.ErrFailedPrecondition)
}

func (s state) String() string {
	switch s {
	case created:
		return "created"
	case running:
		return "running"
	case paused:
		return "paused"
	case stopped:
		return "stopped"
	default:
		return "deleted"
	}
}

// status is the state as the Task API names it.
func (s state) status() tasktypes.Status {
	switch s {
	case created:
		return tasktypes.Status_CREATED
	case running:
		return tasktypes.Status_RUNNING
	case paused:
		return tasktypes.Status_PAUSED
	default:
		return tasktypes.Status_STOPPED
	}
}
