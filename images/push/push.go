// Package push sends images to registries.
//
// A push reads what an image consists of and pins it, so that neither a removal nor a garbage
// collection takes any of it meanwhile. It asks the registry which blobs it has, has it mount those
// of its other repositories, and sends the rest, then the manifests, and the name last. What a push
// lacks it finds out before it sends anything; a push that breaks off leaves nothing on this node,
// and the next one sends only what the registry does not have yet.
package push

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/transfer"
)

// parallel is how many blobs one push asks for, or sends, at a time.
const parallel = 4

// Options configure a Pusher.
type Options struct {
	Disk      *disk.Disk
	Collector *retain.Collector
	Registry  *registry.Client
	Room      *transfer.Room // for layers that are fetched again
	Logger    *slog.Logger
}

// Pusher sends images of an image store to registries.
type Pusher struct{ Options }

// New returns a Pusher.
func New(o Options) *Pusher { return &Pusher{o} }

// Request says what to push and where to.
type Request struct {
	// Source is a name or an id.
	Source string
	// Dest is the name to push it as, "" for its own.
	Dest string
	// All refuses an image of which variants are neither on this node nor in the registry, which are
	// left out otherwise.
	All  bool
	Auth registry.Credentials
	// Progress is as in pull.Request.
	Progress func(progress.Progress)
}

// Result is what was pushed.
type Result struct {
	// Name is the full name that the registry has it by, Digest what that name leads to.
	Name   string        `json:"name"`
	Digest digest.Digest `json:"digest"`
	// Sent counts the blobs that were sent, Mounted those that the registry took over from another of
	// its repositories, Present those that the repository had already.
	Sent    int `json:"sent"`
	Mounted int `json:"mounted"`
	Present int `json:"present"`
	// Bytes are those of the blobs that were sent.
	Bytes int64 `json:"bytes"`
	// Omitted are the variants that are neither on this node nor in the registry.
	Omitted []string `json:"omitted,omitempty"`
}

// run is one push.
type run struct {
	*plan
	req    Request
	remote *registry.Repository
	dest   reference.Name
	meter  *progress.Meter

	mu     sync.Mutex
	result Result
}

// Push sends an image to a registry: of a name all variants with their index, of an id that variant
// alone. Variants that are not on this node stay part of the index if the registry has them. Else
// the index is reduced to those that are here, which gives it another digest; of a single one the
// manifest is pushed as it is.
//
// Layers that were not kept are mounted from another repository of the registry, or fetched again.
//
// # Errors
//
// ErrNotFound for an image that is not present; ErrInvalidArgument for a name that is not one;
// ErrFailedPrecondition for what is not on this node; those of the registry.
func (p *Pusher) Push(ctx context.Context, req Request) (Result, error) {
	result, err := p.push(ctx, req)
	if err != nil {
		return Result{}, registry.Describe(fmt.Sprintf("push image %q", req.Source), err)
	}
	return result, nil
}

func (p *Pusher) push(ctx context.Context, req Request) (Result, error) {
	var meters progress.Meters
	meter, leave := meters.Join("", req.Progress)
	defer leave()
	w, err := p.plan(ctx, req.Source)
	if err != nil {
		return Result{}, err
	}
	defer w.close(context.WithoutCancel(ctx))
	r := &run{plan: w, req: req, meter: meter}
	if r.dest, err = destination(req.Dest, w.name); err != nil {
		return Result{}, err
	}
	if r.remote, err = p.Registry.Repository(ctx, r.dest.Full, req.Auth); err != nil {
		return Result{}, err
	}
	meter.Update(func(p *progress.Progress) { p.Phase = "resolve" })
	if err := r.remote.PreparePush(ctx); err != nil {
		return Result{}, err
	}
	if err := r.settle(ctx); err != nil {
		return Result{}, err
	}
	if d := r.dest.Digest; d != "" && d != r.root.desc.Digest {
		return Result{}, fmt.Errorf("what is to be pushed has the digest %s, not that of %q: %w", r.root.desc.Digest, r.dest.Full, errdefs.ErrInvalidArgument)
	}
	if err := r.sendBlobs(ctx); err != nil {
		return Result{}, err
	}
	meter.Update(func(p *progress.Progress) { p.Phase = "manifests" })
	if err := r.sendDocuments(ctx); err != nil {
		return Result{}, err
	}
	meter.Update(func(p *progress.Progress) { p.Phase = "done" })
	r.result.Name, r.result.Digest = r.dest.Full, r.root.desc.Digest
	p.Logger.Info("image pushed", "image", r.dest.Full, "digest", r.result.Digest, "bytes", r.result.Bytes)
	return r.result, nil
}

// destination is the name to push as: that which is given, perhaps as podman writes it, or the
// image's own.
func destination(given, own string) (reference.Name, error) {
	given = cmp.Or(given, own)
	if given == "" {
		return reference.Name{}, fmt.Errorf("an id is no name to push it as, give one: %w", errdefs.ErrInvalidArgument)
	}
	return reference.Parse(strings.TrimPrefix(given, "docker://"))
}

// settle decides what is pushed of an index with entries that are not on this node.
func (r *run) settle(ctx context.Context) error {
	var elsewhere, absent, variants []ocispec.Descriptor
	for _, e := range r.missing {
		has, err := r.remote.HasManifest(ctx, e)
		switch {
		case err != nil:
			return err
		case has:
			elsewhere = append(elsewhere, e)
			continue
		case !manifest.DescribesOther(e):
			variants = append(variants, e)
		}
		absent = append(absent, e)
	}
	if left := names(variants); r.req.All && len(left) > 0 {
		const most = 5
		text := strings.Join(left[:min(most, len(left))], ", ")
		if len(left) > most {
			text = fmt.Sprintf("%s and %d more", text, len(left)-most)
		}
		return fmt.Errorf("variants of it are neither on this node nor in the registry: %s: %w", text, errdefs.ErrFailedPrecondition)
	}
	if len(absent) == 0 {
		return nil
	}
	r.result.Omitted = names(absent)
	return r.reduce(elsewhere)
}

// sendBlobs makes the repository have all blobs.
func (r *run) sendBlobs(ctx context.Context) error {
	lacking, err := r.lacking(ctx)
	if err != nil {
		return err
	}
	from := r.siblings(lacking)
	var here, gone []ocispec.Descriptor
	for _, b := range lacking {
		if r.p.Disk.Content.Has(ctx, b) {
			here = append(here, b)
		} else {
			gone = append(gone, b)
		}
	}
	fetched, err := r.recover(ctx, gone, from)
	if err != nil {
		return err
	}
	here = append(here, fetched...)
	r.meter.Update(func(p *progress.Progress) {
		*p = progress.Progress{Phase: "push", Layers: len(here)}
		for _, b := range here {
			p.BytesTotal += b.Size
			p.Parts = append(p.Parts, progress.Part{Digest: b.Digest, Total: b.Size})
		}
	})
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallel)
	for _, b := range here {
		work.Go(func() error { return r.sendBlob(ctx, b, first(from[b.Digest])) })
	}
	return work.Wait()
}

func first(repositories []string) string {
	if len(repositories) == 0 {
		return ""
	}
	return repositories[0]
}

// lacking returns the blobs that the repository does not have.
func (r *run) lacking(ctx context.Context) ([]ocispec.Descriptor, error) {
	has := make([]bool, len(r.blobs))
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(parallel)
	for i, b := range r.blobs {
		work.Go(func() (err error) {
			has[i], err = r.remote.HasBlob(working, b)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for i, b := range r.blobs {
		if has[i] {
			r.result.Present++
		} else {
			out = append(out, b)
		}
	}
	return out, nil
}

// sendBlob sends a blob, or has the registry mount it from another repository.
func (r *run) sendBlob(ctx context.Context, b ocispec.Descriptor, from string) error {
	mounted, err := r.remote.PushBlob(ctx, registry.Blob{
		Desc: b, From: from,
		Open: func(offset int64) (io.ReadCloser, error) { return r.p.Disk.Content.OpenFrom(ctx, b, offset) },
		Sent: func(n int64) {
			r.meter.Part(b.Digest, func(p *progress.Progress, part *progress.Part) { p.Bytes, part.Bytes = p.Bytes+n, part.Bytes+n })
		},
	})
	if err != nil {
		return err
	}
	r.meter.Part(b.Digest, func(p *progress.Progress, part *progress.Part) { p.LayersDone, part.Done = p.LayersDone+1, true })
	r.mu.Lock()
	defer r.mu.Unlock()
	if mounted {
		r.result.Mounted++
		return nil
	}
	r.result.Sent++
	r.result.Bytes += b.Size
	return nil
}

// sendDocuments stores the manifests and then the name, except what the repository has.
func (r *run) sendDocuments(ctx context.Context) error {
	for _, d := range r.documents {
		has, err := r.remote.HasManifest(ctx, d.desc)
		if err == nil && !has {
			err = r.remote.PushManifest(ctx, d.desc, d.data, "")
		}
		if err != nil {
			return err
		}
	}
	tag := r.remote.Tag()
	has, err := r.remote.HasManifest(ctx, r.root.desc)
	if err == nil && has && tag != "" {
		has, err = r.remote.TagIs(ctx, r.root.desc)
	}
	if err != nil || has {
		return err
	}
	return r.remote.PushManifest(ctx, r.root.desc, r.root.data, tag)
}
