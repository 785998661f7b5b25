package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Content keeps blobs by digest. A stored blob is complete, verified and synced to disk.
//
// What a pull needs is pinned while it runs, so that Sweep leaves it alone.
type Content struct {
	root  string
	store content.Store

	mu   sync.Mutex // pins; held while Sweep decides about and deletes a blob
	pins map[digest.Digest]int

	ingestMu sync.Mutex
	ingests  map[digest.Digest]*ingest // in progress
	started  chan struct{}             // closed, and made anew, when an ingest starts
	passing  map[digest.Digest]bool    // complete and verified by this process, still in the folder of ingests
}

// OpenContent opens a store below a directory. Unfinished ingests of an earlier process are kept:
// the next Ingest of the blob continues them.
func OpenContent(root string) (*Content, error) {
	// Probes for fs-verity that a killed process left.
	probes, err := filepath.Glob(filepath.Join(root, ".fsverity-check-*"))
	for _, dir := range probes {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("open content store %q: %w", root, err)
	}
	s, err := local.NewStore(root)
	if err != nil {
		return nil, fmt.Errorf("open content store %q: %w", root, err)
	}
	c := &Content{
		root:    root,
		store:   s,
		pins:    make(map[digest.Digest]int),
		ingests: make(map[digest.Digest]*ingest),
		started: make(chan struct{}),
		passing: make(map[digest.Digest]bool),
	}
	return c, c.prepareIngests()
}

// Path returns the path of a blob, whether it is stored or not. The digest must be valid.
func (c *Content) Path(d digest.Digest) string {
	return filepath.Join(c.root, "blobs", d.Algorithm().String(), d.Encoded())
}

// Has reports whether a blob is stored with the expected size.
func (c *Content) Has(ctx context.Context, desc ocispec.Descriptor) bool {
	info, err := c.store.Info(ctx, desc.Digest)
	return err == nil && info.Size == desc.Size
}

// Document returns a manifest, index or configuration.
func (c *Content) Document(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	desc.Data = nil
	data, err := content.ReadBlob(ctx, c.store, desc)
	if err != nil {
		return nil, fmt.Errorf("read blob %s: %w", desc.Digest, err)
	}
	return data, nil
}

// Open opens a blob for reading.
//
// # Errors
//
// ErrNotFound if it is not stored.
func (c *Content) Open(_ context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	return c.open(desc)
}

func (c *Content) open(desc ocispec.Descriptor) (*os.File, error) {
	f, err := os.Open(c.Path(desc.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", desc.Digest, err)
	}
	return f, nil
}

// OpenFrom opens a blob for reading from an offset on. Its errors are those of Open.
func (c *Content) OpenFrom(_ context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	f, err := c.open(desc)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, fmt.Errorf("open blob %s at %d: %w", desc.Digest, offset, err)
	}
	return f, nil
}

// damaged reports whether a stored blob does not match its digest, as after a power cut on a file
// system that lost synced data.
func (c *Content) damaged(desc ocispec.Descriptor) bool {
	r, err := c.Open(context.Background(), desc)
	if err != nil {
		return true
	}
	defer r.Close()
	got, err := desc.Digest.Algorithm().FromReader(r)
	return err != nil || got != desc.Digest
}

func (c *Content) delete(ctx context.Context, d digest.Digest) error {
	if err := c.store.Delete(ctx, d); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete blob %s: %w", d, err)
	}
	return nil
}

// Pin keeps blobs from Sweep and Drop, also those not stored yet, until unpin is called.
func (c *Content) Pin(ds ...digest.Digest) (unpin func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		c.pins[d]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, d := range ds {
			if c.pins[d]--; c.pins[d] == 0 {
				delete(c.pins, d)
			}
		}
	})
}

// Drop deletes a blob unless it is pinned.
func (c *Content) Drop(ctx context.Context, d digest.Digest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins[d] > 0 {
		return nil
	}
	return errors.Join(c.delete(ctx, d), c.removeIngest(filepath.Base(c.ingestPath(d))))
}

// Sweep deletes the blobs that are neither pinned nor kept, except those stored less than grace
// ago.
func (c *Content) Sweep(ctx context.Context, keep map[digest.Digest]bool, grace time.Duration) error {
	var errs []error
	err := c.store.Walk(ctx, func(info content.Info) error {
		if !keep[info.Digest] && time.Since(info.CreatedAt) >= grace {
			errs = append(errs, c.Drop(ctx, info.Digest))
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("list blobs: %w", err))
	}
	return errors.Join(errs...)
}

// Usage returns the disk usage of all blobs, in bytes and files, including unfinished ones.
func (c *Content) Usage(ctx context.Context) (bytes, inodes int64, err error) {
	if bytes, inodes, err = c.ingestUsage(); err != nil {
		return 0, 0, err
	}
	err = c.store.Walk(ctx, func(info content.Info) error {
		bytes += room(c.Path(info.Digest))
		inodes++
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, fmt.Errorf("list blobs: %w", err)
	}
	return bytes, inodes, nil
}
