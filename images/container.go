package images

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/rootfs"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/variant"
)

// ForContainer returns the variant of an image that a handler runs. image is an id or a reference,
// userSpecified the reference that the pod names, "" if not known. The kubelet knows one id per
// reference: if the handler needs another variant of the index, that one is returned, and fetched
// without credentials if it is missing.
//
// # Errors
//
// ErrNotFound without any variant of the image; a *NoMatchError (ErrFailedPrecondition) if this
// handler does not run it, with the platform and the handlers that do; those of Pull.
func (s *Service) ForContainer(ctx context.Context, image, userSpecified, handler string) (Image, error) {
	h, err := s.handlers.Get(handler)
	if err != nil {
		return Image{}, err
	}
	st := s.disk.DB.State()
	targets, err := catalog.Meant(st, image, userSpecified, h)
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
			return s.catalog.ViewAs(st, t, d.Digest), nil
		}
		img, err := s.puller.FetchVariant(ctx, t, d)
		if err != nil {
			return Image{}, registry.Describe(fmt.Sprintf("fetch variant of image %q for handler %q", called(image, userSpecified, t), h.Name), explain(err))
		}
		return img, nil
	}
	return Image{}, fmt.Errorf("use image %q with handler %q: %w", image, h.Name, variant.NoMatch(entries, variant.Handlers{h}, s.handlers))
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

// ReadModule calls read with the WebAssembly file that an image brings: an artifact's module, or
// the file that the image's command names. nameOrID and handler are those of Find; with handler ""
// it is the first variant that has such a file.
//
// # Errors
//
// ErrNotFound if the image is not present; ErrFailedPrecondition if it brings
// no such file; else read's error.
func (s *Service) ReadModule(ctx context.Context, nameOrID, handler string, read func(ModuleFile, io.Reader) error) error {
	handlers, err := s.handlers.Wanted(handler)
	if err != nil {
		return err
	}
	var errs []error
	seen := map[string]bool{}
	for _, h := range handlers {
		img, err := s.Find(ctx, nameOrID, h.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[img.ID] {
			continue
		}
		seen[img.ID] = true
		err = s.ReadModuleOf(ctx, img, read)
		if !errors.Is(err, rootfs.ErrNoModule) {
			return err
		}
		errs = append(errs, err)
	}
	if len(seen) == 0 {
		return errs[0]
	}
	return fmt.Errorf("image %q brings no WebAssembly module: %w", nameOrID, errors.Join(errs...))
}
