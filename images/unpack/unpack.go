// Package unpack lays images out on overlayfs: one directory per layer, shared
// by all images that begin with the same layers, and one writable directory per
// container.
//
// # Life of a layer
//
// Apply writes a layer into a directory of its own and commits it under its
// chain id (the digest of the layer and all below it). It stays as long as an
// image or a container needs it; Sweep removes the rest. A layer that is
// committed is complete, but on disk for certain only after Sync.
package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/images/flight"
)

// Keys of snapshots that are not layers begin with what they are for.
const (
	rootPrefix = "root/"
	workPrefix = "work/"
)

// upperLabel is the label under which the snapshotter tells a snapshot's own
// directory.
const upperLabel = "containerd.io/snapshot/overlay.upperdir"

// Store keeps unpacked layers and the roots of containers. It is safe for
// concurrent use.
type Store struct {
	root      string // layers and roots
	mounts    string // mount points of reads that are under way
	snapshots snapshots.Snapshotter
	log       *log.Entry
	applies   flight.Group[struct{}]

	mu   sync.Mutex // pins; held while Sweep decides about and removes a layer
	pins map[digest.Digest]int
}

// Open opens a store below a directory, and removes what a killed process left:
// half unpacked layers and mounts for reading.
//
// # Errors
//
// A directory that overlayfs cannot be used on is an error that says so;
// ErrInvalidArgument for one whose name overlayfs's mount options cannot carry.
func Open(ctx context.Context, root string, logger *slog.Logger) (*Store, error) {
	if strings.ContainsAny(root, `,:\"`) {
		return nil, fmt.Errorf("use overlayfs on %q: the name must not hold any of , : \\ and quotes: %w", root, errdefs.ErrInvalidArgument)
	}
	s := &Store{
		root:   filepath.Join(root, "layers"),
		mounts: filepath.Join(root, "mounts"),
		log:    newBridge(logger),
		pins:   make(map[digest.Digest]int),
	}
	for _, dir := range []string{s.root, s.mounts} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create layer store: %w", err)
		}
	}
	if err := overlayutils.Supported(s.root); err != nil {
		return nil, fmt.Errorf("use overlayfs on %q (filesystem type %s): %w; choose a directory on ext4, xfs or btrfs",
			s.root, filesystemType(s.root), err)
	}
	sn, err := overlay.NewSnapshotter(s.root, overlay.WithUpperdirLabel, overlay.AsynchronousRemove, overlay.WithRemapIDs)
	if err != nil {
		return nil, fmt.Errorf("open layer store %q: %w", s.root, err)
	}
	s.snapshots = sn
	if err := errors.Join(s.removeMounts(), s.removeUnfinished(s.quiet(ctx))); err != nil {
		sn.Close()
		return nil, err
	}
	return s, nil
}

// Close waits for running work, which ends with its callers, and closes the
// store. Roots stay.
func (s *Store) Close() error {
	s.applies.Wait()
	return s.snapshots.Close()
}

// Has reports whether a chain is unpacked.
func (s *Store) Has(ctx context.Context, chain digest.Digest) bool {
	info, err := s.snapshots.Stat(s.quiet(ctx), chain.String())
	if err != nil || info.Kind != snapshots.KindCommitted {
		return false
	}
	_, err = os.Stat(info.Labels[upperLabel])
	return err == nil
}

// Layer is one layer to unpack.
type Layer struct {
	// Parent and Chain are the chain ids without and with this layer; Parent
	// is "" for the lowest.
	Parent, Chain digest.Digest
	// Diff is the digest of the layer's tar stream.
	Diff digest.Digest
	// Open opens the layer: a tar stream, plain or compressed by gzip or zstd.
	Open func(context.Context) (io.ReadCloser, error)
}

// Apply unpacks a layer upon its parent, unless that has been done. Concurrent
// calls for one chain share the work. The caller has pinned both chains.
//
// # Errors
//
// ErrDataLoss if the stream is not what Diff says. On any error nothing is left.
func (s *Store) Apply(ctx context.Context, l Layer) error {
	if s.Has(ctx, l.Chain) {
		return nil
	}
	_, err := s.applies.Do(ctx, l.Chain.String(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.apply(s.quiet(ctx), l)
	})
	return err
}

func (s *Store) apply(ctx context.Context, l Layer) (err error) {
	if s.Has(ctx, l.Chain) {
		return nil
	}
	key := workKey()
	mounts, err := s.snapshots.Prepare(ctx, key, l.Parent.String())
	if err != nil {
		return fmt.Errorf("prepare layer %s: %w", l.Diff, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove(context.WithoutCancel(ctx), key))
		}
	}()
	info, err := s.snapshots.Stat(ctx, key)
	if err != nil {
		return fmt.Errorf("prepare layer %s: %w", l.Diff, err)
	}
	if err := extract(ctx, l, info.Labels[upperLabel], lowerDirs(mounts)); err != nil {
		return fmt.Errorf("unpack layer %s: %w", l.Diff, err)
	}
	if err := s.snapshots.Commit(ctx, l.Chain.String(), key); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("commit layer %s: %w", l.Diff, err)
	} else if err != nil {
		return s.remove(ctx, key)
	}
	return nil
}

// extract writes a layer's files into dir. Whiteouts become overlayfs's own
// where there are layers below, so that nothing needs to be mounted.
func extract(ctx context.Context, l Layer, dir string, parents []string) error {
	blob, err := l.Open(ctx)
	if err != nil {
		return err
	}
	defer blob.Close()
	stream, err := compression.DecompressStream(blob)
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	defer stream.Close()
	verifier := l.Diff.Verifier()
	tee := io.TeeReader(stream, verifier)
	var opts []archive.ApplyOpt
	if len(parents) > 0 {
		opts = append(opts, archive.WithParents(parents), archive.WithConvertWhiteout(archive.OverlayConvertWhiteout))
	}
	if _, err := archive.Apply(ctx, dir, tee, opts...); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, tee); err != nil { // padding behind the archive counts too
		return err
	}
	if !verifier.Verified() {
		return fmt.Errorf("its content is not what the image's configuration says: %w", errdefs.ErrDataLoss)
	}
	return nil
}

// lowerDirs returns the layers below a snapshot, nearest first.
func lowerDirs(mounts []mount.Mount) []string {
	for _, m := range mounts {
		for _, o := range m.Options {
			if dirs, ok := strings.CutPrefix(o, "lowerdir="); ok {
				return strings.Split(dirs, ":")
			}
		}
	}
	return nil
}

// Sync brings everything that has been unpacked to disk.
func (s *Store) Sync() error {
	f, err := os.Open(s.root)
	if err != nil {
		return fmt.Errorf("sync layers: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync layers of %q: %w", s.root, err)
	}
	return nil
}

// Pin keeps chains from Sweep, whether they are there yet or not, until unpin
// is called.
func (s *Store) Pin(chains ...digest.Digest) (unpin func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range chains {
		s.pins[c]++
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range chains {
			if s.pins[c]--; s.pins[c] == 0 {
				delete(s.pins, c)
			}
		}
	})
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
