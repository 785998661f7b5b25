package pull

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// rootFS fetches the layers that are not unpacked yet, some at a time, and
// unpacks each while it comes in.
func (x *session) rootFS(ctx context.Context, img *store.Image, blobs []ocispec.Descriptor, diffs []digest.Digest) error {
	if len(blobs) > unpack.MaxLayers {
		return fmt.Errorf("the image has %d layers, and overlayfs takes %d; build it with fewer: %w", len(blobs), unpack.MaxLayers, errdefs.ErrInvalidArgument)
	}
	todo := x.missing(ctx, blobs, diffs)
	var total int64
	var wanted []ocispec.Descriptor
	for i, l := range todo {
		if err := x.p.Disk.Layers.CheckTransfer(l.blob.Size); err != nil {
			return fmt.Errorf("layer %s of %d bytes: %w", l.blob.Digest, l.blob.Size, err)
		}
		total += l.blob.Size
		wanted = append(wanted, l.blob)
		todo[i].unpin = x.p.Disk.Content.Pin(l.blob.Digest)
		x.OnClose(todo[i].unpin)
		x.layers = append(x.layers, l.blob.Digest)
	}
	if err := x.Take(ctx, wanted...); err != nil {
		return err
	}
	x.Meter.Update(func(p *progress.Progress) {
		p.Phase = "fetch"
		p.Layers += len(todo)
		p.BytesTotal += total
		for _, l := range todo {
			p.Parts = append(p.Parts, progress.Part{Digest: l.blob.Digest, Total: l.blob.Size})
		}
	})
	work, working := errgroup.WithContext(ctx)
	keep := x.keeps() || img.Kept
	work.Go(func() error { return x.fetch(working, todo, keep) })
	work.Go(func() error { return x.unpack(working, todo, keep) })
	if err := work.Wait(); err != nil {
		return err
	}
	return x.arriveRootFS(ctx, img)
}

// pendingLayer is a layer to fetch and unpack.
type pendingLayer struct {
	blob  ocispec.Descriptor
	layer unpack.Layer // without a chain: it is unpacked, and its blob is to be kept
	unpin func()       // of the blob
	// opened is set once this session's blob, and not another pull's, is unpacked.
	opened *atomic.Bool
}

// missing returns the layers that are not unpacked, or known to be damaged, and those whose blobs
// are missing if they are to be kept.
func (x *session) missing(ctx context.Context, blobs []ocispec.Descriptor, diffs []digest.Digest) []pendingLayer {
	var out []pendingLayer
	chains := identity.ChainIDs(slices.Clone(diffs))
	for i, chain := range chains {
		if x.p.Disk.Layers.Has(chain) && x.keeps() {
			if !x.p.Disk.Content.Has(ctx, blobs[i]) {
				out = append(out, pendingLayer{blob: blobs[i]})
			}
			continue
		}
		if x.p.Disk.Layers.Has(chain) {
			// Of an earlier try; the layer came otherwise.
			if err := x.p.Disk.Content.DropPart(blobs[i].Digest); err != nil {
				x.p.Logger.Warn("failed to remove part of a blob, it stays until the next garbage collection", "error", err)
			}
			continue
		}
		l := pendingLayer{blob: blobs[i]}
		l.opened = new(atomic.Bool)
		l.layer = unpack.Layer{Chain: chain, Diff: diffs[i], Open: func(ctx context.Context) (io.ReadCloser, error) {
			l.opened.Store(true)
			return x.p.Disk.Content.Follow(ctx, l.blob)
		}, Grow: func(bytes int64) error {
			return x.Reserve(ctx, bytes)
		}}
		if i > 0 {
			l.layer.Parent = chains[i-1]
		}
		out = append(out, l)
	}
	return out
}

func (x *session) fetch(ctx context.Context, layers []pendingLayer, keep bool) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallelLayers)
	ingest := x.IngestPassing
	if keep {
		ingest = x.Ingest
	}
	for _, l := range layers {
		work.Go(func() error {
			if !keep && x.p.Disk.Layers.Committed(l.layer.Chain) {
				return nil // by another pull, which has dropped its blob before this one pinned it
			}
			err := ingest(ctx, l.blob, x.Count(l.blob.Digest))
			if err == nil && l.layer.Chain == "" {
				x.done(l.blob)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	x.Meter.Update(func(p *progress.Progress) { p.Phase = "unpack" })
	return nil
}

// unpack stages layers, some at a time and in whatever order they come in, and makes them known
// together. Before, while nothing of it is on disk yet, it drops what they came in as, unless that
// is to be kept.
func (x *session) unpack(ctx context.Context, layers []pendingLayer, keep bool) error {
	work, staging := errgroup.WithContext(ctx)
	work.SetLimit(parallelLayers)
	var all []unpack.Layer
	for _, l := range layers {
		if l.layer.Chain == "" {
			continue
		}
		all = append(all, l.layer)
		work.Go(func() error {
			err := x.p.Disk.Layers.Stage(staging, l.layer)
			// The blob was corrupt and came anew, from each of several mirrors perhaps: see store.Follow.
			for again := 0; errdefs.IsAborted(err) && again < mostAnew && staging.Err() == nil; again++ {
				err = x.p.Disk.Layers.Stage(staging, l.layer)
			}
			if err != nil {
				return err
			}
			if l.opened.Load() {
				x.Shown.NoteUnpacked(l.layer.Diff)
			}
			x.done(l.blob)
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return x.p.Disk.Layers.Commit(ctx, all, func() {
		if !keep {
			x.dropBlobs(ctx, layers)
		}
	})
}

// done tells that all is done with a layer or module.
func (x *session) done(blob ocispec.Descriptor) {
	x.Meter.Part(blob.Digest, func(p *progress.Progress, part *progress.Part) { p.LayersDone, part.Done = p.LayersDone+1, true })
}

// dropBlobs drops the blobs of layers that are unpacked, except those that another image keeps: to
// bring them to disk would take as long again as their files do.
func (x *session) dropBlobs(ctx context.Context, layers []pendingLayer) {
	if len(layers) == 0 {
		return
	}
	var blobs []digest.Digest
	for _, l := range layers {
		l.unpin()
		blobs = append(blobs, l.blob.Digest)
	}
	if err := x.p.Collector.DropLayers(ctx, blobs); err != nil {
		x.p.Logger.Warn("failed to remove compressed layers, they stay until the image is recorded", "layers", blobs, "error", err)
	}
}
