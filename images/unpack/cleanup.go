package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/space"
)

// Cleanup deletes the directories of what has been removed, which may take long.
func (s *records) Cleanup(ctx context.Context) error {
	s.folders.Lock()
	dirs, err := s.removed(s.quiet(ctx))
	if err != nil {
		s.folders.Unlock()
		return fmt.Errorf("find removed layers: %w", err)
	}
	dirs, err = removeRecords(dirs)
	s.folders.Unlock()
	return errors.Join(err, s.deleteFolders(dirs))
}

// removeFolders removes folders in "snapshots" that no record in metadata.db names.
func (s *records) removeFolders(dirs []string) error {
	dirs, err := removeRecords(dirs)
	return errors.Join(err, s.deleteFolders(dirs))
}

// deleteFolders deletes folders that have no record any more. Those that containers may have
// mounted stay until the next boot.
func (s *records) deleteFolders(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if s.isHeld(dir) {
			errs = append(errs, s.setAside(dir, "removed-"+filepath.Base(dir)))
			continue
		}
		errs = append(errs, space.Remove(dir))
	}
	return errors.Join(errs...)
}

// removed are the directories that belong to no snapshot. The snapshotter's Cleanup removes the
// same, but no folders that are nested deeper than a process may have files open.
func (s *records) removed(ctx context.Context) ([]string, error) {
	// A snapshot's directory is made in the transaction that records it: none is in progress in this
	// one, which changes nothing.
	ctx, tx, err := s.meta.TransactionContext(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	ids, err := storage.IDMap(ctx)
	if errdefs.IsNotFound(err) {
		return nil, nil // the store has never held anything
	}
	if err != nil {
		return nil, err
	}
	dir := s.layersDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if _, ok := ids[e.Name()]; !ok {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}
