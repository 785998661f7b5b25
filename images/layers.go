package images

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// DefaultParallelLayers is how many layers of an image are fetched at a time,
// unless Options say otherwise.
const DefaultParallelLayers = 4

// rootFS fetches the layers that are not unpacked yet, some at a time, and
// unpacks each, once all below it are unpacked, while it comes in.
func (x *session) rootFS(ctx context.Context, img store.Image, blobs []ocispec.Descriptor, diffs []digest.Digest) error {
	if len(blobs) != len(diffs) {
		return fmt.Errorf("the manifest has %d layers and the configuration %d: %w", len(blobs), len(diffs), errdefs.ErrInvalidArgument)
	}
	x.dirty = x.dirty || len(blobs) > 0
	todo := x.missing(ctx, blobs, diffs)
	var total int64
	for _, l := range todo {
		total += l.blob.Size
		x.pin(l.blob.Digest)
		x.layers = append(x.layers, l.blob.Digest)
	}
	x.meter.update(func(p *Progress) {
		p.Phase = "fetch"
		p.Layers += len(todo)
		p.BytesTotal += total
	})
	work, working := errgroup.WithContext(ctx)
	work.Go(func() error { return x.fetch(working, todo) })
	work.Go(func() error { return x.unpack(working, todo) })
	if err := work.Wait(); err != nil {
		return err
	}
	return x.s.arriveRootFS(ctx, img)
}

// pendingLayer is a layer to fetch and unpack.
type pendingLayer struct {
	blob  ocispec.Descriptor
	layer unpack.Layer
}

// missing returns the layers above the highest that is unpacked.
func (x *session) missing(ctx context.Context, blobs []ocispec.Descriptor, diffs []digest.Digest) []pendingLayer {
	chains := identity.ChainIDs(slices.Clone(diffs))
	first := len(chains)
	for first > 0 && !x.s.layers.Has(ctx, chains[first-1]) {
		first--
	}
	for _, b := range blobs[:first] {
		// Of an earlier try; the layer came otherwise.
		if err := x.s.content.DropPart(b.Digest); err != nil {
			x.s.logger.Warn("a part of a blob stays until the next sweep", "error", err)
		}
	}
	var out []pendingLayer
	for i := first; i < len(chains); i++ {
		l := pendingLayer{blob: blobs[i]}
		l.layer = unpack.Layer{Chain: chains[i], Diff: diffs[i], Open: func(ctx context.Context) (io.ReadCloser, error) {
			return x.s.content.Follow(ctx, l.blob)
		}}
		if i > 0 {
			l.layer.Parent = chains[i-1]
		}
		out = append(out, l)
	}
	return out
}

func (x *session) fetch(ctx context.Context, layers []pendingLayer) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(x.s.parallel)
	for _, l := range layers {
		work.Go(func() error { return x.ingest(ctx, l.blob, x.count) })
	}
	if err := work.Wait(); err != nil {
		return err
	}
	x.meter.update(func(p *Progress) { p.Phase = "unpack" })
	return nil
}

func (x *session) unpack(ctx context.Context, layers []pendingLayer) error {
	for _, l := range layers {
		err := x.s.layers.Apply(ctx, l.layer)
		if errdefs.IsAborted(err) { // the blob was corrupt and came anew, see store.Follow
			err = x.s.layers.Apply(ctx, l.layer)
		}
		if err != nil {
			return err
		}
		x.meter.update(func(p *Progress) { p.LayersDone++ })
	}
	return nil
}
