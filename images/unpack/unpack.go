// Package unpack lays images out on overlayfs: one directory per layer, shared by all images that
// start with the same layers, and one writable directory per container.
//
// Stage writes a layer into a directory of its own, several at a time and in any order. Commit
// syncs the layers of an image and moves their folders to "snapshots", each with its record: its
// chain id (the digest of the layer and all below it) and its fingerprint. A layer there is
// complete and on disk. It stays as long as an image or a container needs it; Sweep removes the
// rest. Check verifies it. A listing of the folders when the store is opened is its index.
package unpack

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

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
func Open(o Options) (*Store, error) {
	if strings.ContainsAny(o.Root, `,:\"`) {
		return nil, fmt.Errorf("use overlayfs on %q: the name must not hold any of , : \\ and quotes: %w", o.Root, errdefs.ErrInvalidArgument)
	}
	if o.MaxLayerSize <= 0 {
		o.MaxLayerSize = defaultMaxLayerSize
	}
	logger := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	r := &records{boots: boots{root: filepath.Join(o.Root, "layers"), logger: logger}}
	s := &Store{
		Extractor: extract.Extractor{MaxBytes: o.MaxLayerSize, Log: logger},
		records:   r,
		roots:     roots{records: r, mountPoints: mountPoints{filepath.Join(o.Root, "mounts")}},
		staging:   staging{log: logger, pins: make(map[digest.Digest]int), staged: make(map[digest.Digest]staged)},
	}
	if err := errors.Join(space.Empty(s.stagingDir()), s.removeProbes()); err != nil {
		return nil, fmt.Errorf("delete unfinished layers: %w", err)
	}
	for _, dir := range []string{s.root, s.mounts, s.stagingDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create layer store: %w", err)
		}
	}
	if err := overlayutils.Supported(s.root); err != nil && !s.fullButUsed(err) {
		return nil, fmt.Errorf("use overlayfs on %q (filesystem type %s): %w; choose a directory on ext4, xfs or btrfs",
			s.root, filesystemType(s.root), err)
	}
	if err := os.MkdirAll(s.layersDir(), 0o700); err != nil {
		return nil, fmt.Errorf("create layer store: %w", err)
	}
	s.setOptions()
	if err := errors.Join(s.openAside(), s.removeMounts(), s.takeOver()); err != nil {
		return nil, fmt.Errorf("open layer store %q: %w", s.root, err)
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open layer store %q: %w", s.root, err)
	}
	if err := s.Cleanup(); err != nil {
		logger.Warn("failed to delete removed layers", "error", err)
	}
	return s, nil
}

// fullButUsed says that trying overlayfs failed because the disk is full, and that it worked when
// the store was created.
func (s *Store) fullButUsed(err error) bool {
	_, missing := os.Stat(s.layersDir())
	return missing == nil && durable.Full(err)
}

// Close waits for running work, which ends with its callers. Roots stay.
func (s *Store) Close() { s.stages.Wait() }

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
func (s *Store) Has(chain digest.Digest) bool {
	f, err := s.layer(chain)
	return err == nil && s.usable(f)
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
