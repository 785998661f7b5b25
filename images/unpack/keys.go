package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
)

// Keys returns the keys of the roots of a store below root without opening it: it takes no lock and changes nothing, so
// another process may have the store open. It reads a copy of the store's records; one that is caught in the middle of a
// change is taken anew.
func Keys(ctx context.Context, root string) ([]string, error) {
	var keys []string
	var err error
	for range 5 {
		if keys, err = keysOfCopy(ctx, filepath.Join(root, "layers", "metadata.db")); err == nil {
			return keys, nil
		}
	}
	return nil, fmt.Errorf("list roots: %w", err)
}

func keysOfCopy(ctx context.Context, file string) (keys []string, err error) {
	dir, err := os.MkdirTemp("", "sunaba-keys-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "metadata.db")
	if err := copyFile(copied, file); errors.Is(err, os.ErrNotExist) {
		return nil, nil // a store that has never held anything
	} else if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil { // what a database torn in two does
			err = fmt.Errorf("read %q: %v: %w", file, r, errdefs.ErrDataLoss)
		}
	}()
	db, err := storage.NewMetaStore(copied)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	err = db.WithTransaction(ctx, false, func(ctx context.Context) error {
		return storage.WalkInfo(ctx, func(_ context.Context, info snapshots.Info) error {
			if key, ok := strings.CutPrefix(info.Name, rootPrefix); ok {
				keys = append(keys, key)
			}
			return nil
		})
	})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return keys, err
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
