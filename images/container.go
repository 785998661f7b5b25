package images

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/variant"
)

// ForContainer returns the variant of an image that a handler runs. image is an
// id or a reference, userSpecified the reference that the pod names, "" if not
// known. The kubelet knows one id per reference: where the handler wants another
// variant of the same index than the one with this id, that variant is answered,
// and fetched (without credentials) if it is missing.
//
// # Errors
//
// ErrNotFound if the image is not present in any variant; a *NoMatchError
// (ErrFailedPrecondition) that names the platform and the handlers that run it,
// if this one does not; those of Pull for a variant that is fetched.
func (s *Service) ForContainer(ctx context.Context, image, userSpecified, handler string) (Image, error) {
	h, err := s.handlers.Get(handler)
	if err != nil {
		return Image{}, err
	}
	st := s.db.State()
	targets, err := meant(st, image, userSpecified, h)
	if err != nil {
		return Image{}, err
	}
	var entries []ocispec.Descriptor
	for _, t := range targets {
		entries = append(entries, t.Entries...)
		d, err := variant.Select(t.Entries, h.Platforms)
		if err != nil {
			continue
		}
		if _, ok := st.Images[t.Images[d.Digest]]; ok {
			return s.viewAs(st, t, d.Digest), nil
		}
		img, err := s.fetchVariant(ctx, t, d)
		if err != nil {
			return Image{}, registry.Describe(fmt.Sprintf("fetch variant of image %q for handler %q", called(image, userSpecified, t), h.Name), explain(err))
		}
		return img, nil
	}
	return Image{}, fmt.Errorf("use image %q with handler %q: %w", image, h.Name, s.noMatch(entries, variant.Handlers{h}))
}

// called is the reference that people know an image by.
func called(image, userSpecified string, t store.Target) string {
	switch {
	case !reference.IsIDPrefix(image):
		return image
	case userSpecified != "":
		return userSpecified
	}
	return t.Name()
}

// explain says what to do about a variant that takes credentials.
func explain(err error) error {
	if errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) {
		return fmt.Errorf("%w; let a pod pull the image with its credentials (imagePullPolicy: Always, with imagePullSecrets)", err)
	}
	return err
}

// meant returns the targets that a container's image may mean, likeliest first.
//
// A name means its targets; those where the handler's choice is present come
// first, then the newer. An id means the targets that hold it: first the one
// that the pod's own reference leads to, then those of the same repository, then
// those that have what the handler likes best.
func meant(st *store.State, image, userSpecified string, h variant.Handler) ([]store.Target, error) {
	present := func(t store.Target) int {
		if d, _, ok := variant.SelectAt(t.Entries, h.Platforms); ok && t.Images[d.Digest] != "" {
			return 0
		}
		return 1
	}
	if n, err := reference.Parse(image); err == nil {
		if targets := st.Named(n.Full); len(targets) > 0 {
			slices.SortStableFunc(targets, func(a, b store.Target) int { return present(a) - present(b) })
			return targets, nil
		}
	}
	if !reference.IsIDPrefix(image) {
		return nil, fmt.Errorf("image %q is not on this node, pull it first: %w", image, errdefs.ErrNotFound)
	}
	img, err := st.ByID(image)
	if err != nil {
		return nil, err
	}
	n, _ := reference.Parse(userSpecified) // the zero name, if it is none, means nothing
	specified := make(map[digest.Digest]bool)
	for _, t := range st.Named(n.Full) {
		specified[t.Digest] = true
	}
	nearness := func(t store.Target) int {
		switch {
		case t.Repo != n.Repo:
			return 2
		case !specified[t.Digest]:
			return 1
		}
		return 0
	}
	liking := func(t store.Target) int {
		if _, place, ok := variant.SelectAt(t.Entries, h.Platforms); ok {
			return place
		}
		return len(h.Platforms)
	}
	targets := st.Holding(img.ID)
	slices.SortStableFunc(targets, func(a, b store.Target) int {
		return cmp.Or(nearness(a)-nearness(b), liking(a)-liking(b), present(a)-present(b))
	})
	return targets, nil
}
