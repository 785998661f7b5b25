package pull

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/store"
)

// image brings an image in, all but its record: content, unpacked layers, and the word of Arrived.
//
// # Errors
//
// ErrInvalidArgument means that this image cannot run here, however often it is fetched.
func (x *session) image(ctx context.Context, entry ocispec.Descriptor) (store.Image, error) {
	data, err := x.Document(ctx, entry)
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
	if data, err = x.Document(ctx, *m.Config); err != nil {
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
	img.Kept = x.kept
	x.manifests[entry.Digest] = store.Manifest{Title: title(m, module), Layers: img.Layers}
	// Pinned before it is looked for, so that no sweep removes it in between.
	if module {
		x.Pin(img.Module.Digest)
	} else {
		x.OnClose(x.p.Disk.Layers.Pin(identity.ChainIDs(slices.Clone(c.RootFS.DiffIDs))...))
	}
	known, here := x.p.Disk.DB.State().Images[img.ID]
	if here {
		x.Pin(known.Manifest.Digest, known.Config.Digest)
		img.Kept = img.Kept || known.Kept
		if err := x.hold(ctx, known.Modules()...); err != nil {
			return store.Image{}, err
		}
		_, still := x.p.Disk.DB.State().Images[img.ID]
		here = still && x.p.Disk.Intact(ctx, known)
	}
	switch hasLayers := x.hasLayers(ctx, img.Layers); {
	case here && hasLayers:
	case module:
		err = x.module(ctx, &img)
	default:
		err = x.rootFS(ctx, &img, m.Layers, c.RootFS.DiffIDs)
	}
	if err != nil {
		return img, err
	}
	if here {
		known.Kept = img.Kept
		return known, x.show(ctx, entry, m, c, module)
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

// servedOf returns which servers gave what an image consists of, and the index it was found in.
func (x *session) servedOf(entry ocispec.Descriptor, m manifest.Document) map[string][]digest.Digest {
	served := x.Source.Served()
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
		img.Platform, img.Component = c.ModulePlatform(), c.Component
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
