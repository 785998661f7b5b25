package container

import (
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// index finds containers: their records, and what of them lives in this server.
type index struct {
	records *state.Store[state.Container]

	live sync.Map // *Container, by id
}

func newIndex(records *state.Store[state.Container]) *index { return &index{records: records} }

// Get returns the record of a container, by its id or an unambiguous prefix of it. One that is
// still being made is not there yet.
//
// # Errors
//
// ErrNotFound; ErrInvalidArgument if several ids start so.
func (x *index) Get(id string) (state.Container, error) {
	return state.Made(x.records, "container", id, func(rec state.Container) state.Phase { return rec.Phase })
}

// List returns the records of all containers that are not still being made.
func (x *index) List() []state.Container {
	return x.records.Select(func(rec *state.Container) bool { return rec.Phase != state.Creating })
}

// In returns the containers of one sandbox.
func (x *index) In(sandboxID string) []state.Container {
	return x.records.Select(func(rec *state.Container) bool { return rec.SandboxID == sandboxID && rec.Phase != state.Creating })
}

// created is the time of a new container of a sandbox.
func (x *index) created(sandboxID string) time.Time {
	at := time.Now()
	for _, c := range x.In(sandboxID) {
		at = state.After(at, c.CreatedAt)
	}
	return at
}

// RunningIn returns the ids of a sandbox's running containers, sorted.
func (x *index) RunningIn(sandboxID string) []string {
	var ids []string
	for _, c := range x.In(sandboxID) {
		if c.Phase == state.Running {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// find returns a container to work with: its record and living side.
func (x *index) find(id string) (state.Container, *Container, error) {
	rec, err := x.Get(id)
	if err != nil {
		return rec, nil, err
	}
	c := x.alive(rec.ID)
	if c == nil {
		return rec, nil, fmt.Errorf("container %q: %w", rec.ID, errdefs.ErrNotFound)
	}
	return rec, c, nil
}

// idempotent is find for requests that an unknown id is no error for: the container is nil then.
func (x *index) idempotent(id string) (state.Container, *Container, error) {
	rec, c, err := x.find(id)
	if errdefs.IsNotFound(err) {
		return rec, nil, nil
	}
	return rec, c, err
}

// alive returns the living side of a container, nil without one.
func (x *index) alive(id string) *Container {
	found, _ := x.live.Load(id)
	c, _ := found.(*Container)
	return c
}

func (x *index) add(c *Container) { x.live.Store(c.ID, c) }

func (x *index) drop(id string) { x.live.Delete(id) }
