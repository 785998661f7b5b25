package manifest

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/store"
)

// Bounds of an index and those within it.
const (
	// MaxEntries is how many entries the index and those within it have in all.
	MaxEntries = 1000
	// MaxDocuments is how large the documents that must be read for them are in all, in bytes.
	MaxDocuments = 64 << 20
)

// Walk is one visit of an index and of what is nested in it: no document twice, and not too many entries in all.
type Walk struct {
	visited map[digest.Digest]bool
	entries int
	bytes   int64
}

// Visit reports whether a document is new.
//
// # Errors
//
// ErrInvalidArgument if those that were visited are too large now.
func (w *Walk) Visit(d ocispec.Descriptor) (bool, error) {
	if w.visited[d.Digest] {
		return false, nil
	}
	if store.CheckDocument(d) == nil { // else it is not read
		w.bytes += d.Size
	}
	if w.bytes > MaxDocuments {
		return false, fmt.Errorf("index entry %s: the documents of the image have more than %d bytes: %w", d.Digest, MaxDocuments, errdefs.ErrInvalidArgument)
	}
	if w.visited == nil {
		w.visited = make(map[digest.Digest]bool)
	}
	w.visited[d.Digest] = true
	return true, nil
}

// Count adds entries of an index.
//
// # Errors
//
// ErrInvalidArgument if there are too many now; the context's error.
func (w *Walk) Count(ctx context.Context, index digest.Digest, n int) error {
	if w.entries += n; w.entries > MaxEntries {
		return fmt.Errorf("index %s: it and those within it have more than %d entries: %w", index, MaxEntries, errdefs.ErrInvalidArgument)
	}
	return context.Cause(ctx)
}
