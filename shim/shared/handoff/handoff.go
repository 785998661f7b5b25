// Package handoff is what a supervised shim leaves to its successor: for each container the files
// that cannot be opened again and a few notes, and the history of the shims. The supervisor holds
// it. What else a successor must know of a container is in its bundle.
package handoff

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

// Supervisor outlives a shim and holds what its successor needs: *supervisor.Link is one.
type Supervisor interface {
	Keep(key string, note []byte, files ...*os.File) error
	Drop(key string) error
	Left() []supervisor.Kept
	Life() int
	Watch(pid int) error
	Forget(pid int) error
}

// Keys of what is kept of a container, after its id.
const (
	keyBundle  = "/bundle"       // note: the format version and the bundle's path; there from before anything is made until everything is removed
	keyStdin   = "/init/stdin"   // our end of init's input, by itself: the input ends when no process has it
	keyStreams = "/init/streams" // the other ends; note: their names
	keyExec    = "/exec/"        // note: the pid of a process that was executed
	keyBox     = "/box/"         // the engine's
)

// Version is the format version of what is kept of a container. It stands before the bundle's path.
const Version = 1

// keyHistory is the key of what earlier shims have done. It has no slash: it is no container's.
const keyHistory = "history"

// Handoff is a shim's side of what it leaves. A nil Handoff is that of a shim without a supervisor,
// whose containers end with it: its methods do nothing. When the supervisor dies, nothing is kept
// from then on, and that is no error.
type Handoff struct {
	to  Supervisor
	log *slog.Logger
}

// New returns nil if there is no supervisor.
func New(to Supervisor, log *slog.Logger) *Handoff {
	if to == nil {
		return nil
	}
	return &Handoff{to: to, log: log}
}

// ask asks the supervisor. One that does not answer is logged, not returned.
func (h *Handoff) ask(request func(Supervisor) error) error {
	if h == nil {
		return nil
	}
	err := request(h.to)
	if errdefs.IsUnavailable(err) {
		h.log.Error("failed to reach the supervisor, containers will end with the shim", "error", err)
		return nil
	}
	return err
}

func (h *Handoff) keep(key string, note []byte, files ...*os.File) error {
	return h.ask(func(to Supervisor) error { return to.Keep(key, note, files...) })
}

func (h *Handoff) drop(key string) error {
	return h.ask(func(to Supervisor) error { return to.Drop(key) })
}

// Open records that there may be something of a container.
func (h *Handoff) Open(id, bundle string) error {
	return h.keep(id+keyBundle, fmt.Append(nil, Version, " ", bundle))
}

// Close drops all that is kept of a container.
func (h *Handoff) Close(id string) error { return h.drop(id + "/") }

// KeepStdin keeps our end of init's input.
func (h *Handoff) KeepStdin(id string, stdin *os.File) error { return h.keep(id+keyStdin, nil, stdin) }

// DropStdin drops it. The input cannot end before.
func (h *Handoff) DropStdin(id string) error { return h.drop(id + keyStdin) }

// KeepStreams keeps our other ends of init's streams, by their names, in place of earlier ones.
func (h *Handoff) KeepStreams(id string, ends map[string]*os.File) error {
	names := slices.Sorted(maps.Keys(ends))
	files := make([]*os.File, len(names))
	for i, name := range names {
		files[i] = ends[name]
	}
	return h.keep(id+keyStreams, []byte(strings.Join(names, " ")), files...)
}

// KeepExec records a process that was executed in a container: it has no parent when the shim is
// dead.
func (h *Handoff) KeepExec(id, execID string, pid int) error {
	return h.keep(id+keyExec+execID, []byte(strconv.Itoa(pid)))
}

// DropExec forgets it.
func (h *Handoff) DropExec(id, execID string) error { return h.drop(id + keyExec + execID) }

// Watch has the supervisor remember how a child of this process ends; see supervisor.Link.
func (h *Handoff) Watch(pid int) error {
	return h.ask(func(to Supervisor) error { return to.Watch(pid) })
}

// Forget tells the supervisor that the end of a process is on record.
func (h *Handoff) Forget(pid int) error {
	return h.ask(func(to Supervisor) error { return to.Forget(pid) })
}

// Box returns the place where an engine keeps files of a container, nil without a supervisor.
func (h *Handoff) Box(id string) *Box {
	if h == nil {
		return nil
	}
	return &Box{handoff: h, prefix: id + keyBox}
}
