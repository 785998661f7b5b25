// Package pull turns a reference into images that are present: it resolves the reference, chooses
// the variants for the handlers, fetches, verifies and unpacks them, and records them once all of
// it is on disk.
package pull

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/images/access"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/singleflight"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/transfer"
	"github.com/sunaba-project/sunaba/images/variant"
)

// parallelLayers is how many layers one pull fetches at a time. As many are unpacked at a time.
const parallelLayers = 4

// mostAnew is how often a layer is unpacked again whose blob proves corrupt while it comes.
const mostAnew = 8

// Options configures a Puller.
type Options struct {
	Disk      *disk.Disk
	Handlers  variant.Handlers
	Catalog   *catalog.Catalog
	Guard     *access.Guard
	Collector *retain.Collector
	Modules   *retain.Modules
	Registry  *registry.Client
	Meters    *progress.Meters
	Room      *transfer.Room
	// KeepLayers keeps layers as they were transferred.
	KeepLayers bool
	// Pulled is told of each pull that has ended; it may be nil.
	Pulled func(took time.Duration, bytes int64, err error)
	Logger *slog.Logger
}

// Puller fetches images into an image store.
type Puller struct {
	Options
	pulls singleflight.Group[pulled]

	mu      sync.Mutex
	refused map[digest.Digest]error // manifests that cannot run, by this process
}

// New returns a Puller.
func New(o Options) *Puller {
	return &Puller{Options: o, refused: make(map[digest.Digest]error)}
}

// Wait returns when no pull runs. Call it after the last Pull.
func (p *Puller) Wait() { p.pulls.Wait() }

// Request says what to pull and for whom.
type Request struct {
	Ref string
	// Handler is the runtime handler that the image is for; "" fetches the best
	// match of every configured handler.
	Handler string
	Auth    registry.Credentials
	// Namespace is that of the pod that the pull is for; "" for none. See access.Guard.Permit.
	Namespace string
	// Progress, when set, is called from one goroutine at a time, a few times a
	// second, and must not block.
	Progress func(progress.Progress)
}

// Pull fetches an image and returns the variant for the handler. Without a handler, the best match
// of every configured handler is fetched, and the default handler's variant is returned, or that of
// the first handler that has one. Present content is not fetched again: then a pull is one request,
// for the manifest. Equal concurrent pulls are deduplicated.
//
// An image that needs the request's credentials is fetched for every handler: a pod of another
// handler has no pull of its own, and credentials are not kept.
//
// A tag that has moved then points to the new image for the handlers that have a variant of it; the
// old image stays, without the tag.
//
// A pull for every handler passes over a variant that cannot run, such as a
// WebAssembly component, if another handler has one that can.
//
// # Errors
//
// ErrInvalidArgument for a reference that is not one (without touching the network), an unknown
// handler, and content that cannot run here; a *NoMatchError (ErrFailedPrecondition) when no
// requested handler runs the image; ErrNotFound, ErrUnauthenticated, ErrPermissionDenied from the
// registry; ErrDataLoss for content that does not match its digest; the context's error. The text
// of an unreachable registry starts with registry.UnavailablePrefix.
func (p *Puller) Pull(ctx context.Context, req Request) (catalog.Image, error) {
	n, err := reference.Parse(req.Ref)
	if err != nil {
		return catalog.Image{}, err
	}
	handlers, err := p.Handlers.Wanted(req.Handler)
	if err != nil {
		return catalog.Image{}, err
	}
	remote, err := p.Registry.Repository(ctx, n.Full, req.Auth)
	if err != nil {
		return catalog.Image{}, fmt.Errorf("pull %q: %w", req.Ref, err)
	}
	key := n.Full + " " + req.Handler + " " + fingerprint(req.Auth)
	m, leave := p.Meters.Join(key, req.Progress)
	defer leave()
	got, err := p.pulls.Do(ctx, key, func(ctx context.Context) (pulled, error) {
		return p.counted(ctx, n, handlers, remote, m)
	})
	if err == nil {
		err = p.Guard.Grant(got.Pulled, req.Namespace)
	}
	if err != nil {
		what := fmt.Sprintf("pull %q", req.Ref)
		if strings.Contains(err.Error(), fmt.Sprintf("%q", n.Full)) { // it is said already
			what = "pull image"
		}
		if here := p.unfit(n, handlers); here != nil && (errdefs.IsNotFound(err) || registry.IsUnavailable(err)) {
			what += fmt.Sprintf(": the image on this node cannot be used: %v; its registry", here)
		}
		return catalog.Image{}, registry.Describe(what, space.Explain(p.Disk.Root, err))
	}
	return got.image, nil
}

// unfit says why no variant of the image that this node has under a name runs under the handlers;
// nil if one does, or if there is no such image.
func (p *Puller) unfit(n reference.Name, handlers variant.Handlers) error {
	for _, t := range p.Disk.DB.State().Named(n.Full) {
		if err := variant.NoMatch(t.Entries, handlers, p.Handlers); err != nil {
			return err
		}
	}
	return nil
}

// pulled is the result of a pull.
type pulled struct {
	access.Pulled
	image catalog.Image
}

// fingerprint tells pulls with different credentials apart.
func fingerprint(c registry.Credentials) string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings always encode
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// counted is pull, of which Options.Pulled is told.
func (p *Puller) counted(ctx context.Context, n reference.Name, handlers variant.Handlers, remote *registry.Repository, m *progress.Meter) (pulled, error) {
	started := time.Now()
	ctx, span := trace.Start(ctx, "pull image")
	span.Text(trace.ImageName, n.Full)
	var fetched atomic.Int64
	got, err := p.pull(ctx, n, handlers, remote, m, &fetched)
	var told error
	if err != nil && (p.Pulled != nil || span.On()) {
		told = registry.Describe("pull image", err)
	}
	if p.Pulled != nil {
		p.Pulled(time.Since(started), fetched.Load(), told)
	}
	span.Number(trace.Bytes, fetched.Load())
	span.End(told)
	return got, err
}

// pull adds the bytes that it fetches to fetched.
func (p *Puller) pull(
	ctx context.Context, n reference.Name, handlers variant.Handlers, remote *registry.Repository, m *progress.Meter, fetched *atomic.Int64,
) (pulled, error) {
	started := time.Now()
	m.Update(func(p *progress.Progress) { *p = progress.Progress{Phase: "resolve"} })
	desc, err := remote.Resolve(ctx)
	if err != nil {
		return pulled{}, err
	}
	if err := manifest.CheckDescriptor(desc); err != nil {
		return pulled{}, err
	}
	x := p.session(remote, n.Repo, desc.Digest, m)
	x.Fetched = fetched
	x.credentials = remote.Fingerprint(p.Disk.DB.Salt())
	defer x.Close()
	var others variant.Handlers
	if remote.Access() == registry.ByPull {
		others = p.Handlers
	}
	target, err := x.bringIn(ctx, n, desc, handlers, others)
	if err != nil {
		x.giveUp(ctx, err)
		return pulled{}, err
	}
	m.Update(func(p *progress.Progress) { p.Phase = "done" })
	img, err := p.Catalog.Variant(x.recorded, []store.Target{target}, handlers)
	if err != nil {
		return pulled{}, err
	}
	hosts := slices.Sorted(maps.Keys(byHost(remote.Served())))
	p.Logger.Info("image pulled", "image", n.Full, "id", img.ID, "servers", hosts, "took", time.Since(started).Round(time.Millisecond))
	return pulled{image: img, Pulled: access.Pulled{
		IDs: shownImages(target), Hidden: x.hidden, Access: remote.Access(), Credentials: x.credentials,
	}}, nil
}

// refusal returns why a manifest cannot run, if this process has found that out.
func (p *Puller) refusal(manifest digest.Digest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused[manifest]
}

func (p *Puller) setRefusal(manifest digest.Digest, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.refused) >= maxRefusals {
		clear(p.refused)
	}
	p.refused[manifest] = err
}

// maxRefusals bounds how many images that cannot run are remembered.
const maxRefusals = 256

// FetchVariant fetches a manifest that a known target has an entry for, and the target's own
// document if it is missing, without credentials: those came with the pull and are not kept.
func (p *Puller) FetchVariant(ctx context.Context, t store.Target, entry ocispec.Descriptor) (catalog.Image, error) {
	if err := p.refusal(entry.Digest); err != nil {
		return catalog.Image{}, err
	}
	n, err := reference.Parse(t.Name())
	if err != nil {
		return catalog.Image{}, err
	}
	got, err := p.pulls.Do(ctx, t.Name()+" "+entry.Digest.String(), func(ctx context.Context) (pulled, error) {
		remote, err := p.Registry.Repository(ctx, n.Full, registry.Credentials{})
		if err != nil {
			return pulled{}, err
		}
		x := p.session(remote, n.Repo, t.Digest, nil)
		defer x.Close()
		if _, err := x.Document(ctx, t.Root); err != nil {
			x.giveUp(ctx, err)
			return pulled{}, err
		}
		img, err := x.image(ctx, entry)
		if errdefs.IsInvalidArgument(err) && ctx.Err() == nil {
			p.setRefusal(entry.Digest, err)
		}
		if err != nil {
			x.giveUp(ctx, err)
			return pulled{}, err
		}
		t.Images, t.Manifests = map[digest.Digest]string{entry.Digest: img.ID}, x.manifests
		if err := x.record(ctx, n, t, []store.Image{img}); err != nil {
			return pulled{}, err
		}
		brought := access.Pulled{IDs: shownImages(t), Hidden: x.hidden, Access: remote.Access()}
		return pulled{image: p.Catalog.ViewAs(p.Disk.DB.State(), t, entry.Digest), Pulled: brought}, nil
	})
	if err != nil {
		return catalog.Image{}, space.Explain(p.Disk.Root, err)
	}
	return got.image, p.Guard.Grant(got.Pulled, "")
}
