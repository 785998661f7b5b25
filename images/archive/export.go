package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/transfer"
)

// Export is images that are ready to be written: everything that they consist of
// is in the store until Close.
type Export struct {
	a         *Archiver
	transfers []*transfer.Transfer
	images    []layout.Named
	docker    []layout.DockerImage
	blobs     []ocispec.Descriptor
	fetched   []digest.Digest
}

// Export prepares images for writing: of each name, or id, the variants that are
// present. Layers that were not kept (images.Options.KeepLayers) are fetched again,
// without credentials but the node's own.
//
// # Errors
//
// ErrNotFound for an image that is not present. For layers that are not there
// and cannot be fetched: the registry's error, with what to do about it.
func (a *Archiver) Export(ctx context.Context, names []string) (_ *Export, err error) {
	e := &Export{a: a}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if len(names) == 0 {
		return nil, fmt.Errorf("export images: none is named: %w", errdefs.ErrInvalidArgument)
	}
	for _, name := range names {
		if err := e.add(ctx, name); err != nil {
			return nil, fmt.Errorf("export image %q: %w", name, space.Explain(a.o.Disk.Root, err))
		}
	}
	return e, nil
}

// add prepares what a name or id stands for.
func (e *Export) add(ctx context.Context, nameOrID string) error {
	st := e.a.o.Disk.DB.State()
	target, name, err := catalog.Lookup(st, nameOrID)
	if err != nil {
		return err
	}
	remote, err := e.a.o.Registry.Repository(ctx, target.Name(), registry.Credentials{})
	if err != nil {
		return err
	}
	x := transfer.New(e.a.o.Disk.Content, e.a.o.Room, remote, nil)
	e.transfers = append(e.transfers, x)
	e.images = append(e.images, layout.Named{Name: name, Root: manifest.Bare(target.Root)})
	if err := e.index(ctx, x, &manifest.Walk{}, target.Root); err != nil {
		return err
	}
	added := make(map[digest.Digest]bool)
	for _, m := range target.Entries {
		id, wanted := target.Images[m.Digest]
		if !wanted || added[m.Digest] {
			continue
		}
		added[m.Digest] = true
		img, ok := st.Images[id]
		if !ok {
			return fmt.Errorf("image %s: %w", id, errdefs.ErrNotFound)
		}
		if err := e.image(ctx, x, manifest.Bare(m), img, name); err != nil {
			return err
		}
	}
	return nil
}

// index adds an index that has been visited, and those within it.
func (e *Export) index(ctx context.Context, x *transfer.Transfer, w *manifest.Walk, d ocispec.Descriptor) error {
	if err := e.blob(ctx, x, d); err != nil {
		return err
	}
	data, err := e.a.o.Disk.Content.Document(ctx, d)
	if err != nil {
		return err
	}
	doc, err := manifest.Parse(d, data)
	if err != nil || !doc.IsIndex() {
		return err
	}
	if err := w.Count(ctx, d.Digest, len(doc.Manifests)); err != nil {
		return err
	}
	for _, m := range doc.Manifests {
		if !images.IsIndexType(m.MediaType) || manifest.DescribesOther(m) {
			continue
		}
		fresh, err := w.Visit(m)
		if err == nil && fresh {
			err = e.index(ctx, x, w, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// image adds what an image consists of, as one of its manifests has it.
func (e *Export) image(ctx context.Context, x *transfer.Transfer, entry ocispec.Descriptor, img store.Image, name string) error {
	if err := e.blob(ctx, x, entry); err != nil {
		return err
	}
	data, err := e.a.o.Disk.Content.Document(ctx, entry)
	if err != nil {
		return err
	}
	doc, err := manifest.Parse(entry, data)
	if err != nil {
		return err
	}
	for i, l := range doc.Layers {
		doc.Layers[i] = manifest.Bare(l)
	}
	for _, d := range append([]ocispec.Descriptor{manifest.Bare(*doc.Config)}, doc.Layers...) {
		if err := e.blob(ctx, x, d); err != nil {
			return err
		}
	}
	if img.Module != nil || img.Platform.OS != "linux" {
		return nil // nothing that Docker's archives know
	}
	docker := layout.DockerImage{Config: manifest.Bare(*doc.Config), Layers: doc.Layers}
	if n, err := reference.Parse(name); err == nil && n.Digest == "" {
		docker.Tags = []string{name}
	}
	e.docker = append(e.docker, docker)
	return nil
}

// blob makes a blob present until Close.
func (e *Export) blob(ctx context.Context, x *transfer.Transfer, d ocispec.Descriptor) error {
	x.Pin(d.Digest)
	if slices.ContainsFunc(e.blobs, func(b ocispec.Descriptor) bool { return b.Digest == d.Digest }) {
		return nil
	}
	e.blobs = append(e.blobs, manifest.Bare(d))
	if e.a.o.Disk.Content.Has(ctx, d) {
		return nil
	}
	e.fetched = append(e.fetched, d.Digest)
	if err := x.Ingest(ctx, d, func(int64) {}); err != nil {
		return registry.Describe(fmt.Sprintf("layer %s is not kept compressed, and fetching it again failed; "+
			"set images.keep_layers and pull the image, or let the registry be reached", d.Digest), err)
	}
	return nil
}

// Write writes an OCI layout as a tar archive; docker load reads it too.
func (e *Export) Write(ctx context.Context, w io.Writer) error {
	return layout.Write(w, e.images, e.docker, e.blobs, func(d ocispec.Descriptor) (io.ReadCloser, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return e.a.o.Disk.Content.Open(ctx, d)
	})
}

// Close gives up what was fetched for the export.
func (e *Export) Close() error {
	for _, x := range e.transfers {
		x.Close()
	}
	err := e.a.o.Collector.DropUnneeded(context.Background(), e.fetched)
	e.fetched = nil
	return err
}

// ExportTo is Export and Write in one.
func (a *Archiver) ExportTo(ctx context.Context, names []string, w io.Writer) error {
	e, err := a.Export(ctx, names)
	if err != nil {
		return err
	}
	return errors.Join(e.Write(ctx, w), e.Close())
}
