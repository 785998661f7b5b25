// Package catalog tells which images there are: what a name or an id leads to, for which handler,
// and what is known of it.
package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/variant"
)

// Catalog reads the records of images, and gives them names.
type Catalog struct {
	db       *store.DB
	handlers variant.Handlers
	pins     *Pins
}

// New returns the catalog of an image store, for the configured handlers.
func New(db *store.DB, handlers variant.Handlers, pins *Pins) *Catalog {
	return &Catalog{db: db, handlers: handlers, pins: pins}
}

// Find returns a present image by id (with or without "sha256:"), by the prefix of an id (four
// digits or more), by tag or by digest. An id is that image whatever the handler. A name is the
// variant for the handler; with handler "" the default handler's, then any other's.
//
// # Errors
//
// ErrNotFound, also for what is no reference at all; ErrInvalidArgument for an
// unknown handler and for a prefix that fits several ids.
func (c *Catalog) Find(ctx context.Context, nameOrID, handler string) (Image, error) {
	handlers, err := c.handlers.Wanted(handler)
	if err != nil {
		return Image{}, err
	}
	st := c.db.State()
	if n, err := reference.Parse(nameOrID); err == nil {
		if targets := st.Named(n.Full); len(targets) > 0 {
			return c.Variant(st, targets, handlers)
		}
	}
	if reference.IsIDPrefix(nameOrID) {
		img, err := st.ByID(nameOrID)
		if err != nil {
			return Image{}, err
		}
		for _, t := range st.Holding(img.ID) {
			if t.Images[img.Manifest.Digest] == img.ID {
				return c.ViewAs(st, t, img.Manifest.Digest), nil
			}
		}
		return c.view(st, img), nil
	}
	return Image{}, fmt.Errorf("image %q: %w", nameOrID, errdefs.ErrNotFound)
}

// Answer returns the id that a name goes by, whatever the handler: the kubelet keeps its records of
// pulls by the id that a pull has answered, and asks for them by the id that a status tells. It
// stays the same while that image does, also when variants for other handlers come. false: the name
// leads to nothing, or is an id.
func (c *Catalog) Answer(nameOrID string) (id string, ok bool) {
	n, err := reference.Parse(nameOrID)
	if err != nil {
		return "", false
	}
	for _, t := range c.db.State().Named(n.Full) {
		if id := c.AnswerOf(t); id != "" {
			return id, true
		}
	}
	return "", false
}

// AnswerOf returns the id that a target goes by: the one that it had, else the default
// handler's variant, else any other's.
func (c *Catalog) AnswerOf(t store.Target) string {
	if t.Has(t.Answer) {
		return t.Answer
	}
	for _, choice := range variant.Choices(t.Entries, c.handlers) {
		if id := t.Images[choice.Manifest.Digest]; id != "" {
			return id
		}
	}
	for _, e := range t.Entries {
		if id := t.Images[e.Digest]; id != "" {
			return id
		}
	}
	return ""
}

// Variant returns the first handler's image among the targets that is present in st; newer targets
// come before older ones, handlers before targets. When all handlers were asked and none has one,
// any image will do: it was chosen by a configuration of the past.
func (c *Catalog) Variant(st *store.State, targets []store.Target, handlers variant.Handlers) (Image, error) {
	for _, h := range handlers {
		for _, t := range targets {
			d, err := variant.Select(t.Entries, h.Platforms)
			if err != nil {
				continue
			}
			if _, ok := st.Images[t.Images[d.Digest]]; ok {
				return c.ViewAs(st, t, d.Digest), nil
			}
		}
	}
	if len(handlers) == len(c.handlers) {
		for _, t := range targets {
			for _, e := range t.Entries {
				if _, ok := st.Images[t.Images[e.Digest]]; ok {
					return c.ViewAs(st, t, e.Digest), nil
				}
			}
		}
	}
	return Image{}, fmt.Errorf("image %q for handler %q: %w", targets[0].Name(), handlers[0].Name, errdefs.ErrNotFound)
}

// ViewAs makes an Image of what a target has for a manifest: what that manifest says, and not
// another of the same image.
func (c *Catalog) ViewAs(st *store.State, t store.Target, of digest.Digest) Image {
	out := c.view(st, st.Images[t.Images[of]])
	for _, e := range t.Entries {
		if e.Digest == of {
			out.Manifest = manifest.Bare(e)
		}
	}
	if out.Kind != Module {
		return out
	}
	out.Module.Annotations = nil
	if title := t.Manifests[of].Title; title != "" {
		out.Module.Annotations = map[string]string{ocispec.AnnotationTitle: title}
	}
	return out
}

// view makes an Image of a record and the names that lead to it.
func (c *Catalog) view(st *store.State, img store.Image) Image {
	out := Image{
		ID:       img.ID,
		RepoTags: st.TagsOf(img.ID),
		Platform: img.Platform, Config: img.Runtime,
		Manifest: img.Manifest, Document: img.Config,
		Size: img.Size, Created: img.Created, Served: img.Served,

		Component: img.Component, Checkpoint: img.Checkpoint, Program: img.Program,
	}
	if img.Module != nil {
		out.Kind, out.Module = Module, *img.Module
	}
	for _, t := range st.Holding(img.ID) {
		out.RepoDigests = append(out.RepoDigests, t.Name())
		for m, id := range t.Images {
			if id == img.ID {
				out.Handlers = append(out.Handlers, variant.ChosenBy(t.Entries, c.handlers, m)...)
			}
		}
	}
	slices.Sort(out.Handlers)
	out.Handlers = slices.Compact(out.Handlers)
	out.Pinned = c.pins.Has(out.RepoTags, out.RepoDigests)
	return out
}

// List returns all images, one entry per id, sorted by id.
func (c *Catalog) List(ctx context.Context) ([]Image, error) {
	st := c.db.State()
	out := make([]Image, 0, len(st.Images))
	for _, img := range st.List() {
		out = append(out, c.view(st, img))
	}
	return out, nil
}

// KeepsTag reports whether an image of an older target keeps a tag that points
// to a newer one: while no handler that chose it has a variant of the newer.
func (c *Catalog) KeepsTag(newer, older store.Target, id string) bool {
	keeps := false
	for _, choice := range variant.Choices(older.Entries, c.handlers) {
		if older.Images[choice.Manifest.Digest] != id {
			continue
		}
		if d, err := variant.Select(newer.Entries, choice.Handler.Platforms); err == nil && newer.Images[d.Digest] != "" {
			return false
		}
		keeps = true
	}
	return keeps
}

// Kind says what an image consists of.
type Kind int

const (
	// RootFS is an image with a root filesystem made of layers.
	RootFS Kind = iota
	// Module is a WebAssembly artifact: one module and no filesystem.
	Module
)

// String returns "rootfs" or "module".
func (k Kind) String() string {
	if k == Module {
		return "module"
	}
	return "rootfs"
}

// Image is one image of one platform, as it is in the store now.
type Image struct {
	// ID is the digest of the image's configuration. An artifact whose
	// configuration does not name its layer has its manifest's digest instead,
	// because such a configuration is the same for different modules.
	ID string
	// RepoTags and RepoDigests are the full names that lead to this image,
	// sorted. A digest is that of the manifest or index a name resolved to.
	RepoTags, RepoDigests []string
	// Platform is the image's own platform; wasip1/wasm for a Module, or wasip2/wasm if it says so.
	Platform ocispec.Platform
	// Config holds entrypoint, environment, user and the like; empty for an
	// artifact without an image configuration.
	Config ocispec.ImageConfig
	Kind   Kind
	// Size is the size of configuration and layers as transferred, in bytes.
	Size   int64
	Pinned bool
	// Handlers are the configured handlers that choose this variant, sorted.
	Handlers []string
	// Served names the content that each server gave when the image was pulled:
	// digests, sorted, by host. What had been present is in none.
	Served             map[string][]digest.Digest
	Manifest, Document ocispec.Descriptor // Document is the configuration as a whole
	// Module is the WebAssembly module when Kind is Module. Its file's name, if the
	// artifact tells one, is its annotation org.opencontainers.image.title.
	Module ocispec.Descriptor
	// Component is what an artifact's configuration says of its component, nil if it says nothing.
	Component *manifest.Component
	// Checkpoint names the container whose checkpoint the image is: its files are
	// those of a checkpoint's archive. "" for an image that can be run.
	Checkpoint string
	// Program is the module at the entrypoint of an image with files, "" without one.
	Program digest.Digest
	// Created is when the image was built; zero if it does not say.
	Created time.Time
}
