package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Found says what a start of the server found of a sandbox.
type Found int

const (
	// Living is a sandbox whose shim answers.
	Living Found = iota
	// Ended is a sandbox whose shim has exited (also by a reboot) and cleaned up after.
	Ended
	// Silent is a sandbox whose shim is there but does not answer. It is left alone until it is
	// stopped.
	Silent
)

// recoverAtOnce is how many sandboxes are looked at side by side.
const recoverAtOnce = 16

// Finding is what a start of the server does with a sandbox. shim is nil unless found is Living; it
// may die at any moment, and the sandbox has none from then on.
type Finding func(ctx context.Context, s *Sandbox, found Found, shim *client.Client)

// Recover finds out what happened to every sandbox while no server ran, and calls each for it,
// which does the same for its containers. Sandboxes are handled side by side; each has 10 seconds,
// and none keeps another from being recovered. It ends with the folders that belong to no sandbox.
func (m *Manager) Recover(ctx context.Context, each Finding) {
	var all sync.WaitGroup
	turn := make(chan struct{}, recoverAtOnce)
	m.shims.Reconnect(ctx, m.running())
	for _, rec := range m.records.List() {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			m.recoverOne(ctx, rec, each)
		})
	}
	all.Wait()
	if err := m.shims.Tidy(ctx); err != nil {
		m.o.Logger.Error("failed to stop shims without pods", "error", err)
	}
	m.removeOrphans(ctx)
}

// running are the sandboxes on record whose shim may still be there.
func (m *Manager) running() []state.Sandbox {
	return slices.DeleteFunc(m.records.List(), func(rec state.Sandbox) bool {
		return rec.Phase == state.Stopped || rec.BootID != m.o.BootID
	})
}

func (m *Manager) recoverOne(ctx context.Context, rec state.Sandbox, each Finding) {
	s, err := m.Sandbox(rec.ID)
	if err != nil {
		return
	}
	if rec.Unfinished() {
		s.fail(ctx, errInterrupted, s.lasting(), s.working())
		return
	}
	found, missing := s.find(ctx, rec), ""
	if found == Living && rec.Phase == state.Ready {
		if sharesPIDs(rec) && !s.pause.find(ctx, s.Shim()) {
			missing = "pause process exited"
		}
		ns, lost := s.Namespaces(rec.Config.Value), func(pin string) bool { return pin != "" && !netns.Pinned(pin) }
		if slices.ContainsFunc([]string{ns.Net, ns.IPC, ns.UTS, ns.User}, lost) { // and the disk did not take that it is not ready
			missing = "sandbox has no namespaces: its stop was cut short"
		}
		if ctx.Err() != nil { // a shim that does not answer now is a silent one
			s.shim.detach()
			found = Silent
		}
	}
	shim := s.Shim() // before its death is watched for
	switch found {
	case Living:
		if missing != "" {
			s.log.Warn(missing)
			s.becomeNotReady()
		}
		s.watch()
	case Silent:
		s.log.Error("shim does not answer, the sandbox can only be stopped")
		s.becomeNotReady()
	case Ended:
		if rec.Phase == state.Ready {
			s.log.Warn("shim exited", "rebooted", rec.BootID != m.o.BootID)
			s.becomeNotReady()
		}
	}
	each(ctx, s, found, shim)
	if rec.BootID != m.o.BootID {
		// The namespace went with the reboot; what the network holds elsewhere is given back now.
		if err := s.network.tearDown(ctx, rec); err != nil {
			s.log.Error("failed to recover sandbox", "error", err)
		}
	}
}

var errInterrupted = errors.New("the server ended before the sandbox was made")

// find looks for the shim and, if it has exited, cleans up after it.
func (s *Sandbox) find(ctx context.Context, rec state.Sandbox) Found {
	if rec.Phase == state.Stopped {
		s.gate.shutNow()
		s.shim.markCleaned()
		return Ended
	}
	if rec.BootID == s.manager.o.BootID {
		shim, err := s.manager.shims.Reacquire(ctx, rec)
		if err == nil {
			s.shim.set(shim)
			return Living
		}
		if !errdefs.IsNotFound(err) {
			s.log.Warn("failed to connect to shim", "error", err)
			return Silent
		}
	}
	if err := s.shim.release(ctx, rec); err != nil {
		s.log.Error("failed to recover sandbox", "error", err)
	}
	return Ended
}

// removeOrphans removes folders of sandboxes that nobody knows: their record was damaged or never
// written.
func (m *Manager) removeOrphans(ctx context.Context) {
	known := m.records.IDs()
	for _, dir := range []string{m.o.State, m.o.Files} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			m.o.Logger.Error("failed to look for orphaned folders", "error", err)
			continue
		}
		for _, e := range entries {
			if slices.Contains(known, e.Name()) || !e.IsDir() {
				continue
			}
			if err := m.removeOrphan(ctx, dir, e.Name()); err != nil {
				m.o.Logger.Error("failed to remove orphaned folder", "folder", filepath.Join(dir, e.Name()), "error", err)
				continue
			}
			m.o.Logger.Warn("orphaned folder removed", "folder", filepath.Join(dir, e.Name()))
		}
	}
	if err := m.records.Settle(); err != nil {
		m.o.Logger.Error("failed to sync records of sandboxes", "error", err)
	}
}

func (m *Manager) removeOrphan(ctx context.Context, dir, id string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	path := filepath.Join(dir, id)
	if dir == m.o.State {
		err := m.shims.Sweep(ctx, id)
		err = errors.Join(err, m.removeOrphanCgroup(ctx, id), Folders{Dir: path}.unpin(ctx))
		if err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return removeTree(path)
}

// removeOrphanCgroup removes the cgroup that a sandbox has whose client named none. Where another
// one was, nobody knows.
func (m *Manager) removeOrphanCgroup(ctx context.Context, id string) error {
	parent, _, err := m.o.Cgroups.Pod(id, "")
	if err != nil {
		return err
	}
	return errors.Join(m.o.Cgroups.End(ctx, m.o.Cgroups.Leaf(parent, id)), m.o.Cgroups.RemovePod(parent))
}

// Rebooted says that the machine was restarted since the sandbox was made.
func (s *Sandbox) Rebooted() bool {
	rec, err := s.record.get()
	return err == nil && rec.BootID != s.manager.o.BootID
}

// Connected returns the ids of the sandboxes that the network still holds something for.
func (m *Manager) Connected() []string {
	var ids []string
	for _, rec := range m.records.List() {
		if rec.Network.Up {
			ids = append(ids, rec.ID)
		}
	}
	return ids
}
