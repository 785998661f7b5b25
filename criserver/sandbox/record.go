package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// record is what the store keeps of one sandbox.
type record struct {
	id    string
	store *state.Store[state.Sandbox]
	first state.Sandbox // the record to start with
}

func (r *record) get() (state.Sandbox, error) { return r.store.Get(r.id) }

func (r *record) create(context.Context) error { return r.store.Create(r.id, r.first) }

func (r *record) ready() error {
	_, err := r.store.Update(r.id, func(rec state.Sandbox) (state.Sandbox, error) {
		rec.Phase = state.Ready
		return rec, nil
	})
	if err != nil {
		return fmt.Errorf("record ready: %w", err)
	}
	return nil
}

// setNetwork records what the network gave the sandbox, or that it has nothing any more. It is
// durable with the next change.
func (r *record) setNetwork(n state.Network) error {
	_, err := r.store.Amend(r.id, func(rec state.Sandbox) (state.Sandbox, error) {
		rec.Network = n
		return rec, nil
	})
	return err
}

// end records that the sandbox is NotReady or Stopped; one that is Stopped stays so. That is not
// synced: a power cut ends a sandbox too. If the disk refuses, the phase changes in memory until it
// takes it, and unwritten is the disk's error.
func (r *record) end(phase state.Phase) (unwritten, err error) {
	_, unwritten, err = r.store.Insist(r.id, false, func(rec state.Sandbox) (state.Sandbox, error) {
		if rec.Phase == state.Stopped {
			return rec, errStopped
		}
		rec.Phase = phase
		return rec, nil
	})
	if errors.Is(err, errStopped) {
		err = nil
	}
	return unwritten, err
}

// errStopped keeps a sandbox that was stopped meanwhile as it is.
var errStopped = errors.New("sandbox is stopped")
