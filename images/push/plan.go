package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/transfer"
)

// document is a manifest or an index.
type document struct {
	desc ocispec.Descriptor
	data []byte
}

// plan is what an image consists of, all of it pinned.
type plan struct {
	p      *Pusher
	unpin  []func()
	state  *store.State
	target store.Target
	name   string // the full name that was pushed, "" for an id

	root      document
	documents []document           // without the root; what an index names comes before it
	blobs     []ocispec.Descriptor // configurations and layers, each once
	missing   []ocispec.Descriptor // entries of indexes that are not on this node

	transfers []*transfer.Transfer // of blobs that are here for this push alone
	dropped   []digest.Digest      // these blobs
}

// plan finds what a name or an id consists of. No garbage collection takes any of it until the plan
// is closed; what had been dropped before is not there.
func (p *Pusher) plan(ctx context.Context, source string) (*plan, error) {
	w := &plan{p: p}
	if err := w.gather(ctx, source); err != nil {
		w.close(ctx)
		return nil, err
	}
	return w, nil
}

func (w *plan) gather(ctx context.Context, source string) (err error) {
	recording := w.p.Collector.Recording()
	recording.Lock()
	defer recording.Unlock()
	w.state = w.p.Disk.DB.State()
	if w.target, w.name, err = catalog.Subject(w.state, source); err != nil {
		return err
	}
	seen := &manifest.Walk{}
	if _, err := seen.Visit(w.target.Root); err != nil {
		return err
	}
	doc, root, err := w.read(ctx, w.target.Root)
	if err != nil {
		return err
	}
	w.root = root
	if doc.IsIndex() {
		return errors.Join(w.index(ctx, seen, doc, w.target.Root.Digest, 0), w.unlisted(ctx))
	}
	return w.image(doc)
}

func (w *plan) pin(d digest.Digest) { w.unpin = append(w.unpin, w.p.Disk.Content.Pin(d)) }

// close gives up the pins and removes what was fetched. If an image was removed meanwhile, what it
// consisted of is removed now.
func (w *plan) close(ctx context.Context) {
	for _, f := range w.unpin {
		f()
	}
	for _, x := range w.transfers {
		x.Close()
	}
	now := w.p.Disk.DB.State()
	for _, id := range w.target.Images {
		if _, ok := now.Images[id]; ok {
			continue
		}
		w.dropped = append(w.dropped, w.target.Digest)
		for _, d := range w.documents {
			w.dropped = append(w.dropped, d.desc.Digest)
		}
		for _, b := range w.blobs {
			w.dropped = append(w.dropped, b.Digest)
		}
		break
	}
	if len(w.dropped) == 0 {
		return
	}
	if err := w.p.Collector.DropUnneeded(ctx, w.dropped); err != nil {
		w.p.Logger.Warn("failed to remove content of an image after its push, it stays until the next garbage collection", "error", err)
	}
}

// read reads a document of this node.
func (w *plan) read(ctx context.Context, desc ocispec.Descriptor) (doc manifest.Document, d document, err error) {
	w.pin(desc.Digest)
	if err := manifest.CheckDocument(desc); err != nil {
		return doc, d, err
	}
	data, err := w.p.Disk.Content.Document(ctx, desc)
	if err != nil {
		return doc, d, err
	}
	if doc, err = manifest.Parse(desc, data); err != nil {
		return doc, d, err
	}
	d = document{ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size}, data}
	switch {
	case d.desc.MediaType != "":
	case doc.MediaType != "":
		d.desc.MediaType = doc.MediaType
	case doc.IsIndex():
		d.desc.MediaType = ocispec.MediaTypeImageIndex
	default:
		d.desc.MediaType = ocispec.MediaTypeImageManifest
	}
	return doc, d, nil
}

// index adds what an index names.
func (w *plan) index(ctx context.Context, seen *manifest.Walk, doc manifest.Document, of digest.Digest, depth int) error {
	if depth > manifest.IndexDepth {
		return fmt.Errorf("index %s: nested deeper than %d: %w", of, manifest.IndexDepth, errdefs.ErrInvalidArgument)
	}
	if err := seen.Count(ctx, of, len(doc.Manifests)); err != nil {
		return err
	}
	for _, e := range doc.Manifests {
		_, here := w.target.Images[e.Digest]
		isIndex := !here && images.IsIndexType(e.MediaType) && !manifest.DescribesOther(e) && w.p.Disk.Content.Has(ctx, e)
		if !here && !isIndex {
			w.missing = append(w.missing, e)
			continue
		}
		fresh, err := seen.Visit(e)
		if err != nil {
			return err
		}
		if !fresh {
			continue
		}
		inner, d, err := w.read(ctx, e)
		switch {
		case err != nil:
		case inner.IsIndex():
			err = w.index(ctx, seen, inner, e.Digest, depth+1)
		default:
			err = w.image(inner)
		}
		if err != nil {
			return err
		}
		w.documents = append(w.documents, d) // behind those that it names
	}
	return nil
}

// unlisted adds the variants of this node that an index within the index names, which is not here.
func (w *plan) unlisted(ctx context.Context) error {
	for _, e := range w.target.Entries {
		_, here := w.target.Images[e.Digest]
		if !here || slices.ContainsFunc(w.documents, func(d document) bool { return d.desc.Digest == e.Digest }) {
			continue
		}
		doc, d, err := w.read(ctx, manifest.Bare(e))
		if err == nil {
			err = w.image(doc)
		}
		if err != nil {
			return err
		}
		w.documents = append(w.documents, d)
	}
	return nil
}

// image adds the blobs of a manifest.
func (w *plan) image(doc manifest.Document) error {
	for _, b := range append([]ocispec.Descriptor{*doc.Config}, doc.Layers...) {
		if slices.ContainsFunc(w.blobs, func(o ocispec.Descriptor) bool { return o.Digest == b.Digest }) {
			continue
		}
		w.pin(b.Digest)
		w.blobs = append(w.blobs, ocispec.Descriptor{MediaType: b.MediaType, Digest: b.Digest, Size: b.Size})
	}
	return nil
}

// names are the entries that are missing, for people.
func names(missing []ocispec.Descriptor) []string {
	var out []string
	for _, e := range missing {
		name := "manifest " + e.Digest.String()
		switch {
		case images.IsIndexType(e.MediaType):
			name = "index " + e.Digest.String()
		case manifest.DescribesOther(e):
			name = "attestation " + e.Digest.String()
		case e.Platform != nil && e.Platform.OS != "":
			if text := platforms.FormatAll(*e.Platform); len(text) < 100 && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				name = text
			}
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// reduce makes the plan one of the variants that are on this node and of those elsewhere that the
// registry has: of one here alone its manifest, of several an index with their entries as the
// image's own index has them.
func (w *plan) reduce(elsewhere []ocispec.Descriptor) error {
	var leaves []document
	var digests []string // of all
	for _, d := range w.documents {
		if !images.IsIndexType(d.desc.MediaType) {
			leaves, digests = append(leaves, d), append(digests, d.desc.Digest.String())
		}
	}
	for _, e := range elsewhere {
		digests = append(digests, e.Digest.String())
	}
	if len(digests) == 1 {
		w.root, w.documents = leaves[0], nil
		return nil
	}
	entries := map[string]json.RawMessage{}
	for _, e := range w.target.Entries { // in case that their own index is not here
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}
		entries[e.Digest.String()] = raw
	}
	for _, d := range append([]document{w.root}, w.documents...) {
		if !images.IsIndexType(d.desc.MediaType) {
			continue
		}
		var index struct {
			Manifests []json.RawMessage `json:"manifests"`
		}
		if err := json.Unmarshal(d.data, &index); err != nil {
			return err
		}
		for _, raw := range index.Manifests {
			var e ocispec.Descriptor
			if err := json.Unmarshal(raw, &e); err != nil {
				return err
			}
			entries[e.Digest.String()] = raw
		}
	}
	var kept []json.RawMessage
	for _, d := range digests {
		kept = append(kept, entries[d])
	}
	var index map[string]json.RawMessage
	if err := json.Unmarshal(w.root.data, &index); err != nil {
		return err
	}
	manifests, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	index["manifests"] = manifests
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	w.root = document{ocispec.Descriptor{MediaType: w.root.desc.MediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}, data}
	w.documents = leaves
	return nil
}
