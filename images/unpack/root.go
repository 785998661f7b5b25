package unpack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

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

// roots are the roots of containers.
type roots struct {
	*records
	mountPoints
}

// Labels that say how the owners of a root are mapped.
const (
	uidmapLabel = "containerd.io/snapshot/uidmapping"
	gidmapLabel = "containerd.io/snapshot/gidmapping"
)

// MapLabels are labels for Prepare: a root whose mounts have the options uidmap=
// and gidmap=, with what is written to it belonging to the mapped root from the
// start. A mapping is "inside:outside:length", and inside is 0.
func MapLabels(uidmap, gidmap string) map[string]string {
	return map[string]string{uidmapLabel: uidmap, gidmapLabel: gidmap}
}

// Prepare makes a root upon a chain under a key, or finds it again, and returns what is to be
// mounted. The names of labels must start with "sunaba/", or be those of MapLabels. A root need not
// survive a power cut, which ends its container, and is not synced.
//
// # Errors
//
// ErrNotFound if the chain is not unpacked; ErrAlreadyExists if the key has a
// root upon another chain.
func (s *roots) Prepare(key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
	return s.prepare(record{Version: recordVersion, Key: key, Parent: chain, Labels: labels})
}

// View is Prepare for a root that nobody writes to: what is to be mounted is read-only.
func (s *roots) View(key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error) {
	return s.prepare(record{Version: recordVersion, Key: key, Parent: chain, Labels: labels, View: true})
}

func (s *roots) prepare(r record) (mounts []mount.Mount, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	f, err := s.folder(r.Key)
	switch {
	case err != nil:
		f = folder{name: rand.Text(), record: r} // a name that no record of a container has held
	case f.Parent != r.Parent:
		return nil, fmt.Errorf("prepare root %q: it belongs to another image: %w", r.Key, errdefs.ErrAlreadyExists)
	}
	mounts, merr := s.mountsOf(f)
	if merr == nil && err != nil {
		merr = s.make(f)
	}
	if merr != nil {
		return nil, fmt.Errorf("prepare root %q: %w", r.Key, merr)
	}
	return mounts, nil
}

// make makes the folder of a root; s.changing is held.
func (s *roots) make(f folder) error {
	dir, err := s.create()
	if err != nil {
		return err
	}
	if !f.View {
		err = os.Mkdir(filepath.Join(dir, "work"), 0o711)
	}
	if err == nil {
		err = s.own(filepath.Join(dir, "fs"), f)
	}
	if err == nil {
		err = f.write(dir, os.WriteFile)
	}
	if err == nil {
		err = os.Rename(dir, s.dir(f))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.set(f)
	return nil
}

// own gives the directory of a root to the mapped root, or to the owner of the layer below.
func (s *roots) own(dir string, f folder) error {
	if f.Labels[uidmapLabel] != "" {
		uid, err := outside(f.Labels[uidmapLabel])
		if err != nil {
			return err
		}
		gid, err := outside(f.Labels[gidmapLabel])
		if err != nil {
			return err
		}
		return os.Lchown(dir, uid, gid)
	}
	if f.Parent == "" {
		return nil
	}
	below, err := s.layer(f.Parent)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(s.upper(below), &st); err != nil {
		return &os.PathError{Op: "stat", Path: s.upper(below), Err: err}
	}
	return os.Lchown(dir, int(st.Uid), int(st.Gid))
}

// outside returns the id on the host that a mapping gives to its first id inside.
func outside(mapping string) (int, error) {
	_, rest, _ := strings.Cut(mapping, ":")
	id, _, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("mapping of owners %q: %w: %w", mapping, err, errdefs.ErrInvalidArgument)
	}
	return int(n), nil
}

// Remove removes a root with all that was written to it. A key without a root is no error.
func (s *roots) Remove(key string) error {
	dir, err := s.retire(key)
	if err == nil && dir != "" {
		err = space.Remove(dir)
	}
	return err
}

// retire removes the record of a root and returns the directory to be deleted, "" without a root.
func (s *roots) retire(key string) (dir string, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	f, err := s.folder(key)
	if err != nil {
		return "", nil
	}
	dir = s.dir(f) + whyRemoved
	if err = os.Rename(s.dir(f), dir); durable.Full(err) { // what was written to it makes room
		err = errors.Join(space.Empty(s.upper(f)), os.Rename(s.dir(f), dir))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	s.index.Lock()
	defer s.index.Unlock()
	delete(s.byKey, key)
	return dir, nil
}

// folder returns the folder of a root.
//
// # Errors
//
// ErrNotFound if the key has none.
func (s *roots) folder(key string) (folder, error) {
	s.index.RLock()
	defer s.index.RUnlock()
	f, ok := s.byKey[key]
	if !ok {
		return f, fmt.Errorf("find root %q: %w", key, errdefs.ErrNotFound)
	}
	return f, nil
}

// Root returns the root of a key.
//
// # Errors
//
// ErrNotFound if the key has none.
func (s *roots) Root(key string) (Root, error) {
	f, err := s.folder(key)
	return rootOf(f.record), err
}

func rootOf(r record) Root {
	labels := maps.Clone(r.Labels)
	maps.DeleteFunc(labels, func(name, _ string) bool { return !strings.HasPrefix(name, "sunaba/") })
	return Root{Key: r.Key, Chain: r.Parent, Labels: labels}
}

// Roots returns all roots, sorted by key.
func (s *roots) Roots() (out []Root) {
	_, folders := s.all()
	for _, f := range folders {
		out = append(out, rootOf(f.record))
	}
	slices.SortFunc(out, func(a, b Root) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// RootUsage returns what has been written to a root, which may be known.
func (s *roots) RootUsage(ctx context.Context, key string, known *space.Known) (space.Use, error) {
	f, err := s.folder(key)
	if err != nil || f.View {
		return space.Use{}, err
	}
	use, err := known.Used(ctx, s.upper(f))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("measure root: %w", errdefs.ErrNotFound) // removed meanwhile
	}
	return use, err
}

// WithRoot calls fn with a directory that shows a root, read-only, during the call.
//
// # Errors
//
// ErrNotFound if the key has no root; else fn's error as it is.
func (s *roots) WithRoot(key string, fn func(dir string) error) error {
	f, err := s.folder(key)
	if err != nil {
		return err
	}
	// Where nothing was written, as in a new container, a single layer shows all without a mount.
	written, err := os.ReadDir(s.upper(f))
	f.View = f.View || f.Parent != "" && err == nil && len(written) == 0
	mounts, err := s.mountsOf(f)
	if err != nil {
		return err
	}
	return s.withMounts(mounts, fn)
}

// ChangeRoot is WithRoot for fn that writes to the root, which no other process may use meanwhile.
// A root with mapped owners cannot be changed so.
func (s *roots) ChangeRoot(key string, fn func(dir string) error) error {
	f, err := s.folder(key)
	if err != nil {
		return err
	}
	if f.Labels[uidmapLabel] != "" {
		return fmt.Errorf("change root %q: its owners are mapped: %w", key, errdefs.ErrFailedPrecondition)
	}
	mounts, err := s.mountsOf(f)
	if err != nil {
		return err
	}
	return s.mounted(mounts, fn)
}

// GlanceRoots returns the roots of a store below root without opening it: another process may have
// it open.
func GlanceRoots(root string) (roots []Root, err error) {
	dir := filepath.Join(root, "layers", "snapshots")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // missing in a store that has never held anything
		return nil, fmt.Errorf("list roots: %w", err)
	}
	for _, e := range entries {
		r, err := readRecord(filepath.Join(dir, e.Name())) // removed meanwhile, or damaged
		if err == nil && r.Key != "" && !strings.HasSuffix(e.Name(), whyRemoved) {
			roots = append(roots, rootOf(r))
		}
	}
	return roots, nil
}
