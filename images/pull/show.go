package pull

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/registry"
)

// content is one thing that a repository has to show: a blob, and what it unpacks to if it is a
// layer.
type content struct {
	blob ocispec.Descriptor
	diff digest.Digest
}

// show takes note of whether the repository has shown that it holds all that an image consists of.
// Where images are kept for those who may have them, it must: what it has not shown, because it was
// present, is fetched again and compared.
//
// # Errors
//
// Those of fetching; ErrDataLoss for what is not what the manifest says.
func (x *session) show(ctx context.Context, entry ocispec.Descriptor, m manifest.Document, c manifest.Config, module bool) error {
	fact := x.manifests[entry.Digest]
	if _, ok := x.Source.(*registry.Repository); !ok || fact.Shown {
		return nil
	}
	all := []content{{blob: entry}, {blob: *m.Config}}
	for i, l := range m.Layers {
		one := content{blob: l}
		if !module {
			one.diff = c.RootFS.DiffIDs[i]
		}
		all = append(all, one)
	}
	var free map[digest.Digest]bool
	for _, one := range all {
		if x.Shown.Has(one.blob.Digest, one.diff) {
			continue
		}
		if free == nil {
			free = x.p.Guard.FreeFor(ctx, x.credentials)
		}
		switch {
		case one.diff == "" && free[one.blob.Digest], one.diff != "" && free[one.diff]:
			continue
		case !x.p.Guard.Verifies():
			return nil
		}
		if err := x.prove(ctx, one); err != nil {
			return registry.Describe(fmt.Sprintf("see whether %q holds %s, which is present", x.repo, one.blob.Digest), err)
		}
	}
	fact.Shown = true
	x.manifests[entry.Digest] = fact
	return nil
}

// prove fetches content, compares it and keeps nothing.
func (x *session) prove(ctx context.Context, one content) error {
	x.p.Logger.Info("fetching content again to verify that this repository has it", "repository", x.repo, "digest", one.blob.Digest)
	r, err := x.Source.Fetch(ctx, one.blob, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := one.blob.Digest.Verifier()
	tee := io.TeeReader(io.LimitReader(r, one.blob.Size), sum)
	if one.diff != "" {
		err := x.p.Disk.Layers.Verify(ctx, tee, one.diff)
		if errdefs.IsInvalidArgument(err) { // of this repository's making: the image itself is sound
			return fmt.Errorf("blob %s is corrupt: %s: %w", one.blob.Digest, err.Error(), errdefs.ErrDataLoss)
		}
		if err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return err
	}
	if !sum.Verified() {
		return fmt.Errorf("blob %s is corrupt: %w", one.blob.Digest, errdefs.ErrDataLoss)
	}
	x.Shown.Note(one.blob, one.blob.Size)
	return nil
}
