package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/variant"
)

// ImportRequest says what to import.
type ImportRequest struct {
	// Path is a directory or a tar archive; else Reader is the archive, which
	// takes room for itself meanwhile.
	Path   string
	Reader io.Reader
	// Name is for what has none, or just a tag: "repository[:tag]".
	Name string
	// Handler is the runtime handler that the images are for; "" imports the best
	// match of every configured handler.
	Handler string
	// Progress is as in PullRequest, for one image after the other.
	Progress func(Progress)
}

// partial is a source that may lack what it refers to.
type partial interface{ Has(digest.Digest) bool }

// spool is where archives are kept while they are imported.
func (s *Service) spool() string { return filepath.Join(s.root, "spool") }

// Import brings in the images of an OCI layout or a Docker archive, as Pull does
// with those of a registry: each handler's variant, verified and unpacked. What
// the archive has not of an index is left out, if there is something to run.
// Images that are present are not brought in again.
//
// # Errors
//
// ErrNotFound if there is no such file; ErrInvalidArgument for what is no
// archive of images, and for images without a name when the request has none;
// those of Pull for each image. Images before and after one that fails are
// imported.
func (s *Service) Import(ctx context.Context, req ImportRequest) ([]Image, error) {
	handlers, err := s.handlers.Wanted(req.Handler)
	if err != nil {
		return nil, err
	}
	var l *layout.Layout
	if req.Path != "" {
		l, err = layout.Open(ctx, req.Path, s.spool())
	} else {
		l, err = layout.Read(ctx, req.Reader, s.spool())
	}
	if err != nil {
		return nil, space.Explain(s.root, err)
	}
	defer l.Close()
	var out []Image
	var errs []error
	for _, root := range l.Roots() {
		target, err := s.importRoot(ctx, l, root, req, handlers)
		if err == nil {
			var img Image
			if img, err = s.variant([]store.Target{target}, handlers); err == nil {
				out = append(out, img)
				continue
			}
		}
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		errs = append(errs, fmt.Errorf("import image %q (%s): %w", root.Name, root.Desc.Digest, space.Explain(s.root, err)))
	}
	if len(l.Roots()) == 0 {
		return nil, fmt.Errorf("import images: the archive holds none: %w", errdefs.ErrInvalidArgument)
	}
	return out, errors.Join(errs...)
}

func (s *Service) importRoot(ctx context.Context, l *layout.Layout, root layout.Root, req ImportRequest, handlers variant.Handlers) (store.Target, error) {
	n, err := importName(root.Name, req.Name)
	if err != nil {
		return store.Target{}, err
	}
	if n.Digest != "" && n.Digest != root.Desc.Digest {
		return store.Target{}, fmt.Errorf("it is named %s: %w", n.Digest, errdefs.ErrDataLoss)
	}
	m, leave := s.meters.Join("import "+n.Full+" "+root.Desc.Digest.String(), req.Progress)
	defer leave()
	m.Update(func(p *Progress) { *p = Progress{Phase: "resolve"} })
	x := s.session(l, n.Repo, root.Desc.Digest, m)
	defer x.close()
	x.pin(root.Desc.Digest)
	began := time.Now()
	target, err := x.bringIn(ctx, n, root.Desc, handlers, nil)
	if err != nil {
		x.giveUp(ctx, err)
		return target, err
	}
	m.Update(func(p *Progress) { p.Phase = "done" })
	s.logger.Info("image imported", "image", n.Full, "digest", root.Desc.Digest, "took", time.Since(began).Round(time.Millisecond))
	return target, nil
}

// importName makes a whole name of what an archive calls an image and what the
// request says.
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
// images for as long as this Service is open. What is present is not imported
// again. A directory that is not there is as if empty.
//
// # Errors
//
// Those of the files that could not be imported; the others are.
func (s *Service) Preload(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("preload images: %w", err)
	}
	var errs []error
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		info, err := os.Stat(file)
		if err != nil || strings.HasPrefix(e.Name(), ".") || !info.IsDir() && !info.Mode().IsRegular() {
			continue // gone, hidden, or nothing that holds images
		}
		imgs, err := s.Import(ctx, ImportRequest{Path: file})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("preload images of %q: %w", file, err))
		}
		s.mu.Lock()
		for _, img := range imgs {
			for _, name := range img.RepoDigests {
				s.preloaded[name] = true
			}
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}
