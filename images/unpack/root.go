package unpack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
)

// Root is the writable root of a container, or a view of an image that a container mounts.
type Root struct {
	Key   string
	Chain digest.Digest // "" for an empty root
	// Labels are what Prepare was given.
	Labels map[string]string
}

// MapLabels are labels for Prepare: a root whose mounts have the options uidmap=
// and gidmap=, with what is written to it belonging to the mapped root from the
// beginning. A mapping is "inside:outside:length".
func MapLabels(uidmap, gidmap string) map[string]string {
	return map[string]string{snapshots.LabelSnapshotUIDMapping: uidmap, snapshots.LabelSnapshotGIDMapping: gidmap}
}

// Prepare makes a root upon a chain under a key, or finds it again, and returns
// what is to be mounted. Labels are limited to what containerd allows for
// snapshots; their names must begin with "sunaba/", or be those of MapLabels.
//
// # Errors
//
// ErrNotFound if the chain is not unpacked; ErrAlreadyExists if the key has a
// root upon another chain.
func (s *Store) Prepare(ctx context.Context, key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
	return s.prepare(ctx, s.snapshots.Prepare, key, chain, labels)
}

// View is Prepare for a root that nobody writes to: what is to be mounted is read-only.
func (s *Store) View(ctx context.Context, key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
	return s.prepare(ctx, s.snapshots.View, key, chain, labels)
}

type prepare func(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error)

func (s *Store) prepare(ctx context.Context, prepare prepare, key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
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

// Remove removes a root with all that was written to it. A key without a root
// is no error.
func (s *Store) Remove(ctx context.Context, key string) error {
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
func (s *Store) remove(ctx context.Context, key string) error {
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
func (s *Store) Root(ctx context.Context, key string) (Root, error) {
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
func (s *Store) Roots(ctx context.Context) ([]Root, error) {
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
func (s *Store) RootUsage(ctx context.Context, key string) (bytes, inodes int64, err error) {
	ctx = s.quiet(ctx)
	info, err := s.snapshots.Stat(ctx, rootPrefix+key)
	if err != nil {
		return 0, 0, fmt.Errorf("measure root %q: %w", key, err)
	}
	u, err := s.use(ctx, info)
	if errors.Is(err, fs.ErrNotExist) {
		err = errdefs.ErrNotFound // removed meanwhile
	}
	if err != nil {
		return 0, 0, fmt.Errorf("measure root: %w", err)
	}
	return u.Size, u.Inodes, nil
}

// WithRoot calls fn with a directory that shows a root, read-only, during the
// call.
//
// # Errors
//
// ErrNotFound if the key has no root; else fn's error as it is.
func (s *Store) WithRoot(ctx context.Context, key string, fn func(dir string) error) error {
	ctx = s.quiet(ctx)
	mounts, err := s.snapshots.Mounts(ctx, rootPrefix+key)
	if err != nil {
		return fmt.Errorf("find root %q: %w", key, err)
	}
	return s.withMounts(mounts, fn)
}

// ChangeRoot is WithRoot for fn that writes to the root, which nobody else may use at this time. A root with mapped owners
// cannot be changed so.
func (s *Store) ChangeRoot(ctx context.Context, key string, fn func(dir string) error) error {
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

// WithChain calls fn with a directory that shows a chain, read-only, during the
// call. The caller has pinned the chain.
func (s *Store) WithChain(ctx context.Context, chain digest.Digest, fn func(dir string) error) (err error) {
	ctx = s.quiet(ctx)
	key := workKey()
	mounts, err := s.snapshots.View(ctx, key, chain.String())
	if err != nil {
		return fmt.Errorf("view layers %s: %w", chain, err)
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx), key)) }()
	return s.withMounts(mounts, fn)
}

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

// Unneeded counts the layers that Sweep would remove, and the bytes that they
// take.
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

// unneeded returns the layers that nothing needs, each before its parent; s.mu is
// held.
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

func (s *Store) walk(ctx context.Context, fn func(snapshots.Info)) error {
	err := s.snapshots.Walk(s.quiet(ctx), func(_ context.Context, info snapshots.Info) error {
		fn(info)
		return nil
	})
	if errdefs.IsNotFound(err) {
		return nil // a store that has never held anything
	}
	if err != nil {
		return fmt.Errorf("list layers: %w", err)
	}
	return nil
}

// workKey returns a key for a snapshot that lives only during one call.
func workKey() string { return workPrefix + rand.Text() }

// quiet leads containerd's log lines of this context to the store's logger.
func (s *Store) quiet(ctx context.Context) context.Context { return log.WithLogger(ctx, s.log) }

// newBridge returns a logger for containerd's packages that hands warnings on.
func newBridge(to *slog.Logger) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	l.AddHook(bridge{to})
	return logrus.NewEntry(l)
}

type bridge struct{ to *slog.Logger }

func (bridge) Levels() []logrus.Level { return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel} }

func (b bridge) Fire(e *logrus.Entry) error {
	args := make([]any, 0, 2*len(e.Data))
	for k, v := range e.Data {
		args = append(args, k, v)
	}
	b.to.Warn("layer store: "+e.Message, args...)
	return nil
}
