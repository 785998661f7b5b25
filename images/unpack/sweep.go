package unpack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/host/space"
)

// removeUnfinished removes work that no process is doing any more.
func (s *Store) removeUnfinished(ctx context.Context) error {
	var keys []string
	if err := s.walk(ctx, func(info snapshots.Info) {
		if strings.HasPrefix(info.Name, workPrefix) {
			keys = append(keys, info.Name)
		}
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.snapshots.Remove(ctx, k); err != nil {
			return fmt.Errorf("remove unfinished layer: %w", err)
		}
	}
	if err := s.Cleanup(ctx); err != nil {
		s.logger.Warn("failed to delete removed layers", "error", err)
	}
	return nil
}

// Sweep removes the layers that neither a chain of keep, nor a root, nor a pin
// needs, and returns how many went. Their room is free after Cleanup.
func (s *Store) Sweep(ctx context.Context, keep map[digest.Digest]bool) (int, error) {
	ctx = s.quiet(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	unneeded, err := s.unneeded(ctx, keep)
	if err != nil {
		return 0, err
	}
	removed, kept := 0, make(map[string]bool)
	for _, info := range unneeded {
		if kept[info.Name] {
			kept[info.Parent] = true
			continue
		}
		err := s.snapshots.Remove(ctx, info.Name)
		if errdefs.IsFailedPrecondition(err) { // a root has just been prepared upon it
			kept[info.Parent] = true
			continue
		}
		if err != nil {
			return removed, fmt.Errorf("remove layer %s: %w", info.Name, err)
		}
		removed++
	}
	return removed, nil
}

// Unneeded counts the layers that Sweep would remove, and the bytes that they take.
func (s *Store) Unneeded(ctx context.Context, keep map[digest.Digest]bool) (layers int, bytes int64, err error) {
	ctx = s.quiet(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	unneeded, err := s.unneeded(ctx, keep)
	if err != nil {
		return 0, 0, err
	}
	for _, info := range unneeded {
		u, err := s.snapshots.Usage(ctx, info.Name)
		if err != nil {
			return 0, 0, fmt.Errorf("measure layer %s: %w", info.Name, err)
		}
		bytes += u.Size
	}
	return len(unneeded), bytes, nil
}

// unneeded returns the layers that nothing needs, each before its parent; s.mu is held.
func (s *Store) unneeded(ctx context.Context, keep map[digest.Digest]bool) ([]snapshots.Info, error) {
	all := make(map[string]snapshots.Info)
	needed := make(map[string]bool)
	if err := s.walk(ctx, func(info snapshots.Info) {
		all[info.Name] = info
		d := digest.Digest(info.Name)
		if info.Kind != snapshots.KindCommitted || keep[d] || s.pins[d] > 0 {
			needed[info.Name] = true
		}
	}); err != nil {
		return nil, err
	}
	for _, name := range slices.Collect(maps.Keys(needed)) {
		for p := all[name].Parent; p != "" && !needed[p]; p = all[p].Parent {
			needed[p] = true
		}
	}
	children := make(map[string]int)
	for _, info := range all {
		children[info.Parent]++
	}
	var out []snapshots.Info
	for name := range all {
		for n := name; n != "" && !needed[n] && children[n] == 0; n = all[n].Parent {
			out = append(out, all[n])
			needed[n] = true // not to be looked at again
			children[all[n].Parent]--
		}
	}
	return out, nil
}

// Usage returns the room that layers take, those that are being unpacked too, and that roots take.
func (s *Store) Usage(ctx context.Context) (layers, roots snapshots.Usage, err error) {
	var infos []snapshots.Info
	if err := s.walk(ctx, func(info snapshots.Info) { infos = append(infos, info) }); err != nil {
		return layers, roots, err
	}
	for _, info := range infos {
		u, err := s.use(s.quiet(ctx), info)
		if errdefs.IsNotFound(err) || errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return layers, roots, fmt.Errorf("measure %q: %w", info.Name, err)
		}
		if strings.HasPrefix(info.Name, rootPrefix) {
			roots.Add(u)
		} else {
			layers.Add(u)
		}
	}
	for _, pattern := range []string{"staging/*", "aside/*/*"} {
		dirs, err := filepath.Glob(filepath.Join(s.root, pattern))
		if err != nil {
			return layers, roots, fmt.Errorf("measure layers: %w", err)
		}
		for _, dir := range dirs {
			u, err := space.Used(ctx, dir)
			if errors.Is(err, os.ErrNotExist) {
				continue // committed or dropped meanwhile
			}
			if err != nil {
				return layers, roots, err
			}
			layers.Add(snapshots.Usage{Size: u.Bytes, Inodes: u.Inodes})
		}
	}
	return layers, roots, nil
}

// use is what a snapshot takes. What is being written is measured, as its container leaves it at
// this moment.
func (s *records) use(ctx context.Context, info snapshots.Info) (snapshots.Usage, error) {
	if info.Kind != snapshots.KindActive {
		return s.snapshots.Usage(ctx, info.Name)
	}
	u, err := space.Used(ctx, info.Labels[upperLabel])
	return snapshots.Usage{Size: u.Bytes, Inodes: u.Inodes}, err
}
