package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/transfer"
	"github.com/sunaba-project/sunaba/images/variant"
)

// session is one run of bringing images in from one repository or archive.
type session struct {
	*transfer.Transfer
	p      *Puller
	repo   string
	root   digest.Digest   // what the reference stands for
	layers []digest.Digest // blobs that are of no use once unpacked

	kept        bool                             // layers stay, whatever Options.KeepLayers says: they came from an archive
	credentials string                           // whose they are, "" for none or the node's
	manifests   map[digest.Digest]store.Manifest // facts of those that were brought in
	hidden      []string                         // new images that have not been shown in full
	leftOut     bool                             // a variant was, and its result is not needed
	recorded    *store.State                     // the records with what was brought in: it may be removed since
}

func (p *Puller) session(from transfer.Source, repo string, root digest.Digest, m *progress.Meter) *session {
	x := &session{
		Transfer: transfer.New(p.Disk.Content, p.Room, from, m),
		p:        p, repo: repo, root: root, manifests: make(map[digest.Digest]store.Manifest),
	}
	x.Pin(root)
	return x
}

// Import brings in what an archive has of a name, for the handlers, records it, and returns the
// variant for the first of them. keep says that its layers stay as they were transferred, whatever
// Options.KeepLayers says.
//
// # Errors
//
// Those of Pull.
func (p *Puller) Import(ctx context.Context, from transfer.Source, n reference.Name, root ocispec.Descriptor, handlers variant.Handlers, keep bool, m *progress.Meter) (catalog.Image, error) {
	x := p.session(from, n.Repo, root.Digest, m)
	x.kept = keep
	defer x.Close()
	target, err := x.bringIn(ctx, n, root, handlers, nil)
	if err != nil {
		x.giveUp(ctx, err)
		return catalog.Image{}, err
	}
	return p.Catalog.Variant(x.recorded, []store.Target{target}, handlers)
}

// giveUp closes the session after an error. If what came is at fault, or there is no room for it,
// so that another try would fare no better, it is removed; otherwise the next pull continues it.
func (x *session) giveUp(ctx context.Context, err error) {
	x.Close()
	if ctx.Err() != nil || !isForGood(err) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if err := x.p.Collector.DropUnneeded(ctx, slices.Concat(x.Pinned(), x.layers)); err != nil {
		x.p.Logger.Warn("failed to remove content of an unusable image, it stays until the next garbage collection", "error", err)
	}
}

// isForGood reports whether an error is one of content or of room. A registry's own has the class
// of the latter too: it was asked too often.
func isForGood(err error) bool {
	if _, ok := errors.AsType[*registry.Error](err); ok {
		return errdefs.IsDataLoss(err)
	}
	return errdefs.IsInvalidArgument(err) || errdefs.IsDataLoss(err) || errdefs.IsResourceExhausted(err) || durable.Full(err)
}

// bringIn makes a target present and recorded for the handlers, and for others
// as far as it has something for them. A target that was complete may be removed
// before it is recorded anew; then it is fetched.
func (x *session) bringIn(ctx context.Context, n reference.Name, desc ocispec.Descriptor, handlers, others variant.Handlers) (store.Target, error) {
	full := n.WithDigest(desc.Digest)
	t, ok := x.complete(ctx, full, handlers)
	if ok && len(others) > 0 {
		_, ok = x.complete(ctx, full, others)
	}
	if ok {
		if err := x.record(ctx, n, t, nil); !errdefs.IsUnavailable(err) {
			return t, err
		}
	}
	t, images, err := x.target(ctx, n, desc, handlers, others)
	if err != nil {
		return t, err
	}
	if err := x.record(ctx, n, t, images); err != nil || !x.leftOut {
		return t, err
	}
	return t, x.p.Collector.DropUnneeded(context.WithoutCancel(ctx), slices.Concat(x.Pinned(), x.layers))
}

// target fetches what the handlers choose of a descriptor.
func (x *session) target(ctx context.Context, n reference.Name, desc ocispec.Descriptor, handlers, others variant.Handlers) (store.Target, []store.Image, error) {
	entries, err := x.entries(ctx, desc)
	if err != nil {
		return store.Target{}, nil, err
	}
	t := store.Target{Repo: n.Repo, Digest: desc.Digest, Root: desc, Entries: entries, Images: map[digest.Digest]string{}}
	chosen := variant.Choices(entries, handlers)
	if len(chosen) == 0 {
		return t, nil, variant.NoMatch(entries, handlers, x.p.Handlers)
	}
	images, refusals, err := x.variants(ctx, t, chosen, func(err error) bool { return errdefs.IsInvalidArgument(err) || errors.Is(err, errAbsent) })
	if err != nil {
		return t, nil, err
	}
	if len(images) == 0 {
		return t, nil, refusals[0]
	}
	// A variant that was not asked for fails the pull only if a retry may bring it.
	also, left, err := x.variants(ctx, t, variant.Choices(entries, others), func(err error) bool { return !mayPass(err) })
	if err != nil {
		return t, nil, err
	}
	for _, err := range slices.Concat(refusals, left) {
		x.leftOut = true
		x.p.Logger.Warn("failed to pull a variant of an image, it is left out", "image", n.Full, "error", err)
	}
	t.Manifests = x.manifests
	return t, slices.Concat(images, also), nil
}

// errAbsent says that an archive does not contain a variant.
var errAbsent = fmt.Errorf("it is not in the archive: %w", errdefs.ErrNotFound)

// mayPass reports whether a later retry may succeed.
func mayPass(err error) bool {
	var asked *registry.Error
	return errors.As(err, &asked) && (asked.Unavailable() || errdefs.IsResourceExhausted(err))
}

// variants brings in what was chosen and is not yet among the target's images.
// Errors that skip takes are refusals of one variant.
func (x *session) variants(ctx context.Context, t store.Target, chosen []variant.Choice, skip func(error) bool) (images []store.Image, refusals []error, err error) {
	for _, c := range chosen {
		if _, ok := t.Images[c.Manifest.Digest]; ok {
			continue
		}
		img, err := x.variant(ctx, c)
		if errdefs.IsInvalidArgument(err) && ctx.Err() == nil {
			x.p.setRefusal(c.Manifest.Digest, err)
		}
		if err != nil && ctx.Err() == nil && skip(err) {
			refusals = append(refusals, err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		images = append(images, img)
		t.Images[c.Manifest.Digest] = img.ID
	}
	return images, refusals, nil
}

func (x *session) variant(ctx context.Context, c variant.Choice) (store.Image, error) {
	if p, ok := x.Source.(transfer.Partial); ok && !p.Has(c.Manifest.Digest) && !x.p.Disk.Content.Has(ctx, c.Manifest) {
		return store.Image{}, fmt.Errorf("manifest %s for handler %q: %w", c.Manifest.Digest, c.Handler.Name, errAbsent)
	}
	return x.image(ctx, c.Manifest)
}

// keeps reports whether layers stay as they were transferred.
func (x *session) keeps() bool { return x.kept || x.p.KeepLayers }

// hasLayers reports whether layers are here as they were transferred, if they are to stay so. They
// are pinned before they are looked for.
func (x *session) hasLayers(ctx context.Context, layers []ocispec.Descriptor) bool {
	if !x.keeps() {
		return true
	}
	for _, l := range layers {
		x.Pin(l.Digest)
	}
	return x.p.Disk.HasLayers(ctx, layers)
}

// has reports whether all of a known image is here, with its layers as a manifest has them.
func (x *session) has(ctx context.Context, img store.Image, layers []ocispec.Descriptor) bool {
	if x.keeps() && len(layers) != len(img.Layers) { // they are not known
		return false
	}
	return x.p.Disk.Intact(ctx, img) && (img.Kept || !x.kept) && x.hasLayers(ctx, layers)
}

// complete returns a target that is known and whose variants for the handlers are all here.
func (x *session) complete(ctx context.Context, name string, handlers variant.Handlers) (store.Target, bool) {
	p := x.p
	st := p.Disk.DB.State()
	t, ok := st.Targets[name]
	if !ok || !p.Disk.Content.Has(ctx, t.Root) {
		return t, false
	}
	present := 0
	for _, c := range variant.Choices(t.Entries, handlers) {
		id, ok := t.Images[c.Manifest.Digest]
		switch {
		case ok && x.has(ctx, st.Images[id], t.LayersOf(c.Manifest.Digest, st.Images[id])) && (t.Manifests[c.Manifest.Digest].Shown || !p.Guard.Verifies()):
			present++
		case p.refusal(c.Manifest.Digest) == nil:
			return t, false
		}
	}
	return t, present > 0
}

// shownImages returns the images of a target that its repository has shown in full.
func shownImages(t store.Target) []string {
	var ids []string
	for m, id := range t.Images {
		if t.Manifests[m].Shown {
			ids = append(ids, id)
		}
	}
	return ids
}

// record makes a pull known, all of which is on disk: the records are written,
// then the pins and what is of no use any more are given up.
func (x *session) record(ctx context.Context, n reference.Name, t store.Target, images []store.Image) error {
	if err := x.write(n, t, images); err != nil || x.keeps() || len(x.layers) == 0 {
		return err
	}
	if err := x.p.Collector.DropLayers(ctx, x.layers); err != nil {
		x.p.Logger.Warn("failed to remove compressed layers, they stay until the next garbage collection", "error", err)
	}
	return nil
}

// write writes the records of a pull and gives up the pins.
func (x *session) write(n reference.Name, t store.Target, images []store.Image) error {
	recording := x.p.Collector.Recording()
	recording.Lock()
	defer recording.Unlock()
	err := x.p.Disk.DB.Update(func(st *store.Tx) error {
		for _, id := range t.Images {
			_, there := st.Images[id]
			if !there && !slices.ContainsFunc(images, func(i store.Image) bool { return i.ID == id }) {
				return fmt.Errorf("image %s has been removed meanwhile: %w", id, errdefs.ErrUnavailable)
			}
		}
		for i, img := range images { // it may have been imported meanwhile
			images[i].Kept = img.Kept || st.Images[img.ID].Kept
		}
		t.Answer = x.p.Catalog.AnswerOf(t)
		if old, ok := st.Targets[t.Name()]; ok {
			t.Answer = x.p.Catalog.AnswerOf(old)
		}
		st.AddTarget(t, x.p.Catalog.KeepsTag, images...)
		if n.Digest == "" {
			st.PointTag(n.Full, t.Name(), x.p.Catalog.KeepsTag)
		}
		x.recorded = st.State
		return nil
	})
	if err != nil {
		return fmt.Errorf("record image: %w", err)
	}
	x.Recorded()
	return nil
}
