package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
)

// Usage returns the room that layers take, those that are being unpacked too, and
// that roots take.
func (s *Store) Usage(ctx context.Context) (layers, roots snapshots.Usage, err error) {
	var infos []snapshots.Info
	if err := s.walk(ctx, func(info snapshots.Info) { infos = append(infos, info) }); err != nil {
		return layers, roots, err
	}
	for _, info := range infos {
		u, err := s.snapshots.Usage(s.quiet(ctx), info.Name)
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
			u, err := fs.DiskUsage(ctx, dir)
			if errors.Is(err, os.ErrNotExist) {
				continue // committed or dropped meanwhile
			}
			if err != nil {
				return layers, roots, fmt.Errorf("measure %q: %w", dir, err)
			}
			layers.Add(snapshots.Usage(u))
		}
	}
	return layers, roots, nil
}
