package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/images/boltfile"
)

// recordsFile says which folder is which layer.
func (s *Store) recordsFile() string { return filepath.Join(s.root, "metadata.db") }

func (s *Store) layersDir() string { return filepath.Join(s.root, "snapshots") }

// openRecords opens the records of the layers. If they are damaged, they are put aside. Those, and lost ones, are restored from the
// folders of the layers. What cannot be restored is put aside, and containers go on with what they have mounted.
func (s *Store) openRecords(ctx context.Context) error {
	if err := boltfile.Ensure(s.recordsFile(), nil, s.logger); err != nil {
		return err
	}
	if _, err := os.Stat(s.recordsFile()); errors.Is(err, os.ErrNotExist) {
		if err := s.restore(ctx); err != nil {
			return err
		}
	}
	err := s.openSnapshots(ctx)
	if !errdefs.IsDataLoss(err) {
		return err
	}
	if err := boltfile.PutAside(s.recordsFile(), err, s.logger); err != nil {
		return err
	}
	if err := s.restore(ctx); err != nil {
		return err
	}
	return s.openSnapshots(ctx)
}

// openSnapshots opens the snapshotter and reads all its records once.
//
// # Errors
//
// ErrDataLoss for records that cannot be read.
func (s *Store) openSnapshots(ctx context.Context) (err error) {
	if s.meta, err = storage.NewMetaStore(s.recordsFile()); err != nil {
		return err
	}
	s.snapshots, err = overlay.NewSnapshotter(s.root,
		overlay.WithMetaStore(s.meta), overlay.WithUpperdirLabel, overlay.AsynchronousRemove, overlay.WithRemapIDs)
	if err != nil {
		return errors.Join(err, s.meta.Close())
	}
	if err := s.readRecords(ctx); err != nil {
		return errors.Join(err, s.snapshots.Close())
	}
	return nil
}

func (s *Store) readRecords(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read records of layers: %v: %w", r, errdefs.ErrDataLoss)
		}
	}()
	some := false
	err = s.snapshots.Walk(s.quiet(ctx), func(ctx context.Context, info snapshots.Info) error {
		some = true
		if _, err := s.snapshots.Stat(ctx, info.Name); err != nil {
			return err
		}
		if info.Parent == "" {
			return nil
		}
		_, err := s.snapshots.Stat(ctx, info.Parent)
		return err
	})
	if entries, derr := os.ReadDir(s.layersDir()); errdefs.IsNotFound(err) && !some && derr == nil && len(entries) == 0 {
		return nil // the store is new
	}
	if err != nil {
		return fmt.Errorf("read records of layers: %w: %w", err, errdefs.ErrDataLoss)
	}
	return nil
}
