package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
)

// source is where content comes from: a repository of a registry, or an archive.
type source interface {
	// Fetch opens content from an offset on.
	Fetch(ctx context.Context, desc ocispec.Descriptor, offset int64) (io.ReadCloser, error)
	// Refuse takes content from where it came from as wrong, and reports whether
	// there is another place to fetch it from.
	Refuse(d digest.Digest) bool
	// Served names the places that content came from.
	Served() map[digest.Digest]string
}

// session is one run of fetching from one repository. Everything it touches is
// pinned until it is closed.
type session struct {
	s      *Service
	remote source
	repo   string
	root   digest.Digest // what the reference stands for
	meter  *progress.Meter
	unpin  []func()
	pinned []digest.Digest
	layers []digest.Digest // blobs that are of no use once unpacked

	credentials string // whose they are, "" for none or the node's
	shown       showing
	manifests   map[digest.Digest]store.Manifest // facts of those that were brought in
	hidden      []string                         // new images that have not been shown in full
	leftOut     bool                             // a variant was, and what came of it is of no use

	reserving, recorded, closed bool
	reserved                    int64 // bytes of the budget
}

func (s *Service) session(remote source, repo string, root digest.Digest, m *progress.Meter) *session {
	return &session{s: s, remote: remote, repo: repo, root: root, meter: m, manifests: make(map[digest.Digest]store.Manifest)}
}

func (x *session) close() {
	for _, f := range x.unpin {
		f()
	}
	x.unpin = nil
	x.release()
}

// giveUp closes the session after an error. If what came is at fault, or there is no room for it, so that another try
// would fare no better, it is removed; else the next try goes on with it.
func (x *session) giveUp(ctx context.Context, err error) {
	x.close()
	if ctx.Err() != nil || !isForGood(err) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if err := x.s.dropUnneeded(ctx, slices.Concat(x.pinned, x.layers)); err != nil {
		x.s.logger.Warn("failed to remove content of an unusable image, it stays until the next garbage collection", "error", err)
	}
}

// isForGood reports whether an error is one of content or of room. A registry's own has the class of the latter too: it
// was asked too often.
func isForGood(err error) bool {
	var asked *registry.Error
	if errors.As(err, &asked) {
		return errdefs.IsDataLoss(err)
	}
	return errdefs.IsInvalidArgument(err) || errdefs.IsDataLoss(err) || errdefs.IsResourceExhausted(err) || durable.Full(err)
}

// dropUnneeded drops blobs, and what has come of them, that no image, no container and no pull needs.
func (s *Service) dropUnneeded(ctx context.Context, blobs []digest.Digest) error {
	s.gc.Lock()
	defer s.gc.Unlock()
	roots, err := s.layers.Roots(ctx)
	if err != nil {
		return err
	}
	needed, _ := s.needed(s.db.State(), roots)
	for _, d := range blobs {
		if !needed[d] {
			err = errors.Join(err, s.content.Drop(ctx, d))
		}
	}
	return err
}

func (x *session) pin(ds ...digest.Digest) {
	x.pinned = append(x.pinned, ds...)
	x.unpin = append(x.unpin, x.s.content.Pin(ds...))
}

// blob brings a blob into the store.
func (x *session) blob(ctx context.Context, desc ocispec.Descriptor) error {
	x.pin(desc.Digest)
	return x.ingest(ctx, desc, func(int64) {})
}

// ingest brings a blob that is pinned into the store and reports bytes as they
// come, those of an earlier try too. What one server has wrong, another is asked
// for.
func (x *session) ingest(ctx context.Context, desc ocispec.Descriptor, got func(int64)) error {
	return x.ingestInto(ctx, x.s.content.Ingest, desc, got)
}

// ingestInto does so by one of the store's two ways.
func (x *session) ingestInto(ctx context.Context, into func(context.Context, ocispec.Descriptor, store.Opener) error, desc ocispec.Descriptor, got func(int64)) error {
	for {
		came, own := int64(0), int64(0) // own came in this session
		count := func(n int64) {
			came += n
			got(n)
		}
		err := into(ctx, desc, func(ctx context.Context, offset int64) (io.ReadCloser, error) {
			r, err := x.remote.Fetch(ctx, desc, offset)
			if err != nil {
				return nil, err
			}
			count(offset - came)
			return &countedReader{r, func(n int64) { own += n; count(n) }}, nil
		})
		if err == nil {
			x.shown.note(desc, own)
		}
		// A context that has ended may say so by another blob's error.
		if ctx.Err() != nil || !errdefs.IsDataLoss(err) || !x.remote.Refuse(desc.Digest) {
			return err
		}
		count(-came)
	}
}

type countedReader struct {
	io.ReadCloser
	got func(int64)
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.got(int64(n))
	return n, err
}

// document brings a manifest, index or configuration in and returns it.
func (x *session) document(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if err := store.CheckDocument(desc); err != nil {
		return nil, err
	}
	if err := x.blob(ctx, desc); err != nil {
		return nil, err
	}
	return x.s.content.Document(ctx, desc)
}

// image brings an image in, all but its record: content, unpacked layers, and
// the word of Arrived.
//
// # Errors
//
// ErrInvalidArgument means that this image cannot run here, however often it is
// fetched.
func (x *session) image(ctx context.Context, entry ocispec.Descriptor) (store.Image, error) {
	data, err := x.document(ctx, entry)
	if err != nil {
		return store.Image{}, err
	}
	m, err := manifest.Parse(entry, data)
	if err != nil {
		return store.Image{}, err
	}
	if m.IsIndex() {
		return store.Image{}, fmt.Errorf("manifest %s is an index: %w", entry.Digest, errdefs.ErrInvalidArgument)
	}
	module, err := manifest.IsModule(m)
	if err != nil {
		return store.Image{}, err
	}
	if data, err = x.document(ctx, *m.Config); err != nil {
		return store.Image{}, err
	}
	c, err := manifest.ParseConfig(*m.Config, data)
	if err != nil {
		return store.Image{}, err
	}
	if !module && len(m.Layers) != len(c.RootFS.DiffIDs) {
		return store.Image{}, fmt.Errorf("the manifest has %d layers and the configuration %d: %w", len(m.Layers), len(c.RootFS.DiffIDs), errdefs.ErrInvalidArgument)
	}
	img := describe(entry, m, c, module)
	x.manifests[entry.Digest] = store.Manifest{Title: title(m, module)}
	// Pinned first and looked for then, so that nobody sweeps it in between.
	if module {
		x.pin(img.Module.Digest)
	} else {
		x.unpin = append(x.unpin, x.s.layers.Pin(identity.ChainIDs(slices.Clone(c.RootFS.DiffIDs))...))
	}
	if known, ok := x.s.db.State().Images[img.ID]; ok {
		x.pin(known.Manifest.Digest, known.Config.Digest)
		if err := x.hold(ctx, known.Modules()...); err != nil {
			return store.Image{}, err
		}
		if _, still := x.s.db.State().Images[img.ID]; still && x.s.intact(ctx, known) {
			return known, x.show(ctx, entry, m, c, module)
		}
	}
	if module {
		err = x.module(ctx, &img)
	} else {
		err = x.rootFS(ctx, &img, m.Layers, c.RootFS.DiffIDs)
	}
	if err != nil {
		return img, err
	}
	img.Served = x.servedOf(entry, m)
	err = x.show(ctx, entry, m, c, module)
	if !x.manifests[entry.Digest].Shown {
		x.hidden = append(x.hidden, img.ID)
	}
	return img, err
}

// title is the name that a manifest gives a module's file.
func title(m manifest.Document, module bool) string {
	if !module {
		return ""
	}
	return m.Layers[0].Annotations[ocispec.AnnotationTitle]
}

// servedOf returns which servers gave what an image consists of, and the index
// it was found in.
func (x *session) servedOf(entry ocispec.Descriptor, m manifest.Document) map[string][]digest.Digest {
	served := x.remote.Served()
	own := map[digest.Digest]string{}
	of := append([]ocispec.Descriptor{{Digest: x.root}, entry, *m.Config}, m.Layers...)
	for _, d := range of {
		if host, ok := served[d.Digest]; ok {
			own[d.Digest] = host
		}
	}
	return byHost(own)
}

// byHost turns hosts by digest into sorted digests by host.
func byHost(served map[digest.Digest]string) map[string][]digest.Digest {
	out := make(map[string][]digest.Digest)
	for d, host := range served {
		out[host] = append(out[host], d)
	}
	for _, ds := range out {
		slices.Sort(ds)
	}
	return out
}

// describe makes the record of an image from its manifest and configuration. What
// the manifest alone says makes an image of its own, known by the manifest's
// digest: others may have the same configuration.
func describe(entry ocispec.Descriptor, m manifest.Document, c manifest.Config, module bool) store.Image {
	img := store.Image{
		ID:       m.Config.Digest.String(),
		Manifest: ocispec.Descriptor{MediaType: entry.MediaType, Digest: entry.Digest, Size: entry.Size},
		Config:   ocispec.Descriptor{MediaType: m.Config.MediaType, Digest: m.Config.Digest, Size: m.Config.Size},
		Size:     m.Config.Size,
		Runtime:  c.Config,

		Checkpoint: m.CheckpointOf(),
	}
	if img.Checkpoint != "" {
		img.ID = entry.Digest.String()
	}
	for _, l := range m.Layers {
		img.Size += l.Size
		img.Layers = append(img.Layers, ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
	}
	if c.Created != nil {
		img.Created = c.Created.UTC().Truncate(time.Second)
	}
	if module {
		l := m.Layers[0]
		img.Module = &ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size}
		img.Platform = manifest.WasmPlatform
		if !c.Names(l.Digest) {
			img.ID = entry.Digest.String()
		}
		return img
	}
	img.Platform = c.Platform()
	if len(c.RootFS.DiffIDs) > 0 {
		img.Chain = identity.ChainID(slices.Clone(c.RootFS.DiffIDs))
	}
	return img
}

// count returns what counts the bytes of a part as they come.
func (x *session) count(d digest.Digest) func(int64) {
	return func(n int64) {
		x.meter.Part(d, func(p *Progress, part *Part) {
			p.Bytes += n
			part.Bytes += n
		})
	}
}
