package images

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/program"
	"github.com/sunaba-project/sunaba/images/store"
)

// arrive tells Options.Arrived about a module, once per content.
//
// # Errors
//
// Those of class ErrInvalidArgument; the others concern the next start of the
// module only, and are logged.
func (s *Service) arrive(ctx context.Context, d digest.Digest, path string) error {
	if s.arrived == nil || s.moduleKnown(d) {
		return nil
	}
	_, err := s.arrivals.Do(ctx, d.String(), func(ctx context.Context) (struct{}, error) {
		if s.moduleKnown(d) {
			return struct{}{}, nil
		}
		if err := s.setPrepared(d, true); err != nil {
			return struct{}{}, err
		}
		err := s.arrived(ctx, path, d.String())
		if err != nil && (errdefs.IsInvalidArgument(err) || ctx.Err() != nil) {
			return struct{}{}, err
		}
		if err != nil {
			s.logger.Warn("failed to compile module ahead of its start", "module", d, "error", err)
		}
		s.setModuleKnown(d, true)
		return struct{}{}, nil
	})
	return err
}

// arrive does so, and says that it takes its time.
func (x *session) arrive(ctx context.Context, d digest.Digest, path string) error {
	if err := x.hold(ctx, d); err != nil {
		return err
	}
	if x.s.arrived != nil && !x.s.moduleKnown(d) {
		x.meter.Update(func(p *Progress) { p.Phase = "compile" })
	}
	return x.s.arrive(ctx, d, path)
}

func (s *Service) moduleKnown(d digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[d] {
		return true
	}
	for _, img := range s.db.State().Images {
		if slices.Contains(img.Modules(), d) {
			return true
		}
	}
	return false
}

func (s *Service) setModuleKnown(d digest.Digest, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known {
		s.known[d] = true
	} else {
		delete(s.known, d)
	}
}

// arriveRootFS does what arrive does for a filesystem image for WebAssembly: the
// module is the file that the entrypoint names. An entrypoint that is not such a
// file is left to the one who creates the container.
func (x *session) arriveRootFS(ctx context.Context, img *store.Image) error {
	if img.Platform.Architecture != "wasm" || img.Chain == "" {
		return nil
	}
	return x.s.layers.WithChain(ctx, img.Chain, func(dir string) error {
		f, err := program.OpenEntrypoint(dir, img.Runtime)
		if err != nil {
			x.s.logger.Debug("image has no module at its entrypoint", "image", img.ID, "error", err)
			return nil
		}
		defer f.Close()
		header := make([]byte, 8)
		n, err := io.ReadFull(f, header)
		if err != nil || string(header[:4]) != "\x00asm" {
			return nil
		}
		if err := program.CheckHeader(header[:n]); err != nil {
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read module: %w", err)
		}
		d, err := digest.FromReader(f)
		if err != nil {
			return fmt.Errorf("read module: %w", err)
		}
		// The name without any symlinks, which could lead out of dir.
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			return fmt.Errorf("find module: %w", err)
		}
		img.Program = d
		return x.arrive(ctx, d, name)
	})
}
