package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/host/space"
)

// Sweep removes the layers that neither a chain of keep, nor a root, nor a pin needs, and returns
// how many it removed. Their room is free after Cleanup.
func (s *Store) Sweep(keep map[digest.Digest]bool) (removed int) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.staging.mu.Lock()
	defer s.staging.mu.Unlock()
	unneeded := s.unneeded(keep)
	s.index.Lock()
	defer s.index.Unlock()
	for _, f := range unneeded {
		delete(s.byChain, f.Chain)
	}
	return len(unneeded)
}

// Unneeded counts the layers that Sweep would remove, and the bytes that they take.
func (s *Store) Unneeded(keep map[digest.Digest]bool) (layers int, bytes int64) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.staging.mu.Lock()
	defer s.staging.mu.Unlock()
	unneeded := s.unneeded(keep)
	for _, f := range unneeded {
		bytes += f.Bytes
	}
	return len(unneeded), bytes
}

// unneeded returns the layers that nothing needs; s.changing and s.staging.mu are held.
func (s *Store) unneeded(keep map[digest.Digest]bool) (out []folder) {
	layers, roots := s.all()
	parents := make(map[digest.Digest]digest.Digest)
	for _, f := range layers {
		parents[f.Chain] = f.Parent
	}
	needed := make(map[digest.Digest]bool)
	need := func(chain digest.Digest) {
		for ; chain != "" && !needed[chain]; chain = parents[chain] {
			needed[chain] = true
		}
	}
	for _, f := range roots {
		need(f.Parent)
	}
	for chain := range s.pins {
		need(chain)
	}
	for chain := range keep {
		need(chain)
	}
	return slices.DeleteFunc(layers, func(f folder) bool { return needed[f.Chain] })
}

// Usage returns the room that layers take, those that are being unpacked too, and that roots take.
func (s *Store) Usage(ctx context.Context) (layers, roots space.Use, err error) {
	unpacked, written := s.all()
	for _, f := range unpacked {
		layers.Bytes += f.Bytes
		layers.Inodes += f.Inodes
	}
	var dirs []string
	for _, pattern := range []string{"staging/*", "aside/*/*"} {
		some, err := filepath.Glob(filepath.Join(s.root, pattern))
		if err != nil {
			return layers, roots, fmt.Errorf("measure layers: %w", err)
		}
		dirs = append(dirs, some...)
	}
	add := func(sum *space.Use, dir string) {
		if err != nil {
			return
		}
		var u space.Use
		if u, err = space.Used(ctx, dir); errors.Is(err, os.ErrNotExist) {
			err = nil // removed, committed or dropped meanwhile
		}
		sum.Bytes += u.Bytes
		sum.Inodes += u.Inodes
	}
	for _, f := range written {
		if !f.View {
			add(&roots, s.upper(f))
		}
	}
	for _, dir := range dirs {
		add(&layers, dir)
	}
	return layers, roots, err
}
