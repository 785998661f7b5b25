// Package durable writes small files that are either wholly there after a power loss or not at all.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// unfinished follows a dot and a file's name in the name of a file that is to replace it.
const unfinished = ".tmp-*"

// Sweep removes what writes in a directory left that were cut short. Nobody may be writing. A missing directory is no error.
func Sweep(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, ".*"+unfinished))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove unfinished file: %w", err)
		}
	}
	return nil
}

// WriteFile replaces the file at path by data, durably before it returns: a temporary file beside it is written and
// synced, renamed, and the directory synced. The directory must exist.
func WriteFile(path string, data []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+unfinished)
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("write %q: %w", path, err)
		}
	}()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
