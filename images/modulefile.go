package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/program"
)

// ModuleFile is the WebAssembly file that an image brings.
type ModuleFile struct {
	Image Image
	// Digest is that of an artifact's module; "" for a file of an image, whose
	// Command names it.
	Digest  digest.Digest
	Command string
}

// ReadModule calls read with the WebAssembly file that an image brings: an
// artifact's module, or the file that the image's command names. nameOrID and
// handler are those of Find; with handler "" it is the first variant that has
// such a file.
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
		err = s.readModule(ctx, img, read)
		if !errors.Is(err, errNoModule) {
			return err
		}
		errs = append(errs, err)
	}
	if len(seen) == 0 {
		return errs[0]
	}
	return fmt.Errorf("image %q brings no WebAssembly module: %w", nameOrID, errors.Join(errs...))
}

var errNoModule = fmt.Errorf("no WebAssembly module: %w", errdefs.ErrFailedPrecondition)

// readModule is ReadModule of one image; errNoModule if there is nothing to read.
func (s *Service) readModule(ctx context.Context, img Image, read func(ModuleFile, io.Reader) error) error {
	s.gc.RLock()
	opened := sync.OnceFunc(s.gc.RUnlock) // an open file and a view stay, however long read takes
	defer opened()
	if img.Kind == Module {
		f, err := os.Open(s.content.Path(img.Module.Digest))
		if err != nil {
			return fmt.Errorf("open module of image %s: %w", img.ID, err)
		}
		defer f.Close()
		opened()
		return read(ModuleFile{Image: img, Digest: img.Module.Digest}, f)
	}
	rec, ok := s.db.State().Images[img.ID]
	if !ok || rec.Chain == "" {
		return fmt.Errorf("image %s has no files: %w", img.ID, errNoModule)
	}
	return s.layers.WithChain(ctx, rec.Chain, func(dir string) error {
		opened()
		f, err := program.OpenEntrypoint(dir, img.Config)
		if err != nil {
			return fmt.Errorf("image %s: %w: %w", img.ID, err, errNoModule)
		}
		defer f.Close()
		command := append(append([]string{}, img.Config.Entrypoint...), img.Config.Cmd...)[0]
		head := make([]byte, len(program.Magic))
		if n, err := f.ReadAt(head, 0); n < len(head) || string(head) != program.Magic {
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read %q of image %s: %w", command, img.ID, err)
			}
			return fmt.Errorf("image %s (%s/%s): its command %q is something else: %w", img.ID, img.Platform.OS, img.Platform.Architecture, command, errNoModule)
		}
		return read(ModuleFile{Image: img, Command: command}, f)
	})
}
