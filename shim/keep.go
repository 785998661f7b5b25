package shim

import (
	"context"
	"os"

	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/keeper"
)

// Keeper is what outlives a shim for a whole node, and hands its containers to a successor: *keeper.Link is one. Keys begin with
// the container's id and a slash, but for one.
type Keeper interface {
	Keep(key string, note []byte, files ...*os.File) error
	Drop(key string) error
	Left() []keeper.Kept
	Life() int
	Watch(pid int) error
	Forget(pid int) error
}

// Box is where an engine keeps files of one container that must outlive the shim: links, listeners. A nil Box keeps nothing,
// because the shim of a pod has nobody who would take over. What is in it goes with the container.
type Box struct {
	keeper Keeper
	prefix string
}

// Keep keeps copies of files, with a note, under a name and in place of what was there. When it has returned, they outlive the
// shim. As long as they are kept nobody sees the end of a pipe or socket of which they are ends: Drop them before closing means something.
func (b *Box) Keep(name string, note []byte, files ...*os.File) error {
	if b == nil {
		return nil
	}
	return b.keeper.Keep(b.prefix+name, note, files...)
}

// Drop lets go of what is kept under a name. There need not be anything.
func (b *Box) Drop(name string) error {
	if b == nil {
		return nil
	}
	return b.keeper.Drop(b.prefix + name)
}

// Adopter is an Engine that takes over containers whose shim has died. One without has its containers ended by the successor.
//
// The processes were not the new shim's children and never will be: reaper.Adopt is how their exits are learnt, also of those that
// ended while there was no shim.
type Adopter interface {
	// Adopt makes the container that an earlier shim's Create or Launch made. Its process neither stops nor notices. With
	// Adoption.Starting, it carries the start through that was begun, unless that was done.
	//
	// Commands that were executed in the container are not the engine's concern: they are killed.
	//
	// On error the container is ended, and what there is of it removed from its bundle alone.
	Adopt(ctx context.Context, b *Bundle, a Adoption) (Container, error)
}

// Adoption is what is known of a container whose shim has died.
type Adoption struct {
	Task bundle.Task
	// PID is init's on the host. It may have ended since. 0 = the container had none yet: it was to be made by its start.
	PID int
	// Started says that the start was done. Starting says that it was begun and maybe done, and then is not set together with it.
	Started, Starting bool
	// Exit is how init ended if that is on record already: the container is there to be deleted. Else nil, also if it has
	// ended.
	Exit *Exit
	// IO is the terminal of init, if it has one and the shim had it: only Terminal and Console are set. It stays the shim's.
	IO IO
	// Kept is what was in the container's Box, by name. The files are the engine's own now; the keeper has its copies still.
	Kept map[string]keeper.Kept
}
