package pack

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"runtime"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
)

// Linux is the Linux variant of an image: one of Dir and Layout.
type Linux struct {
	// Dir is a folder that is a root file system, for this machine's architecture.
	Dir string
	// Entrypoint is that of the variant from Dir; without it, it is the program of the module's name.
	Entrypoint []string
	// Layout has an image whose Linux variants are taken as they are. It stays open until Close.
	Layout *layout.Layout
}

// index makes an index of the guest, which is the root so far, and of the Linux variants.
func (i *Image) index(ctx context.Context, o Options) error {
	variants, err := i.linux(ctx, o)
	if err != nil {
		return err
	}
	i.root, err = i.document(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: append(variants, i.root),
	})
	return err
}

func (i *Image) linux(ctx context.Context, o Options) ([]ocispec.Descriptor, error) {
	if o.Linux.Layout != nil {
		return i.copyVariants(ctx, o.Linux.Layout)
	}
	t := newTree(ownModes)
	if err := t.add(File{Host: o.Linux.Dir, Guest: "/"}); err != nil {
		return nil, err
	}
	config := o.Config
	config.Entrypoint = o.Linux.Entrypoint
	if len(config.Entrypoint) == 0 {
		program, err := findProgram(t, o.Module, o.Linux.Dir)
		if err != nil {
			return nil, err
		}
		config.Entrypoint = []string{program}
	}
	// As what reads the image names it: on arm with a variant.
	platform := platforms.Normalize(ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH})
	variant, err := i.image(ctx, t, platform, config)
	variant.Platform = &platform
	return []ocispec.Descriptor{variant}, err
}

// findProgram finds the program with the name of the module.
func findProgram(t *tree, module, dir string) (string, error) {
	name := strings.TrimSuffix(path.Base(module), ".wasm")
	for _, folder := range []string{"/", "/usr/local/bin", "/usr/bin", "/bin"} {
		if p := path.Join(folder, name); t.has(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("folder %q has no program %q in /, /usr/local/bin, /usr/bin or /bin: say which is the Linux variant's with --linux-entrypoint: %w",
		dir, name, errdefs.ErrInvalidArgument)
}

// copyVariants takes the Linux variants of an image over.
func (i *Image) copyVariants(ctx context.Context, l *layout.Layout) ([]ocispec.Descriptor, error) {
	roots := l.Roots()
	if len(roots) != 1 {
		return nil, fmt.Errorf("take the Linux variants of an image: there are %d images: %w", len(roots), errdefs.ErrInvalidArgument)
	}
	var walk manifest.Walk
	variants, err := i.variants(ctx, l, roots[0].Desc, &walk)
	if err == nil && len(variants) == 0 {
		err = fmt.Errorf("image %q has no Linux variant here: %w", roots[0].Name, errdefs.ErrInvalidArgument)
	}
	return variants, err
}

func (i *Image) variants(ctx context.Context, l *layout.Layout, d ocispec.Descriptor, walk *manifest.Walk) ([]ocispec.Descriptor, error) {
	if fresh, err := walk.Visit(d); err != nil || !fresh || !l.Has(d.Digest) {
		return nil, err
	}
	data, err := readDocument(ctx, l, d)
	if err != nil {
		return nil, err
	}
	doc, err := manifest.Parse(d, data)
	if err != nil {
		return nil, err
	}
	if !doc.IsIndex() {
		return i.variant(ctx, l, d, doc)
	}
	if err := walk.Count(ctx, d.Digest, len(doc.Manifests)); err != nil {
		return nil, err
	}
	var all []ocispec.Descriptor
	for _, m := range doc.Manifests {
		if manifest.DescribesOther(m) {
			continue
		}
		more, err := i.variants(ctx, l, m, walk)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// variant takes a manifest over, if it is of an image for Linux.
func (i *Image) variant(ctx context.Context, l *layout.Layout, d ocispec.Descriptor, doc manifest.Document) ([]ocispec.Descriptor, error) {
	if module, err := manifest.IsModule(doc); err != nil || module {
		return nil, err
	}
	data, err := readDocument(ctx, l, *doc.Config)
	if err != nil {
		return nil, err
	}
	config, err := manifest.ParseConfig(*doc.Config, data)
	if err != nil {
		return nil, err
	}
	platform := config.Platform()
	if platform.OS != "linux" {
		return nil, nil
	}
	for _, b := range append([]ocispec.Descriptor{*doc.Config, d}, doc.Layers...) {
		i.blob(b, func() (io.ReadCloser, error) { return l.Fetch(ctx, b, 0) })
	}
	d = manifest.Bare(d)
	d.MediaType = cmp.Or(d.MediaType, doc.MediaType)
	d.Platform = &platform
	return []ocispec.Descriptor{d}, nil
}

// readDocument reads a small blob of a layout and compares it with its digest.
func readDocument(ctx context.Context, l *layout.Layout, d ocispec.Descriptor) ([]byte, error) {
	if err := manifest.CheckDocument(d); err != nil {
		return nil, err
	}
	r, err := l.Fetch(ctx, d, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, manifest.MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Digest, err)
	}
	if d.Digest.Algorithm().FromBytes(data) != d.Digest {
		return nil, fmt.Errorf("content %s is something else: %w", d.Digest, errdefs.ErrDataLoss)
	}
	return data, nil
}
