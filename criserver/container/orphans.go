package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/space"
)

// RemoveOrphans removes, after all sandboxes were recovered, containers without a sandbox or half
// removed, and root filesystems and volumes without a container.
func (m *Manager) RemoveOrphans(ctx context.Context) {
	keys := m.o.Images.RootFSKeys()
	known := map[string]bool{}
	for _, rec := range m.records.List() {
		if m.halfRemoved(rec, keys) {
			m.o.Logger.Warn("removing half-removed container", "container", rec.ID)
			if err := m.Remove(ctx, rec.ID); err != nil {
				m.o.Logger.Error("failed to remove half-removed container", "container", rec.ID, "error", err)
			}
			continue
		}
		if _, err := m.o.Sandboxes.Get(rec.SandboxID); errdefs.IsNotFound(err) {
			if err := m.forget(ctx, m.alive(rec.ID), rec); err != nil {
				m.o.Logger.Error("failed to remove a container without sandbox", "container", rec.ID, "error", err)
			}
			continue
		}
		for _, key := range rec.Keys() {
			known[key] = true
		}
	}
	for _, key := range keys {
		if known[key] {
			continue
		}
		if err := m.o.Images.RemoveRootFS(ctx, key); err != nil {
			m.o.Logger.Error("failed to remove orphaned root filesystem", "key", key, "error", err)
		}
	}
	m.removeOrphanedVolumes()
	if err := m.records.Settle(); err != nil {
		m.o.Logger.Error("failed to remove records of containers", "error", err)
	}
}

func (m *Manager) removeOrphanedVolumes() {
	entries, err := os.ReadDir(m.o.Volumes)
	if err != nil {
		m.o.Logger.Error("failed to look for orphaned volumes", "error", err)
	}
	for _, e := range entries {
		if _, err := m.records.Get(e.Name()); errdefs.IsNotFound(err) {
			if err := space.Remove(m.volumes.of(e.Name())); err != nil {
				m.o.Logger.Error("failed to remove orphaned volumes", "error", err)
			}
		}
	}
}

// halfRemoved says of a container that a server died while it removed it: bundle and root
// filesystem, of which keys are those that there are, went first. One that lacks only its root
// filesystem was damaged, which is for its client to decide. So is one from before a reboot, or where
// damaged roots were found: neither is synced, and a power cut or a failed disk may have taken it.
func (m *Manager) halfRemoved(rec state.Container, keys []string) bool {
	if rec.Phase != state.Created && rec.Phase != state.Exited || slices.Contains(keys, rec.SnapshotKey) {
		return false
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil || sb.Rebooted() || m.o.Images.RootFSLost() {
		return false
	}
	_, err = os.Stat(filepath.Join(sb.Dir, rec.ID))
	return errors.Is(err, fs.ErrNotExist)
}
