package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
)

// prepareIngests creates the folder of ingests, and removes other files from it.
func (c *Content) prepareIngests() error {
	for _, dir := range []string{c.ingestDir(), filepath.Join(c.root, "blobs", string(digest.Canonical))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create content store: %w", err)
		}
	}
	entries, err := os.ReadDir(c.ingestDir())
	if err != nil {
		return fmt.Errorf("list ingests: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.ingestDir(), e.Name())); err != nil {
			return fmt.Errorf("remove unknown ingest: %w", err)
		}
	}
	return nil
}

// SweepIngests removes parts of blobs that nobody has continued for
// so long. What is in progress or pinned stays.
func (c *Content) SweepIngests(grace time.Duration) error {
	entries, err := os.ReadDir(c.ingestDir())
	if err != nil {
		return fmt.Errorf("list ingests: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < grace {
			continue // gone meanwhile, or young
		}
		errs = append(errs, c.dropPart(e.Name()))
	}
	return errors.Join(errs...)
}

// DropPart removes what has come in of a blob, unless somebody is at it or it is pinned.
func (c *Content) DropPart(d digest.Digest) error { return c.dropPart(filepath.Base(c.ingestPath(d))) }

// Came returns how many bytes of a blob are there already.
func (c *Content) Came(desc digest.Digest) int64 {
	for _, path := range []string{c.Path(desc), c.ingestPath(desc)} {
		if info, err := os.Stat(path); err == nil {
			return info.Size()
		}
	}
	return 0
}

func (c *Content) dropPart(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.pins {
		if filepath.Base(c.ingestPath(d)) == name {
			return nil
		}
	}
	return c.removeIngest(name)
}

// removeIngest removes an ingest's file, unless it is in progress. The caller holds mu.
func (c *Content) removeIngest(name string) error {
	c.ingestMu.Lock()
	defer c.ingestMu.Unlock()
	for d := range c.ingests {
		if filepath.Base(c.ingestPath(d)) == name {
			return nil
		}
	}
	for d := range c.passing {
		if filepath.Base(c.ingestPath(d)) == name {
			delete(c.passing, d)
		}
	}
	if err := os.Remove(filepath.Join(c.ingestDir(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove ingest: %w", err)
	}
	return nil
}

// ingestUsage returns the bytes and files of blobs that have not come in whole.
func (c *Content) ingestUsage() (bytes, inodes int64, err error) {
	entries, err := os.ReadDir(c.ingestDir())
	if err != nil {
		return 0, 0, fmt.Errorf("list ingests: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
			inodes++
		}
	}
	return bytes, inodes, nil
}
