// Package extract writes the files of a layer into a directory.
package extract

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/unpack/fingerprint"
)

const (
	// maxEntries bounds the files of a layer.
	maxEntries = 4 << 20
	// largeFile is from which size on it is looked first whether a file fits.
	largeFile = 16 << 20
	// entryCost is what an entry takes at least on disk: an inode and a name.
	entryCost = 512
)

// Layer is one layer to unpack.
type Layer struct {
	// Parent and Chain are the chain ids without and with this layer; Parent is "" for the lowest.
	Parent, Chain digest.Digest
	// Diff is the digest of the layer's tar stream.
	Diff digest.Digest
	// Open opens the layer: a tar stream, plain or compressed by gzip or zstd.
	Open func(context.Context) (io.ReadCloser, error)
	// Grow, if it is set, is told the bytes that the layer is about to take, as
	// it is unpacked, and stops it with an error.
	Grow func(bytes int64) error
}

// Extractor unpacks layers.
type Extractor struct {
	MaxBytes int64 // that a layer may unpack to
	Log      *slog.Logger
}

// extraction is the unpacking of one layer into a directory.
type extraction struct {
	place
	lowest   bool // nothing is below for whiteouts to hide
	maxBytes int64
	grow     func(int64) error
	log      *slog.Logger

	bytes   int64
	entries int
	buf     []byte
	dirs    []described
	sums    fingerprint.Sums
}

// described is a directory of an entry. Its times are set when nothing comes into it any more.
type described struct {
	name               string
	modified, accessed time.Time
}

// Extract writes a layer's files into dir, which knows nothing of the layers
// below. It returns the directories that the layer implies only, and the sums of
// the files' content. Whiteouts become overlayfs's own if there are layers below.
//
// # Errors
//
// ErrInvalidArgument for a layer that is beyond the limits, or cannot be unpacked whatever the
// disk; ErrDataLoss if it is not what its digest says; ErrResourceExhausted if the disk is full.
func (e Extractor) Extract(ctx context.Context, l Layer, dir string) (implied []string, sums fingerprint.Sums, err error) {
	blob, err := l.Open(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer blob.Close()
	x := &extraction{lowest: l.Parent == "", maxBytes: e.MaxBytes, grow: l.Grow, log: e.Log, sums: fingerprint.Sums{}}
	if x.place, err = openPlace(dir); err != nil {
		return nil, nil, err
	}
	defer x.close()
	in := &input{Reader: blob}
	if err := x.run(ctx, in, l); err != nil {
		// What is said of content is worth something only if the content is what
		// was meant; a reader tells at its end.
		if errdefs.IsInvalidArgument(err) {
			if _, rerr := io.Copy(io.Discard, blob); rerr != nil {
				return nil, nil, rerr
			}
		}
		return nil, nil, space.Explain(dir, err)
	}
	return slices.Collect(maps.Keys(x.implied)), x.sums, nil
}

// input is a layer's blob as it is read. It remembers that the blob's own reader failed.
type input struct {
	io.Reader
	failed atomic.Bool
}

func (i *input) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	if err != nil && err != io.EOF {
		i.failed.Store(true)
	}
	return n, err
}

// open starts to decompress it.
func (i *input) open() (io.ReadCloser, error) {
	stream, err := Decompress(i)
	if err != nil && !i.failed.Load() {
		err = malformed(err)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return stream, nil
}

// decompressed is the decompressed stream. An error that is not the blob's own says that the blob
// is malformed.
type decompressed struct {
	io.Reader
	in *input
}

func (d decompressed) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if err != nil && err != io.EOF && !d.in.failed.Load() {
		err = malformed(err)
	}
	return n, err
}

func malformed(err error) error { return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument) }

// Verify reads a layer's blob to its end and compares what it unpacks to with the diff id. Nothing
// is written.
//
// # Errors
//
// ErrDataLoss if it is something else; ErrInvalidArgument for what cannot be a layer.
func (e Extractor) Verify(ctx context.Context, blob io.Reader, diff digest.Digest) error {
	in := &input{Reader: blob}
	stream, err := in.open()
	if err != nil {
		return err
	}
	defer stream.Close()
	sum := diff.Verifier()
	limited := &limitedReader{r: decompressed{stream, in}, left: streamLimit(e.MaxBytes), max: e.MaxBytes}
	if _, err := io.Copy(sum, limited); err != nil {
		return err
	}
	if !sum.Verified() {
		return fmt.Errorf("its content is not layer %s: %w", diff, errdefs.ErrDataLoss)
	}
	return context.Cause(ctx)
}

func (x *extraction) run(ctx context.Context, blob *input, l Layer) error {
	stream, err := blob.open()
	if err != nil {
		return err
	}
	defer stream.Close()
	verifier := l.Diff.Verifier()
	limited := &limitedReader{r: decompressed{stream, blob}, left: streamLimit(x.maxBytes), max: x.maxBytes}
	tee := io.TeeReader(limited, verifier)
	if err := x.unpack(ctx, tar.NewReader(tee)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, tee); err != nil { // padding behind the archive counts too
		return err
	}
	if !verifier.Verified() {
		return fmt.Errorf("its content is not what the image's configuration says: %w", errdefs.ErrDataLoss)
	}
	return nil
}

// streamLimit is how long the stream of a layer may be: a tar stream is longer than its files by a
// header and padding each.
func streamLimit(maxBytes int64) int64 { return maxBytes + maxBytes/4 + largeFile }

// CheckTransfer refuses a layer of which more is to be transferred than it may unpack to.
//
// # Errors
//
// ErrInvalidArgument.
func (e Extractor) CheckTransfer(bytes int64) error {
	if bytes > streamLimit(e.MaxBytes) {
		return tooLarge(e.MaxBytes)
	}
	return nil
}

// unpack writes the entries of an archive, then the times of directories.
func (x *extraction) unpack(ctx context.Context, r *tar.Reader) error {
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, err := r.Next()
		if err == io.EOF {
			return x.finishDirs()
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
			err = malformed(err)
		}
		if err != nil {
			return err
		}
		if err := x.accept(h); err != nil {
			return err
		}
		if err := x.entry(ctx, h, r); err != nil {
			return err
		}
	}
}

// accept looks at each entry before it is written.
func (x *extraction) accept(h *tar.Header) error {
	x.entries++
	if x.entries > maxEntries {
		return fmt.Errorf("it has more than %d files: %w", maxEntries, errdefs.ErrInvalidArgument)
	}
	if h.Size < 0 || h.Size > x.maxBytes-x.bytes {
		return tooLarge(x.maxBytes)
	}
	x.bytes += h.Size
	if x.grow != nil {
		if err := x.grow(h.Size + entryCost); err != nil {
			return err
		}
	}
	if h.Size >= largeFile && !isSparse(h) {
		// A file system that cannot be asked says no when it is written to.
		if free, err := space.Free(x.dir); err == nil && h.Size > free {
			return fmt.Errorf("file %q of %d bytes: %w", h.Name, h.Size, unix.ENOSPC)
		}
	}
	return nil
}

// isSparse reports whether a file is written with holes.
func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// limitedReader fails when there is more than there may be.
type limitedReader struct {
	r         io.Reader
	left, max int64
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, tooLarge(r.max)
	}
	return n, err
}

func tooLarge(limit int64) error {
	return fmt.Errorf("it unpacks to more than %d bytes, the limit for a layer (images.max_layer_mib): %w", limit, errdefs.ErrInvalidArgument)
}
