// Package archive imports images from archives and layouts, and exports images to archives.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/retain"
	"github.com/sunaba-project/sunaba/images/transfer"
	"github.com/sunaba-project/sunaba/images/variant"
)

// Options configure New.
type Options struct {
	Disk      *disk.Disk
	Handlers  variant.Handlers
	Catalog   *catalog.Catalog
	Collector *retain.Collector
	Registry  *registry.Client
	Meters    *progress.Meters
	Room      *transfer.Room
	Importer  Importer
	Pins      *catalog.Pins // of what is preloaded
	Logger    *slog.Logger
}

// Importer brings in what an archive has of an image, as a pull does. A pull.Puller is one.
type Importer interface {
	Import(ctx context.Context, from transfer.Source, n reference.Name, root ocispec.Descriptor, handlers variant.Handlers, keep bool, m *progress.Meter) (catalog.Image, error)
}

// Archiver imports and exports images.
type Archiver struct{ o Options }

// New returns an Archiver.
func New(o Options) *Archiver { return &Archiver{o} }

// Request says what to import.
type Request struct {
	// Path is a directory or a tar archive; else Reader is the archive, which
	// takes room for itself meanwhile.
	Path   string
	Reader io.Reader
	// Name is for what has none, or just a tag: "repository[:tag]".
	Name string
	// Handler is the runtime handler that the images are for; "" imports the best
	// match of every configured handler.
	Handler string
	// Progress is as in pull.Request, for one image after the other.
	Progress func(progress.Progress)

	preload bool // the archive stays where it is: layers need not be kept as it has them
}

// Import brings in the images of an OCI layout or a Docker archive, as Pull does with those of a
// registry: each handler's variant, verified and unpacked. What the archive has not of an index is
// left out, if there is something to run. Images that are present are not brought in again.
//
// # Errors
//
// ErrNotFound if there is no such file; ErrInvalidArgument for what is no archive of images, and
// for images without a name when the request has none; those of Pull for each image. Images before
// and after one that fails are imported.
func (a *Archiver) Import(ctx context.Context, req Request) ([]catalog.Image, error) {
	handlers, err := a.o.Handlers.Wanted(req.Handler)
	if err != nil {
		return nil, err
	}
	var l *layout.Layout
	if req.Path != "" {
		l, err = layout.Open(ctx, req.Path, a.o.Disk.Spool())
	} else {
		l, err = layout.Read(ctx, req.Reader, a.o.Disk.Spool())
	}
	if err != nil {
		return nil, space.Explain(a.o.Disk.Root, err)
	}
	defer l.Close()
	var out []catalog.Image
	var errs []error
	for _, root := range l.Roots() {
		img, err := a.importRoot(ctx, l, root, req, handlers)
		if err == nil {
			out = append(out, img)
			continue
		}
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		errs = append(errs, fmt.Errorf("import image %q (%s): %w", root.Name, root.Desc.Digest, space.Explain(a.o.Disk.Root, err)))
	}
	if len(l.Roots()) == 0 {
		return nil, fmt.Errorf("import images: the archive holds none: %w", errdefs.ErrInvalidArgument)
	}
	return out, errors.Join(errs...)
}

func (a *Archiver) importRoot(ctx context.Context, l *layout.Layout, root layout.Root, req Request, handlers variant.Handlers) (catalog.Image, error) {
	n, err := importName(root.Name, req.Name)
	if err != nil {
		return catalog.Image{}, err
	}
	if n.Digest != "" && n.Digest != root.Desc.Digest {
		return catalog.Image{}, fmt.Errorf("it is named %s: %w", n.Digest, errdefs.ErrDataLoss)
	}
	m, leave := a.o.Meters.Join("import "+n.Full+" "+root.Desc.Digest.String(), req.Progress)
	defer leave()
	m.Update(func(p *progress.Progress) { *p = progress.Progress{Phase: "resolve"} })
	started := time.Now()
	img, err := a.o.Importer.Import(ctx, l, n, root.Desc, handlers, !req.preload, m)
	if err != nil {
		return img, err
	}
	m.Update(func(p *progress.Progress) { p.Phase = "done" })
	a.o.Logger.Info("image imported", "image", n.Full, "digest", root.Desc.Digest, "took", time.Since(started).Round(time.Millisecond))
	return img, nil
}

// importName makes a whole name of what an archive calls an image and what the request says.
func importName(called, given string) (reference.Name, error) {
	switch {
	case strings.ContainsAny(called, "/:@"):
		return reference.Parse(called)
	case given == "":
		return reference.Name{}, nameless(called)
	case called != "" && !hasTag(given):
		return reference.Parse(given + ":" + called)
	}
	return reference.Parse(given)
}

func nameless(tag string) error {
	what := "it has no name"
	if tag != "" {
		what = fmt.Sprintf("it has a tag, %q, and no name", tag)
	}
	return fmt.Errorf("%s: say which one it is to have: %w", what, errdefs.ErrInvalidArgument)
}

// hasTag reports whether a reference has a tag or a digest.
func hasTag(ref string) bool {
	return strings.Contains(ref[strings.LastIndex(ref, "/")+1:], ":") || strings.Contains(ref, "@")
}

// Preload imports every archive and every layout of a directory, and pins their
// images for as long as the store is open. What is present is not imported
// again. A directory that is not there is as if empty.
//
// # Errors
//
// Those of the files whose import failed; the others are imported.
func (a *Archiver) Preload(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("preload images: %w", err)
	}
	var errs []error
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		info, err := os.Stat(file)
		if err != nil || strings.HasPrefix(e.Name(), ".") || !info.IsDir() && !info.Mode().IsRegular() {
			continue // gone, hidden, or nothing that holds images
		}
		imgs, err := a.Import(ctx, Request{Path: file, preload: true})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("preload images of %q: %w", file, err))
		}
		for _, img := range imgs {
			a.o.Pins.Preload(img.RepoDigests...)
		}
	}
	return errors.Join(errs...)
}
