package pull

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/transfer"
	"github.com/sunaba-project/sunaba/images/variant"
)

// entries returns the manifests that a descriptor stands for and that can run,
// each with its platform and once. Nested indexes are replaced by what they hold.
func (x *session) entries(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	w := &manifest.Walk{}
	if _, err := w.Visit(desc); err != nil {
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
		if !seen[key] && len(key) <= manifest.MaxPlatform {
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
func (x *session) nested(ctx context.Context, w *manifest.Walk, desc ocispec.Descriptor, depth int) ([]ocispec.Descriptor, error) {
	if depth > manifest.IndexDepth {
		return nil, fmt.Errorf("index %s: nested deeper than %d: %w", desc.Digest, manifest.IndexDepth, errdefs.ErrInvalidArgument)
	}
	data, err := x.Document(ctx, desc)
	if err != nil {
		return nil, err
	}
	doc, err := manifest.Parse(desc, data)
	if err != nil {
		return nil, err
	}
	if !doc.IsIndex() {
		p, err := x.platform(ctx, doc)
		desc.Platform = &p
		return []ocispec.Descriptor{desc}, err
	}
	if err := w.Count(ctx, desc.Digest, len(doc.Manifests)); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for _, e := range doc.Manifests {
		if manifest.DescribesOther(e) {
			continue
		}
		if p, ok := x.Source.(transfer.Partial); ok && !p.Has(e.Digest) && !x.p.Disk.Content.Has(ctx, e) {
			if e.Platform != nil && variant.Runnable(e) {
				out = append(out, e) // another place may have it
			}
			continue
		}
		bare := e.Platform == nil || e.Platform.OS == "" && e.Platform.Architecture == ""
		switch {
		case images.IsIndexType(e.MediaType), images.IsManifestType(e.MediaType) && bare:
			fresh, err := w.Visit(e)
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
		case images.IsManifestType(e.MediaType) && variant.Runnable(e):
			out = append(out, e)
		}
	}
	return out, nil
}

// platform returns what a manifest is for.
func (x *session) platform(ctx context.Context, m manifest.Document) (ocispec.Platform, error) {
	module, err := manifest.IsModule(m)
	if err != nil {
		return ocispec.Platform{}, err
	}
	data, err := x.Document(ctx, *m.Config)
	if err != nil {
		return ocispec.Platform{}, err
	}
	c, err := manifest.ParseConfig(*m.Config, data)
	if module {
		return c.ModulePlatform(), err
	}
	return c.Platform(), err
}
