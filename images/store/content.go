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

// maxDocument bounds manifests, indexes and configurations, which are read into
// memory.
const maxDocument = 8 << 20

// Content keeps blobs by digest. A blob is there only whole, verified and
// synced to disk.
//
// What a pull needs is pinned while it runs, so that Sweep leaves it alone.
type Content struct {
	root  string
	store content.Store

	mu   sync.Mutex // pins; held while Sweep decides about and deletes a blob
	pins map[digest.Digest]int

	ingestMu sync.Mutex
	ingests  map[digest.Digest]chan struct{} // closed when the ingest has ended
}

// OpenContent opens a store below a directory and removes the unfinished
// ingests of a process that was killed.
func OpenContent(root string) (*Content, error) {
	// No process has the store open now: what lies in ingest is nobody's.
	if err := os.RemoveAll(filepath.Join(root, "ingest")); err != nil {
		return nil, fmt.Errorf("remove unfinished ingests: %w", err)
	}
	s, err := local.NewStore(root)
	if err != nil {
		return nil, fmt.Errorf("open content store %q: %w", root, err)
	}
	return &Content{
		root:    root,
		store:   s,
		pins:    make(map[digest.Digest]int),
		ingests: make(map[digest.Digest]chan struct{}),
	}, nil
}

// Path returns where a blob lies, if it is there. The digest must be valid.
func (c *Content) Path(d digest.Digest) string {
	return filepath.Join(c.root, "blobs", d.Algorithm().String(), d.Encoded())
}

// Has reports whether a blob is there with the size that is expected.
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

// CheckDocument refuses the descriptor of a document that is too large.
func CheckDocument(desc ocispec.Descriptor) error {
	if desc.Size > maxDocument {
		return fmt.Errorf("document %s of %d bytes is larger than %d: %w", desc.Digest, desc.Size, maxDocument, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Open opens a blob for reading.
func (c *Content) Open(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	desc.Data = nil
	r, err := content.BlobReadSeeker(ctx, c.store, desc)
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", desc.Digest, err)
	}
	return r, nil
}

// Ingest brings a blob in through open, unless it is there. Of concurrent calls
// for one digest one works and the others wait; should it fail, the next tries
// by its own means. open may be called again after an error that again accepts,
// as long as bytes arrive, to go on where the transfer broke off.
//
// # Errors
//
// ErrDataLoss if the content is not what its digest and size say; nothing of it
// is kept. Else the error of open and of its reader.
func (c *Content) Ingest(ctx context.Context, desc ocispec.Descriptor, open func(context.Context) (io.ReadSeekCloser, error), again func(error) bool) error {
	if err := desc.Digest.Validate(); err != nil || desc.Size < 0 {
		return fmt.Errorf("descriptor %q of size %d is invalid: %w", desc.Digest, desc.Size, errdefs.ErrInvalidArgument)
	}
	release, err := c.lockIngest(ctx, desc.Digest)
	if err != nil {
		return err
	}
	defer release()
	if c.Has(ctx, desc) {
		return nil
	}
	return c.ingest(ctx, desc, open, again)
}

// lockIngest waits until nobody else is bringing in the blob.
func (c *Content) lockIngest(ctx context.Context, d digest.Digest) (release func(), err error) {
	for {
		c.ingestMu.Lock()
		running, ok := c.ingests[d]
		if !ok {
			done := make(chan struct{})
			c.ingests[d] = done
			c.ingestMu.Unlock()
			return func() {
				c.ingestMu.Lock()
				delete(c.ingests, d)
				c.ingestMu.Unlock()
				close(done)
			}, nil
		}
		c.ingestMu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *Content) ingest(ctx context.Context, desc ocispec.Descriptor, open func(context.Context) (io.ReadSeekCloser, error), again func(error) bool) (err error) {
	if info, err := c.store.Info(ctx, desc.Digest); err == nil && info.Size != desc.Size {
		if !c.damaged(desc) {
			return sizeError(desc, info.Size)
		}
		if err := c.delete(ctx, desc.Digest); err != nil {
			return err
		}
	}
	ref := "blob-" + desc.Digest.String()
	defer func() {
		if err != nil {
			if aerr := c.store.Abort(context.WithoutCancel(ctx), ref); aerr != nil && !errdefs.IsNotFound(aerr) {
				err = errors.Join(err, fmt.Errorf("remove ingest %q: %w", ref, aerr))
			}
		}
	}()
	for {
		n, err := c.ingestOnce(ctx, ref, desc, open)
		if err == nil || n == 0 || !again(err) || ctx.Err() != nil {
			return err
		}
	}
}

// ingestOnce goes on with an ingest where it stands and returns the number of
// bytes that came in.
func (c *Content) ingestOnce(ctx context.Context, ref string, desc ocispec.Descriptor, open func(context.Context) (io.ReadSeekCloser, error)) (int64, error) {
	w, err := content.OpenWriter(ctx, c.store, content.WithRef(ref), content.WithDescriptor(desc))
	if errdefs.IsAlreadyExists(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("begin ingest of %s: %w", desc.Digest, err)
	}
	defer w.Close()
	status, err := w.Status()
	if err != nil {
		return 0, fmt.Errorf("begin ingest of %s: %w", desc.Digest, err)
	}
	r, err := open(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if status.Offset > 0 {
		if _, err := r.Seek(status.Offset, io.SeekStart); err != nil {
			return 0, fmt.Errorf("resume ingest of %s: %w", desc.Digest, err)
		}
	}
	n, err := io.CopyBuffer(w, io.LimitReader(r, desc.Size-status.Offset+1), make([]byte, 256<<10))
	if err != nil {
		return n, err
	}
	if got := status.Offset + n; got != desc.Size {
		return 0, sizeError(desc, got)
	}
	err = w.Commit(ctx, desc.Size, desc.Digest)
	switch {
	case err == nil, errdefs.IsAlreadyExists(err):
		return n, nil
	case errdefs.IsFailedPrecondition(err):
		return 0, fmt.Errorf("blob %s is corrupt: its digest is %s: %w", desc.Digest, w.Digest(), errdefs.ErrDataLoss)
	}
	return 0, fmt.Errorf("store blob %s: %w", desc.Digest, err)
}

func sizeError(desc ocispec.Descriptor, got int64) error {
	if got > desc.Size {
		return fmt.Errorf("blob %s is corrupt: it is longer than %d bytes: %w", desc.Digest, desc.Size, errdefs.ErrDataLoss)
	}
	return fmt.Errorf("blob %s is truncated: %d of %d bytes came: %w", desc.Digest, got, desc.Size, errdefs.ErrDataLoss)
}

// damaged reports whether a stored blob is not what its digest says, as after a
// loss of power on a filesystem that does not keep its promises.
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

// Pin keeps blobs from Sweep and Drop, whether they are there yet or not, until
// unpin is called.
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
	return c.delete(ctx, d)
}

// Sweep deletes the blobs that are neither pinned nor kept, except those that
// came in less than grace ago.
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

// Usage returns the bytes and files of all blobs.
func (c *Content) Usage(ctx context.Context) (bytes, inodes int64, err error) {
	err = c.store.Walk(ctx, func(info content.Info) error {
		bytes += info.Size
		inodes++
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, fmt.Errorf("list blobs: %w", err)
	}
	return bytes, inodes, nil
}
