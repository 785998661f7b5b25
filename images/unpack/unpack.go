// Package unpack lays images out on overlayfs: one directory per layer, shared by all images that
// start with the same layers, and one writable directory per container.
//
// Stage writes a layer into a directory of its own, several at a time and in any order. Commit
// syncs the layers of an image and records them in one transaction under their chain ids (the
// digest of a layer and all below it). A recorded layer is complete and on disk. It stays as long
// as an image or a container needs it; Sweep removes the rest. Check verifies it. Each layer's
// folder repeats its record, so that layers are restored if the store's records are damaged or
// lost.
package unpack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/singleflight"
	"github.com/sunaba-project/sunaba/images/unpack/extract"
)

// Keys of snapshots that are not layers start with what they are for.
const (
	rootPrefix = "root/"
	workPrefix = "work/"
)

// upperLabel is the label under which the snapshotter tells a snapshot's own directory.
const upperLabel = "containerd.io/snapshot/overlay.upperdir"

// Layer is one layer to unpack.
type Layer = extract.Layer

// Store keeps unpacked layers and the roots of containers. It is safe for concurrent use.
type Store struct {
	extract.Extractor
	*records
	roots
	staging

	stages     singleflight.Group[struct{}]
	committing sync.Mutex // one Commit at a time
}

// Options configures a Store.
type Options struct {
	// Root is the directory of the store.
	Root string
	// MaxLayerSize bounds what a layer unpacks to, in bytes; 0 is 64 GiB.
	MaxLayerSize int64
	Logger       *slog.Logger
}

// defaultMaxLayerSize is larger than any layer that is meant to be one.
const defaultMaxLayerSize = 64 << 30

// Open opens a store below a directory, and removes what a killed process left:
// half unpacked layers and mounts for reading.
//
// # Errors
//
// A directory that overlayfs cannot be used on is an error that says so;
// ErrInvalidArgument for one whose name overlayfs's mount options cannot carry.
func Open(ctx context.Context, o Options) (*Store, error) {
	if strings.ContainsAny(o.Root, `,:\"`) {
		return nil, fmt.Errorf("use overlayfs on %q: the name must not hold any of , : \\ and quotes: %w", o.Root, errdefs.ErrInvalidArgument)
	}
	if o.MaxLayerSize <= 0 {
		o.MaxLayerSize = defaultMaxLayerSize
	}
	logger := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	bridge := newBridge(logger)
	r := &records{boots: boots{root: filepath.Join(o.Root, "layers"), logger: logger}, log: bridge}
	s := &Store{
		Extractor: extract.Extractor{MaxBytes: o.MaxLayerSize, Log: bridge},
		records:   r,
		roots:     roots{records: r, mountPoints: mountPoints{filepath.Join(o.Root, "mounts")}},
		staging:   staging{dir: filepath.Join(r.root, "staging"), log: bridge, pins: make(map[digest.Digest]int), staged: make(map[digest.Digest]staged)},
	}
	if err := errors.Join(space.Empty(s.staging.dir), s.removeProbes()); err != nil {
		return nil, fmt.Errorf("delete unfinished layers: %w", err)
	}
	for _, dir := range []string{s.root, s.mounts, s.staging.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create layer store: %w", err)
		}
	}
	if err := overlayutils.Supported(s.root); err != nil && !s.fullButUsed(err) {
		return nil, fmt.Errorf("use overlayfs on %q (filesystem type %s): %w; choose a directory on ext4, xfs or btrfs",
			s.root, filesystemType(s.root), err)
	}
	if err := s.openRecords(ctx); err != nil {
		return nil, fmt.Errorf("open layer store %q: %w", s.root, err)
	}
	if err := s.noteBoot(); err != nil { // before anything is removed
		return nil, errors.Join(err, s.snapshots.Close())
	}
	if err := errors.Join(durable.Sweep(s.root), s.removeMounts(), s.removeUnfinished(s.quiet(ctx)), s.removeAside()); err != nil {
		return nil, errors.Join(err, s.snapshots.Close())
	}
	s.keepRecords(ctx)
	return s, nil
}

// fullButUsed says that trying overlayfs failed because the disk is full, and that it worked when
// the store was created.
func (s *Store) fullButUsed(err error) bool {
	_, missing := os.Stat(s.recordsFile())
	return missing == nil && durable.Full(err)
}

// Close waits for running work, which ends with its callers, and closes the store. Roots stay.
func (s *Store) Close() error {
	s.stages.Wait()
	return s.snapshots.Close()
}

// removeProbes removes the mounts and directories of probes of overlayfs that a
// killed process left.
func (s *Store) removeProbes() error {
	overlays, err := filepath.Glob(filepath.Join(s.root, "*-check*"))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(s.root, "fsutils-dummy*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range append(overlays, files...) {
		err := mount.Detach(filepath.Join(dir, "merged")) // mounted or not
		if err == nil {
			err = os.RemoveAll(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Has reports whether the uppermost layer of a chain is unpacked, and not known to be damaged.
func (s *Store) Has(ctx context.Context, chain digest.Digest) bool {
	info, err := s.snapshots.Stat(s.quiet(ctx), chain.String())
	if err != nil || info.Kind != snapshots.KindCommitted || info.Labels[damagedLabel] != "" {
		return false
	}
	_, err = os.Stat(info.Labels[upperLabel])
	return err == nil
}

// filesystemType names the filesystem of a directory, as statfs numbers it.
func filesystemType(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.OVERLAYFS_SUPER_MAGIC: "overlay",
		unix.TMPFS_MAGIC:           "tmpfs",
		unix.NFS_SUPER_MAGIC:       "nfs",
		unix.EXT4_SUPER_MAGIC:      "ext4",
		unix.XFS_SUPER_MAGIC:       "xfs",
		unix.BTRFS_SUPER_MAGIC:     "btrfs",
		unix.FUSE_SUPER_MAGIC:      "fuse",
		unix.V9FS_MAGIC:            "9p",
		unix.RAMFS_MAGIC:           "ramfs",
		unix.ECRYPTFS_SUPER_MAGIC:  "ecryptfs",
		unix.MSDOS_SUPER_MAGIC:     "vfat",
	}
	if n, ok := names[int64(uint32(st.Type))]; ok {
		return n
	}
	return fmt.Sprintf("%#x", uint32(st.Type))
}
