package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/space"
)

// Usage returns the room that layers take, those that are being unpacked too, and
// that roots take.
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

// use is what a snapshot takes. What is being written is measured, as its container leaves it at this moment.
func (s *Store) use(ctx context.Context, info snapshots.Info) (snapshots.Usage, error) {
	if info.Kind != snapshots.KindActive {
		return s.snapshots.Usage(ctx, info.Name)
	}
	u, err := space.Used(ctx, info.Labels[upperLabel])
	return snapshots.Usage{Size: u.Bytes, Inodes: u.Inodes}, err
}
