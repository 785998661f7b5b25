package shim

import (
	"context"

	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/shared/handoff"
	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

// Supervisor outlives a shim that pods share, and hands its containers to a successor.
type Supervisor = handoff.Supervisor

// Box is where an engine keeps files of one container that must outlive the shim.
type Box = handoff.Box

// Adopter is an Engine that takes over containers whose shim has died. One without has its
// containers ended by the successor.
//
// The processes were not the new shim's children and never will be: reaper.Adopt is how their exits
// are learnt, also of those that ended while there was no shim.
type Adopter interface {
	// Adopt makes the container that an earlier shim's Create or Launch made. Its process neither
	// stops nor notices. With Adoption.Starting, it completes the start that was in progress,
	// unless that was done.
	//
	// Commands that were executed in the container are not the engine's concern: they are killed.
	//
	// On error the container is ended, and removed from its bundle alone.
	Adopt(ctx context.Context, b *Bundle, a Adoption) (Container, error)
}

// Adoption is what is known of a container whose shim has died.
type Adoption struct {
	Task bundle.Task
	// PID is init's on the host. It may have ended since. 0 = the container had none yet: it was to
	// be made by its start.
	PID int
	// Started says that the start was done. Starting says that it was in progress and maybe done, and
	// then is not set together with it.
	Started, Starting bool
	// Exit is how init ended if that is on record already: the container is there to be deleted.
	// Else nil, also if it has ended.
	Exit *Exit
	// IO is the terminal of init, if it has one and the shim had it: only Terminal and Console are
	// set. It stays the shim's.
	IO IO
	// Kept is what was in the container's Box, by name. The files are the engine's own now; the
	// supervisor has its copies still.
	Kept map[string]supervisor.Kept
}
