package images

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/variant"
)

// Find returns a present image by id (with or without "sha256:"), by the
// beginning of an id (four digits or more), by tag or by digest. An id is that
// image whatever the handler. A name is the variant for the handler; with
// handler "" the default handler's, then any other's.
//
// # Errors
//
// ErrNotFound, also for what is no reference at all; ErrInvalidArgument for an
// unknown handler and for a beginning that fits several ids.
func (s *Service) Find(ctx context.Context, nameOrID, handler string) (Image, error) {
	handlers, err := s.handlers.Wanted(handler)
	if err != nil {
		return Image{}, err
	}
	st := s.db.State()
	if n, err := reference.Parse(nameOrID); err == nil {
		if targets := st.Named(n.Full); len(targets) > 0 {
			return s.variant(targets, handlers)
		}
	}
	if reference.IsIDPrefix(nameOrID) {
		img, err := st.ByID(nameOrID)
		if err != nil {
			return Image{}, err
		}
		for _, t := range st.Holding(img.ID) {
			if t.Images[img.Manifest.Digest] == img.ID {
				return s.viewAs(st, t, img.Manifest.Digest), nil
			}
		}
		return s.view(st, img), nil
	}
	return Image{}, fmt.Errorf("image %q: %w", nameOrID, errdefs.ErrNotFound)
}

// Answer returns the id that a name goes by, whatever the handler: the kubelet keeps its records of pulls by the id that a
// pull has answered, and asks for them by the id that a status tells. It stays the same while that image does, also when
// variants for other handlers come. false: the name leads to nothing, or is an id.
func (s *Service) Answer(nameOrID string) (id string, ok bool) {
	n, err := reference.Parse(nameOrID)
	if err != nil {
		return "", false
	}
	for _, t := range s.db.State().Named(n.Full) {
		if id := s.answerOf(t); id != "" {
			return id, true
		}
	}
	return "", false
}

// answerOf returns the id that a target goes by: the one that it has gone by, else the default handler's variant, else
// any other's.
func (s *Service) answerOf(t store.Target) string {
	if t.Has(t.Answer) {
		return t.Answer
	}
	for _, c := range variant.Choices(t.Entries, s.handlers) {
		if id := t.Images[c.Manifest.Digest]; id != "" {
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

// variant returns the first handler's image among the targets that is present;
// newer targets come before older ones, handlers before targets. When all
// handlers were asked and none has one, any image will do: it was chosen by a
// configuration of the past.
func (s *Service) variant(targets []store.Target, handlers variant.Handlers) (Image, error) {
	st := s.db.State()
	for _, h := range handlers {
		for _, t := range targets {
			d, err := variant.Select(t.Entries, h.Platforms)
			if err != nil {
				continue
			}
			if _, ok := st.Images[t.Images[d.Digest]]; ok {
				return s.viewAs(st, t, d.Digest), nil
			}
		}
	}
	if len(handlers) == len(s.handlers) {
		for _, t := range targets {
			for _, e := range t.Entries {
				if _, ok := st.Images[t.Images[e.Digest]]; ok {
					return s.viewAs(st, t, e.Digest), nil
				}
			}
		}
	}
	return Image{}, fmt.Errorf("image %q for handler %q: %w", targets[0].Name(), handlers[0].Name, errdefs.ErrNotFound)
}

// viewAs makes an Image of what a target has for a manifest: what that manifest says, and not another of the same image.
func (s *Service) viewAs(st *store.State, t store.Target, of digest.Digest) Image {
	out := s.view(st, st.Images[t.Images[of]])
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
func (s *Service) view(st *store.State, img store.Image) Image {
	out := Image{
		ID:       img.ID,
		RepoTags: st.TagsOf(img.ID),
		Platform: img.Platform,
		Config:   img.Runtime,
		Size:     img.Size,
		Manifest: img.Manifest,
		Created:  img.Created,
		Served:   img.Served,

		Checkpoint: img.Checkpoint,
		Program:    img.Program,
	}
	if img.Module != nil {
		out.Kind, out.Module = Module, *img.Module
	}
	for _, t := range st.Holding(img.ID) {
		out.RepoDigests = append(out.RepoDigests, t.Name())
		for m, id := range t.Images {
			if id == img.ID {
				out.Handlers = append(out.Handlers, variant.ChosenBy(t.Entries, s.handlers, m)...)
			}
		}
	}
	slices.Sort(out.Handlers)
	out.Handlers = slices.Compact(out.Handlers)
	out.Pinned = s.isPinned(out)
	return out
}

// List returns all images, one entry per id, sorted by id.
func (s *Service) List(ctx context.Context) ([]Image, error) {
	st := s.db.State()
	out := make([]Image, 0, len(st.Images))
	for _, img := range st.Images {
		out = append(out, s.view(st, img))
	}
	slices.SortFunc(out, func(a, b Image) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Remove removes an image with all its names. A name removes every variant that
// bears it, an id only that one. The bytes go, except for what another image or
// a container needs. What is not there is no error.
//
// # Errors
//
// ErrInvalidArgument for the beginning of an id that fits several.
func (s *Service) Remove(ctx context.Context, nameOrID string) error {
	var removed []store.Image
	err := s.db.Update(func(st *store.Tx) error {
		removed = nil
		ids, err := idsOf(st.State, nameOrID)
		if err != nil {
			return err
		}
		for _, id := range ids {
			removed = append(removed, st.Images[id])
		}
		st.Forget(ids...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove image %q: %w", nameOrID, err)
	}
	if len(removed) == 0 {
		return nil
	}
	for _, img := range removed {
		for _, d := range img.Modules() {
			s.setModuleKnown(d, false)
		}
	}
	if err := s.sweep(ctx, 0); err != nil {
		return fmt.Errorf("free what image %q took: %w", nameOrID, err)
	}
	return nil
}

// idsOf returns the images that a name or id means.
func idsOf(st *store.State, nameOrID string) ([]string, error) {
	var ids []string
	if n, err := reference.Parse(nameOrID); err == nil {
		for _, t := range st.Named(n.Full) {
			ids = slices.AppendSeq(ids, maps.Values(t.Images))
		}
	}
	if len(ids) > 0 || !reference.IsIDPrefix(nameOrID) {
		return ids, nil
	}
	img, err := st.ByID(nameOrID)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return []string{img.ID}, err
}
