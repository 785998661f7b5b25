package images

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// Garbage is what no image, no container and no pull needs.
type Garbage struct {
	Blobs  int `json:"blobs"`
	Layers int `json:"layers"`
	// Modules counts those whose compiled code is kept. It is none of the last day, and none that a guest runs.
	Modules int `json:"modules"`
	// Bytes are what they take on disk.
	Bytes int64 `json:"bytes"`
}

// GC removes what no image, no container and no pull under way needs, and
// returns what that was. Images stay, also those that nobody uses. With dryRun
// nothing is removed.
func (s *Service) GC(ctx context.Context, dryRun bool) (Garbage, error) {
	g, err := s.garbage(ctx)
	if err != nil || dryRun {
		return g, err
	}
	return g, errors.Join(s.sweep(ctx, 0), s.content.SweepIngests(0), s.dropStray(ctx))
}

func (s *Service) garbage(ctx context.Context) (Garbage, error) {
	s.gc.Lock()
	defer s.gc.Unlock()
	roots, err := s.layers.Roots(ctx)
	if err != nil {
		return Garbage{}, err
	}
	blobs, chains := s.needed(s.db.State(), roots)
	var g Garbage
	if g.Layers, g.Bytes, err = s.layers.Unneeded(ctx, chains); err != nil {
		return g, err
	}
	n, bytes, err := s.content.Unneeded(ctx, blobs)
	if err != nil {
		return g, err
	}
	g.Blobs += n
	g.Bytes += bytes
	stray, err := s.stray(ctx, programs(s.db.State(), roots))
	for _, p := range stray {
		g.Modules++
		g.Bytes += p.Bytes
	}
	return g, err
}

// sweep removes the content and layers that no image, no container and no pull
// needs. Blobs younger than grace stay.
func (s *Service) sweep(ctx context.Context, grace time.Duration) error {
	err := s.forgetUnneeded(ctx, grace)
	return errors.Join(err, s.layers.Cleanup(ctx), s.departUnneeded(ctx))
}

func (s *Service) forgetUnneeded(ctx context.Context, grace time.Duration) error {
	s.gc.Lock()
	defer s.gc.Unlock()
	roots, err := s.layers.Roots(ctx)
	if err != nil {
		return err
	}
	blobs, chains := s.needed(s.db.State(), roots)
	_, err = s.layers.Sweep(ctx, chains)
	return errors.Join(err, s.content.Sweep(ctx, blobs, grace), s.content.SweepIngests(resumeGrace))
}

// needed returns the blobs and chains that images and containers consist of.
// The chains of containers need no mention: Sweep knows its roots.
func (s *Service) needed(st *store.State, roots []unpack.Root) (blobs, chains map[digest.Digest]bool) {
	blobs, chains = make(map[digest.Digest]bool), make(map[digest.Digest]bool)
	for _, t := range st.Targets {
		blobs[t.Digest] = true
		for m := range t.Images {
			blobs[m] = true
		}
	}
	for _, img := range st.Images {
		blobs[img.Manifest.Digest], blobs[img.Config.Digest] = true, true
		if img.Module != nil {
			blobs[img.Module.Digest] = true
		}
		if img.Chain != "" {
			chains[img.Chain] = true
		}
		if !s.keepLayers {
			continue
		}
		for _, l := range img.Layers {
			blobs[l.Digest] = true
		}
	}
	for _, r := range roots {
		blobs[digest.Digest(r.Labels[labelModule])] = true
	}
	return blobs, chains
}
