package push

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/transfer"
)

// maxMounts is from how many repositories a blob is to be mounted that is not on this node.
const maxMounts = 3

// siblings returns by blob the other repositories of the same registry that are known to have it,
// as paths, sorted.
func (r *run) siblings(blobs []ocispec.Descriptor) map[digest.Digest][]string {
	out := make(map[digest.Digest][]string)
	host, _, _ := strings.Cut(r.dest.Repo, "/")
	for _, b := range blobs {
		for _, t := range holders(r.state, b.Digest) {
			domain, path, _ := strings.Cut(t.Repo, "/")
			if domain == host && t.Repo != r.dest.Repo && !slices.Contains(out[b.Digest], path) {
				out[b.Digest] = append(out[b.Digest], path)
			}
		}
	}
	return out
}

// holders returns the targets whose images have a blob, sorted by name.
func holders(st *store.State, blob digest.Digest) []store.Target {
	var out []store.Target
	for _, t := range st.Targets {
		for m, id := range t.Images {
			img := st.Images[id]
			if img.Config.Digest == blob || slices.ContainsFunc(t.LayersOf(m, img), func(l ocispec.Descriptor) bool { return l.Digest == blob }) {
				out = append(out, t)
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b store.Target) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// recover makes blobs available that are not on this node: the registry mounts them from another of
// its repositories, or they are fetched from where their image came from. Those that were fetched
// are here until the plan is closed.
//
// # Errors
//
// ErrFailedPrecondition for a blob that no registry gives: it was not kept.
func (r *run) recover(ctx context.Context, gone []ocispec.Descriptor, from map[digest.Digest][]string) (fetched []ocispec.Descriptor, err error) {
	r.meter.Update(func(p *progress.Progress) {
		if len(gone) > 0 {
			p.Phase, p.Layers = "fetch", len(gone)
		}
		for _, b := range gone {
			p.BytesTotal += b.Size
			p.Parts = append(p.Parts, progress.Part{Digest: b.Digest, Total: b.Size})
		}
	})
	for _, b := range gone {
		mounted, err := r.mount(ctx, b, from[b.Digest])
		if err != nil {
			return nil, err
		}
		if mounted {
			r.result.Mounted++
			continue
		}
		if err := r.fetch(ctx, b); err != nil {
			return nil, err
		}
		fetched = append(fetched, b)
	}
	return fetched, nil
}

func (r *run) mount(ctx context.Context, b ocispec.Descriptor, from []string) (bool, error) {
	for _, repository := range from[:min(maxMounts, len(from))] {
		mounted, err := r.remote.Mount(ctx, b, repository)
		if mounted || err != nil {
			return mounted, err
		}
	}
	return false, nil
}

// fetch brings a blob in from a repository that had its image, until the plan is closed.
func (r *run) fetch(ctx context.Context, b ocispec.Descriptor) error {
	r.dropped = append(r.dropped, b.Digest)
	last := errors.New("no other repository is known to have it")
	host, _, _ := strings.Cut(r.dest.Repo, "/")
	for _, t := range holders(r.state, b.Digest) {
		if t.Repo == r.dest.Repo {
			continue // it has just said that it does not have it
		}
		var auth registry.Credentials
		if strings.HasPrefix(t.Repo, host+"/") {
			auth = r.req.Auth
		}
		remote, err := r.p.Registry.Repository(ctx, t.Name(), auth)
		if err != nil {
			last = err
			continue
		}
		x := transfer.New(r.p.Disk.Content, r.p.Room, remote, r.meter)
		r.transfers = append(r.transfers, x)
		if err = x.Take(ctx, b); err == nil {
			err = x.Ingest(ctx, b, x.Count(b.Digest))
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err = space.Explain(r.p.Disk.Root, err); errdefs.IsResourceExhausted(err) {
			return fmt.Errorf("fetch layer %s again, which is not kept compressed: %w", b.Digest, err)
		}
		last = err
	}
	return fmt.Errorf("layer %s is not kept compressed, and fetching it again failed (%w); import the image, or pull it again with images.keep_layers = true: %w",
		b.Digest, last, errdefs.ErrFailedPrecondition)
}
