// Package boltfile looks at a bbolt file before bbolt maps it: damage makes bbolt panic, or read
// memory that is not there. What is damaged is put aside, under a name with the time, so that a
// store can start empty.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Ensure puts the file at path aside if it is damaged; before, unless nil, it calls prepare. A file
// that is not there is fine, and so is one that another process has open, which opening it tells.
func Ensure(path string, prepare func() error, logger *slog.Logger) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := durable.Lock(f); err != nil {
		return nil // bbolt's own lock
	}
	damage := Check(path)
	if !errdefs.IsDataLoss(damage) {
		return damage
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	return PutAside(path, damage, logger)
}

// PutAside renames a damaged file, durably.
func PutAside(path string, damage error, logger *slog.Logger) error {
	aside := fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000000000Z"))
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("move damaged file aside: %w", err)
	}
	logger.Error("file is damaged, put aside", "file", path, "aside", aside, "damage", damage)
	if err := durable.Sync(filepath.Dir(path)); err != nil {
		return fmt.Errorf("move damaged file aside: %w", err)
	}
	return nil
}

// Check reads a file as bbolt would, every page that its last transaction holds, and follows
// nothing that leads out of it.
//
// # Errors
//
// ErrDataLoss says what is damaged.
func Check(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, unix.EIO) {
		return fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
	}
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return nil // bbolt makes a new one of it
	}
	if err := check(data); err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
	}
	return nil
}
