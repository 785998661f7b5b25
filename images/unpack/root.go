package unpack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/boltfile"
)

// Root is the writable root of a container, or a view of an image that a container mounts.
type Root struct {
	Key   string
	Chain digest.Digest // "" for an empty root
	// Labels are what Prepare was given.
	Labels map[string]string
}

// roots are the roots of containers.
type roots struct {
	*records
	mountPoints
	written sync.Map // of the roots that were measured: key to the folder of what was written to it
}

// MapLabels are labels for Prepare: a root whose mounts have the options uidmap=
// and gidmap=, with what is written to it belonging to the mapped root from the
// beginning. A mapping is "inside:outside:length".
func MapLabels(uidmap, gidmap string) map[string]string {
	return map[string]string{snapshots.LabelSnapshotUIDMapping: uidmap, snapshots.LabelSnapshotGIDMapping: gidmap}
}

// Prepare makes a root upon a chain under a key, or finds it again, and returns
// what is to be mounted. Labels are limited to what containerd allows for
// snapshots; their names must start with "sunaba/", or be those of MapLabels.
//
// # Errors
//
// ErrNotFound if the chain is not unpacked; ErrAlreadyExists if the key has a
// root upon another chain.
func (s *roots) Prepare(ctx context.Context, key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
	return s.prepare(ctx, s.snapshots.Prepare, key, chain, labels)
}

// View is Prepare for a root that nobody writes to: what is to be mounted is read-only.
func (s *roots) View(ctx context.Context, key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
	return s.prepare(ctx, s.snapshots.View, key, chain, labels)
}

type prepare func(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error)

func (s *roots) prepare(ctx context.Context, prepare prepare, key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
	ctx = s.quiet(ctx)
	mounts, err := prepare(ctx, rootPrefix+key, chain.String(), snapshots.WithLabels(labels))
	if errdefs.IsAlreadyExists(err) {
		info, serr := s.snapshots.Stat(ctx, rootPrefix+key)
		if serr != nil {
			return nil, fmt.Errorf("find root %q: %w", key, serr)
		}
		if info.Parent != chain.String() {
			return nil, fmt.Errorf("prepare root %q: it belongs to another image: %w", key, errdefs.ErrAlreadyExists)
		}
		mounts, err = s.snapshots.Mounts(ctx, rootPrefix+key)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare root %q: %w", key, err)
	}
	return mounts, nil
}

// Remove removes a root with all that was written to it. A key without a root is no error.
func (s *roots) Remove(ctx context.Context, key string) error {
	defer s.written.Delete(key)
	ctx, key = s.quiet(ctx), rootPrefix+key
	err := s.remove(ctx, key)
	if !durable.Full(err) {
		return err
	}
	// What was written to it makes the room that its record takes to be removed.
	info, serr := s.snapshots.Stat(ctx, key)
	if serr != nil || info.Kind == snapshots.KindCommitted {
		return err
	}
	if err := space.Empty(info.Labels[upperLabel]); err != nil {
		return fmt.Errorf("delete what %q held: %w", key, err)
	}
	return s.remove(ctx, key)
}

// remove removes one snapshot and its directory. That does not go through
// Cleanup, which would cost a second transaction.
func (s *roots) remove(ctx context.Context, key string) error {
	info, err := s.snapshots.Stat(ctx, key)
	if err == nil {
		err = s.snapshots.Remove(ctx, key)
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %q: %w", key, err)
	}
	if err := space.Remove(filepath.Dir(info.Labels[upperLabel])); err != nil {
		return fmt.Errorf("delete what %q held: %w", key, err)
	}
	return nil
}

// Root returns the root of a key.
//
// # Errors
//
// ErrNotFound if the key has none.
func (s *roots) Root(ctx context.Context, key string) (Root, error) {
	info, err := s.snapshots.Stat(s.quiet(ctx), rootPrefix+key)
	if err != nil {
		return Root{}, fmt.Errorf("find root %q: %w", key, err)
	}
	return rootOf(info), nil
}

func rootOf(info snapshots.Info) Root {
	labels := make(map[string]string)
	for k, v := range info.Labels {
		if strings.HasPrefix(k, "sunaba/") {
			labels[k] = v
		}
	}
	return Root{Key: strings.TrimPrefix(info.Name, rootPrefix), Chain: digest.Digest(info.Parent), Labels: labels}
}

// Roots returns all roots, sorted by key.
func (s *roots) Roots(ctx context.Context) ([]Root, error) {
	var out []Root
	err := s.walk(ctx, func(info snapshots.Info) {
		if strings.HasPrefix(info.Name, rootPrefix) {
			out = append(out, rootOf(info))
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Root) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// RootUsage returns what has been written to a root, in bytes and files.
func (s *roots) RootUsage(ctx context.Context, key string) (bytes, inodes int64, err error) {
	dir, _ := s.written.Load(key)
	if dir == nil {
		info, err := s.snapshots.Stat(s.quiet(ctx), rootPrefix+key)
		if err != nil {
			return 0, 0, fmt.Errorf("measure root %q: %w", key, err)
		}
		dir = info.Labels[upperLabel]
		s.written.Store(key, dir)
	}
	u, err := space.Used(ctx, dir.(string))
	if errors.Is(err, fs.ErrNotExist) {
		s.written.Delete(key)
		err = errdefs.ErrNotFound // removed meanwhile
	}
	if err != nil {
		return 0, 0, fmt.Errorf("measure root: %w", err)
	}
	return u.Bytes, u.Inodes, nil
}

// WithRoot calls fn with a directory that shows a root, read-only, during the call.
//
// # Errors
//
// ErrNotFound if the key has no root; else fn's error as it is.
func (s *roots) WithRoot(ctx context.Context, key string, fn func(dir string) error) error {
	ctx = s.quiet(ctx)
	mounts, err := s.snapshots.Mounts(ctx, rootPrefix+key)
	if err != nil {
		return fmt.Errorf("find root %q: %w", key, err)
	}
	return s.withMounts(mounts, fn)
}

// ChangeRoot is WithRoot for fn that writes to the root, which no other process may use meanwhile.
// A root with mapped owners cannot be changed so.
func (s *roots) ChangeRoot(ctx context.Context, key string, fn func(dir string) error) error {
	ctx = s.quiet(ctx)
	mounts, err := s.snapshots.Mounts(ctx, rootPrefix+key)
	if err != nil {
		return fmt.Errorf("find root %q: %w", key, err)
	}
	for _, m := range mounts {
		if slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "uidmap=") }) {
			return fmt.Errorf("change root %q: its owners are mapped: %w", key, errdefs.ErrFailedPrecondition)
		}
	}
	return s.mounted(mounts, fn)
}

// GlanceRoots returns the roots of a store below root without opening it: another process may have
// it open.
func GlanceRoots(ctx context.Context, root string) ([]Root, error) {
	var roots []Root
	err := boltfile.Glance(filepath.Join(root, "layers", "metadata.db"), func(file string) (err error) {
		roots, err = rootsOf(ctx, file)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a store that has never held anything
	}
	if err != nil {
		return nil, fmt.Errorf("list roots: %w", err)
	}
	return roots, nil
}

func rootsOf(ctx context.Context, file string) (roots []Root, err error) {
	db, err := storage.NewMetaStore(file)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	err = db.WithTransaction(ctx, false, func(ctx context.Context) error {
		return storage.WalkInfo(ctx, func(_ context.Context, info snapshots.Info) error {
			if strings.HasPrefix(info.Name, rootPrefix) {
				roots = append(roots, rootOf(info))
			}
			return nil
		})
	})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return roots, err
}
