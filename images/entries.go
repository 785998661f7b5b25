package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/store"
)

// Bounds of what a reference stands for.
const (
	// indexDepth is how deep indexes may be nested.
	indexDepth = 4
	// maxEntries is how many entries the index and those within it have in all.
	maxEntries = 1000
	// maxDocuments is how large the documents that must be read for them are in all, in bytes.
	maxDocuments = 64 << 20
	// maxPlatform is how large the description of a platform is, in bytes.
	maxPlatform = 1 << 10
)

// walk is one visit of an index and of what is nested in it: no document twice, and not too many entries in all.
type walk struct {
	visited map[digest.Digest]bool
	entries int
	bytes   int64
}

// visit reports whether a document is new.
//
// # Errors
//
// ErrInvalidArgument if those that were visited are too large now.
func (w *walk) visit(d ocispec.Descriptor) (bool, error) {
	if w.visited[d.Digest] {
		return false, nil
	}
	if store.CheckDocument(d) == nil { // else it is not read
		w.bytes += d.Size
	}
	if w.bytes > maxDocuments {
		return false, fmt.Errorf("index entry %s: the documents of the image have more than %d bytes: %w", d.Digest, maxDocuments, errdefs.ErrInvalidArgument)
	}
	if w.visited == nil {
		w.visited = make(map[digest.Digest]bool)
	}
	w.visited[d.Digest] = true
	return true, nil
}

// count adds entries of an index.
//
// # Errors
//
// ErrInvalidArgument if there are too many now; the context's error.
func (w *walk) count(ctx context.Context, index digest.Digest, n int) error {
	if w.entries += n; w.entries > maxEntries {
		return fmt.Errorf("index %s: it and those within it have more than %d entries: %w", index, maxEntries, errdefs.ErrInvalidArgument)
	}
	return context.Cause(ctx)
}

// entries returns the manifests that a descriptor stands for and that can run,
// each with its platform and once. Nested indexes are replaced by what they hold.
func (x *session) entries(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	w := &walk{}
	if _, err := w.visit(desc); err != nil {
		return nil, err
	}
	all, err := x.nested(ctx, w, desc, 0)
	if err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	seen := make(map[string]bool)
	for _, e := range all {
		key := e.Digest.String() + " " + describePlatform(*e.Platform)
		if !seen[key] && len(key) <= maxPlatform {
			seen[key] = true
			out = append(out, lean(e))
		}
	}
	return out, nil
}

func describePlatform(p ocispec.Platform) string {
	return fmt.Sprintf("%q %q", platforms.FormatAll(p), p.OSFeatures)
}

// lean is what matters of an entry that can run: the rest, of any size, is not kept.
func lean(e ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: e.MediaType, Digest: e.Digest, Size: e.Size, Platform: e.Platform, ArtifactType: e.ArtifactType}
}

// nested does so for the entries of one index, which has been visited.
func (x *session) nested(ctx context.Context, w *walk, desc ocispec.Descriptor, depth int) ([]ocispec.Descriptor, error) {
	if depth > indexDepth {
		return nil, fmt.Errorf("index %s: nested deeper than %d: %w", desc.Digest, indexDepth, errdefs.ErrInvalidArgument)
	}
	data, err := x.document(ctx, desc)
	if err != nil {
		return nil, err
	}
	doc, err := parseDocument(desc, data)
	if err != nil {
		return nil, err
	}
	if !doc.isIndex() {
		p, err := x.platform(ctx, doc)
		desc.Platform = &p
		return []ocispec.Descriptor{desc}, err
	}
	if err := w.count(ctx, desc.Digest, len(doc.Manifests)); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for _, e := range doc.Manifests {
		if describesOther(e) {
			continue
		}
		if p, ok := x.remote.(partial); ok && !p.Has(e.Digest) && !x.s.content.Has(ctx, e) {
			if e.Platform != nil && runnable(e) {
				out = append(out, e) // another place may have it
			}
			continue
		}
		bare := e.Platform == nil || e.Platform.OS == "" && e.Platform.Architecture == ""
		switch {
		case images.IsIndexType(e.MediaType), images.IsManifestType(e.MediaType) && bare:
			fresh, err := w.visit(e)
			if err != nil {
				return nil, err
			}
			if !fresh {
				continue
			}
			found, err := x.nested(ctx, w, e, depth+1)
			if images.IsManifestType(e.MediaType) && errdefs.IsInvalidArgument(err) {
				continue // a signature or the like
			}
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		case images.IsManifestType(e.MediaType) && runnable(e):
			out = append(out, e)
		}
	}
	return out, nil
}

// platform returns what a manifest is for.
func (x *session) platform(ctx context.Context, m document) (ocispec.Platform, error) {
	module, err := isModule(m)
	if err != nil || module {
		return wasmPlatform, err
	}
	data, err := x.document(ctx, *m.Config)
	if err != nil {
		return ocispec.Platform{}, err
	}
	c, err := parseConfig(*m.Config, data)
	return c.platform(), err
}
