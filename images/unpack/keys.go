package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/images/glance"
)

// GlanceRoots returns the roots of a store below root without opening it: another process may have it open.
func GlanceRoots(ctx context.Context, root string) ([]Root, error) {
	var roots []Root
	err := glance.Read(filepath.Join(root, "layers", "metadata.db"), func(file string) (err error) {
		roots, err = rootsOf(ctx, file)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a store that has never held anything
	}
	if err != nil {
		return nil, fmt.Errorf("list roots: %w", err)
	}
	return roots, nil
}

func rootsOf(ctx context.Context, file string) (roots []Root, err error) {
	db, err := storage.NewMetaStore(file)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	err = db.WithTransaction(ctx, false, func(ctx context.Context) error {
		return storage.WalkInfo(ctx, func(_ context.Context, info snapshots.Info) error {
			if strings.HasPrefix(info.Name, rootPrefix) {
				roots = append(roots, rootOf(info))
			}
			return nil
		})
	})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return roots, err
}
