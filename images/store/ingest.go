package store

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Opener opens a blob's content from an offset on.
type Opener func(ctx context.Context, offset int64) (io.ReadCloser, error)

// ingest is the transfer of one blob into the store. Its bytes are in a file named for the blob,
// and are not content of the store until the digest has been verified.
type ingest struct {
	path    string
	passing bool          // it does not become content of the store
	done    chan struct{} // closed when it has ended

	mu      sync.Mutex
	file    *os.File      // for Follow: the file as it is now, nil before it is open
	anew    int           // how often it was started from nothing
	size    int64         // bytes in the file
	ended   bool          // done is closed
	err     error         // why it ended, nil for a stored blob
	changed chan struct{} // closed, and made anew, when any of these changes
}

func (i *ingest) update(fn func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	fn()
	close(i.changed)
	i.changed = make(chan struct{})
}

func (c *Content) ingestDir() string { return filepath.Join(c.root, "ingest") }

func (c *Content) ingestPath(d digest.Digest) string {
	return filepath.Join(c.ingestDir(), d.Algorithm().String()+"-"+d.Encoded())
}

// Ingest reads a blob through open into the store, unless it is stored already. Of concurrent calls
// for one digest one works and the others wait; if it fails, the next caller continues with its own
// open.
//
// Bytes that came before an error of open or of its reader are kept, also across a restart: the
// next Ingest opens the content at that offset. The digest is verified over the whole blob; if an
// older part proves wrong, the blob is fetched once more from the start.
//
// # Errors
//
// ErrDataLoss if the content does not match its digest and size, and syscall.ENOSPC for a full
// disk: nothing is kept then. Otherwise the error of open or of its reader.
func (c *Content) Ingest(ctx context.Context, desc ocispec.Descriptor, open Opener) error {
	return c.bring(ctx, desc, open, false)
}

// IngestPassing is Ingest for a blob that is needed only until it is unpacked: Follow reads it and
// Drop deletes it, but it does not become content of the store. It is not synced to disk. After a
// restart it counts as a part of a blob, which the next Ingest verifies.
func (c *Content) IngestPassing(ctx context.Context, desc ocispec.Descriptor, open Opener) error {
	return c.bring(ctx, desc, open, true)
}

func (c *Content) bring(ctx context.Context, desc ocispec.Descriptor, open Opener, passing bool) error {
	if err := desc.Digest.Validate(); err != nil || desc.Size < 0 {
		return fmt.Errorf("descriptor %q of size %d is invalid: %w", desc.Digest, desc.Size, errdefs.ErrInvalidArgument)
	}
	in, err := c.startIngest(ctx, desc.Digest)
	if err != nil {
		return err
	}
	in.passing = passing
	err = c.ingest(ctx, in, desc, open)
	c.endIngest(desc.Digest, in, err)
	return err
}

// startIngest waits until no other call ingests the blob.
func (c *Content) startIngest(ctx context.Context, d digest.Digest) (*ingest, error) {
	for {
		c.ingestMu.Lock()
		running, ok := c.ingests[d]
		if !ok {
			in := &ingest{path: c.ingestPath(d), done: make(chan struct{}), changed: make(chan struct{})}
			c.ingests[d] = in
			close(c.started)
			c.started = make(chan struct{})
			c.ingestMu.Unlock()
			return in, nil
		}
		c.ingestMu.Unlock()
		select {
		case <-running.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *Content) endIngest(d digest.Digest, in *ingest, err error) {
	c.ingestMu.Lock()
	delete(c.ingests, d)
	c.ingestMu.Unlock()
	in.update(func() {
		if in.file != nil {
			in.file.Close() // everything was written and synced, or is discarded
			in.file = nil
		}
		in.ended, in.err = true, err
		close(in.done)
	})
}

func (c *Content) ingest(ctx context.Context, in *ingest, desc ocispec.Descriptor, open Opener) error {
	if info, err := c.store.Info(ctx, desc.Digest); err == nil {
		if info.Size == desc.Size {
			return nil
		}
		if !c.damaged(desc) {
			return sizeError(desc, info.Size)
		}
		if err := c.delete(ctx, desc.Digest); err != nil {
			return err
		}
	}
	if in.passing && c.isPassing(desc.Digest) {
		return nil
	}
	resumed, err := c.ingestOnce(ctx, in, desc, open)
	if resumed && isCorrupt(err) {
		// Perhaps only the part of an earlier process is bad.
		_, err = c.ingestOnce(ctx, in, desc, open)
	}
	if err != nil && !worthKeeping(in, err) {
		if rerr := os.Remove(in.path); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove ingest: %w", rerr))
		}
	}
	return err
}

// worthKeeping reports whether a later ingest should continue with the file.
func worthKeeping(in *ingest, err error) bool {
	in.mu.Lock()
	empty := in.size == 0
	in.mu.Unlock()
	if empty || isCorrupt(err) {
		return false
	}
	return !durable.Full(err)
}

// ingestOnce continues an ingest at the end of its file. It reports whether the file held bytes.
func (c *Content) ingestOnce(ctx context.Context, in *ingest, desc ocispec.Descriptor, open Opener) (resumed bool, err error) {
	f, err := os.OpenFile(in.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, fmt.Errorf("start ingest of %s: %w", desc.Digest, err)
	}
	sum := desc.Digest.Algorithm().Hash()
	offset, err := digested(f, desc, sum)
	if err != nil {
		f.Close()
		return false, fmt.Errorf("start ingest of %s: %w", desc.Digest, err)
	}
	in.update(func() {
		if in.file != nil { // the one that was corrupt
			in.file.Close()
		}
		if offset == 0 {
			in.anew++
		}
		in.file, in.size = f, offset
	})
	if offset < desc.Size {
		if err := c.receive(ctx, in, f, desc, sum, open, offset); err != nil {
			return offset > 0, err
		}
	}
	return offset > 0, c.commit(f, in, desc, digest.NewDigest(desc.Digest.Algorithm(), sum))
}

// digested adds the file's bytes to the sum and leaves the file at its end. A file that is longer
// than the blob is truncated.
func digested(f *os.File, desc ocispec.Descriptor, sum hash.Hash) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() > desc.Size {
		return 0, f.Truncate(0)
	}
	return io.Copy(sum, f)
}

// receive appends the bytes that come. If an error ends it, the bytes written so far are synced.
func (c *Content) receive(ctx context.Context, in *ingest, f *os.File, desc ocispec.Descriptor, sum hash.Hash, open Opener, offset int64) error {
	r, err := open(ctx, offset)
	if err != nil {
		return err
	}
	defer r.Close()
	buf := make([]byte, 128<<10)
	size := offset
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if size+int64(n) > desc.Size {
				return errors.Join(sizeError(desc, size+int64(n)), f.Truncate(0))
			}
			if _, werr := f.Write(buf[:n]); werr != nil {
				return errors.Join(fmt.Errorf("store blob %s: %w", desc.Digest, werr), f.Truncate(size))
			}
			sum.Write(buf[:n])
			size += int64(n)
			in.update(func() { in.size = size })
		}
		switch {
		case err == io.EOF && size < desc.Size:
			return errors.Join(sizeError(desc, size), f.Truncate(0))
		case err == io.EOF:
			return nil
		case err != nil:
			if serr := f.Sync(); serr != nil {
				return errors.Join(err, f.Truncate(0))
			}
			return err
		}
	}
}

func (c *Content) isPassing(d digest.Digest) bool {
	c.ingestMu.Lock()
	defer c.ingestMu.Unlock()
	return c.passing[d]
}

// commit makes a complete file a blob of the store.
func (c *Content) commit(f *os.File, in *ingest, desc ocispec.Descriptor, got digest.Digest) error {
	if got != desc.Digest {
		return errors.Join(&corruptError{fmt.Errorf("blob %s is corrupt: its digest is %s: %w", desc.Digest, got, errdefs.ErrDataLoss)}, f.Truncate(0))
	}
	if in.passing {
		c.ingestMu.Lock()
		defer c.ingestMu.Unlock()
		c.passing[desc.Digest] = true
		return nil
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("store blob %s: %w", desc.Digest, err)
	}
	if err := f.Chmod(0o444); err != nil {
		return fmt.Errorf("store blob %s: %w", desc.Digest, err)
	}
	path := c.Path(desc.Digest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("store blob %s: %w", desc.Digest, err)
	}
	if err := os.Rename(in.path, path); err != nil {
		return fmt.Errorf("store blob %s: %w", desc.Digest, err)
	}
	c.ingestMu.Lock()
	delete(c.passing, desc.Digest)
	c.ingestMu.Unlock()
	if err := durable.Sync(filepath.Dir(path)); err != nil {
		return fmt.Errorf("store blob %s: %w", desc.Digest, err)
	}
	return nil
}

// corruptError says that content does not match its digest. ErrDataLoss alone would not say so: a
// context may end with such an error about another blob.
type corruptError struct{ error }

// Unwrap returns the error itself.
func (e *corruptError) Unwrap() error { return e.error }

func isCorrupt(err error) bool {
	var c *corruptError
	return errors.As(err, &c)
}

func sizeError(desc ocispec.Descriptor, got int64) error {
	if got > desc.Size {
		return &corruptError{fmt.Errorf("blob %s is corrupt: it is longer than %d bytes: %w", desc.Digest, desc.Size, errdefs.ErrDataLoss)}
	}
	return &corruptError{fmt.Errorf("blob %s is truncated: %d of %d bytes came: %w", desc.Digest, got, desc.Size, errdefs.ErrDataLoss)}
}
