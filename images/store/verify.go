package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Verify reads a blob and compares it with its digest and size.
//
// # Errors
//
// ErrNotFound if it is not there; ErrDataLoss if it is not what its digest says.
func (c *Content) Verify(ctx context.Context, desc ocispec.Descriptor) error {
	info, err := c.store.Info(ctx, desc.Digest)
	if err != nil {
		return fmt.Errorf("blob %s: %w", desc.Digest, err)
	}
	if info.Size != desc.Size {
		return fmt.Errorf("blob %s has %d bytes of %d: %w", desc.Digest, info.Size, desc.Size, errdefs.ErrDataLoss)
	}
	if c.damaged(desc) {
		return fmt.Errorf("blob %s is not what its digest says: %w", desc.Digest, errdefs.ErrDataLoss)
	}
	return nil
}

// Delete deletes a blob, pinned or not: one that is damaged. What is not there is no error.
func (c *Content) Delete(ctx context.Context, d digest.Digest) error { return c.delete(ctx, d) }

// Unneeded counts the blobs that Sweep would delete without any grace, with
// those that have not come in whole, and the bytes that they take on disk.
func (c *Content) Unneeded(ctx context.Context, keep map[digest.Digest]bool) (n int, bytes int64, err error) {
	err = c.store.Walk(ctx, func(info content.Info) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if keep[info.Digest] || c.pins[info.Digest] > 0 {
			return nil
		}
		n++
		bytes += room(c.Path(info.Digest))
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return n, bytes, fmt.Errorf("list blobs: %w", err)
	}
	parts, err := os.ReadDir(c.ingestDir())
	if err != nil {
		return n, bytes, fmt.Errorf("list ingests: %w", err)
	}
	c.ingestMu.Lock()
	defer c.ingestMu.Unlock()
	busy := make(map[string]bool)
	for d := range c.ingests {
		busy[filepath.Base(c.ingestPath(d))] = true
	}
	for _, p := range parts {
		if !busy[p.Name()] {
			n++
			bytes += room(filepath.Join(c.ingestDir(), p.Name()))
		}
	}
	return n, bytes, nil
}

// room returns what a file takes on disk, 0 for one that does not exist.
func room(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
