package unpack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"

	"github.com/sunaba-project/sunaba/host/durable"
)

// folder is the folder of a layer: its name is the layer's id in metadata.db.
type folder struct {
	id uint64
	record
}

func (f folder) name() string { return strconv.FormatUint(f.id, 10) }

// restore makes metadata.db anew from the records in the folders of layers. Every other folder is
// put aside until the next boot: containers may have it mounted. Layers keep their ids, and new ids
// are greater than all that there were, so that no folder is taken for another. Until metadata.db
// is in its place, restore can be stopped and run again at any point.
func (s *records) restore(ctx context.Context) error {
	entries, err := os.ReadDir(s.layersDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	last, err := s.lastID(entries)
	if err != nil || len(entries) == 0 && last == 0 {
		return err // nil if the store is new
	}
	layers, unusable := s.findLayers(entries)
	if s.mayBeMounted() {
		if err := durable.Replace(s.bootFile(), fmt.Appendf(nil, "%s %d\n", bootID(), last), 0o600); err != nil {
			return fmt.Errorf("restore layers: %w", err)
		}
	}
	aside, count, err := s.putOthersAside(entries, layers)
	if err != nil {
		return err
	}
	if err := s.rebuildRecords(s.quiet(ctx), layers, last); err != nil {
		return fmt.Errorf("restore layers: %w", err)
	}
	s.restored = len(layers) > 0
	counts := []any{"restored", len(layers), "unusable", unusable, "put_aside", count, "folder", aside}
	if s.restored {
		s.logger.Warn("records of layers are lost: layers were restored from their folders", counts...)
	} else {
		s.logger.Error("records of layers are lost, and no layer could be restored: pull images again", counts...)
	}
	return nil
}

// findLayers returns the folders that are whole layers, each after its parent, and counts the
// layers that cannot be used.
func (s *records) findLayers(entries []os.DirEntry) (layers []folder, unusable int) {
	found := make(map[digest.Digest]folder)
	for _, e := range entries {
		id, ok := folderID(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		dir := filepath.Join(s.layersDir(), e.Name())
		r, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !isDir(filepath.Join(dir, "fs")) {
			err = errors.New("its files are missing")
		}
		if err != nil {
			unusable++
			s.logger.Warn("failed to restore layer, it is put aside", "folder", dir, "error", err)
			continue
		}
		if found[r.Chain].id < id { // the lesser was removed, and its folder not deleted yet
			found[r.Chain] = folder{id: id, record: r}
		}
	}
	todo := slices.SortedFunc(maps.Values(found), func(a, b folder) int { return cmp.Compare(a.id, b.id) })
	placed := map[digest.Digest]bool{"": true}
	for some := true; some; { // once in most cases: a parent is older
		some = false
		todo = slices.DeleteFunc(todo, func(f folder) bool {
			if !placed[f.Parent] {
				return false
			}
			placed[f.Chain], some = true, true
			layers = append(layers, f)
			return true
		})
	}
	for _, f := range todo {
		s.logger.Warn("layer cannot be restored without the one below it: it is put aside", "layer", f.Chain, "missing", f.Parent)
	}
	return layers, unusable + len(todo)
}

// lastID returns the greatest id that a folder has, also of those that were put aside after an
// earlier restore of this boot.
func (s *records) lastID(entries []os.DirEntry) (last uint64, err error) {
	names, err := filepath.Glob(filepath.Join(s.asideDir(), "all-*", "*"))
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if boot, held := s.readBoot(); boot == bootID() {
		last = held
	}
	for _, name := range names {
		if id, ok := folderID(filepath.Base(name)); ok {
			last = max(last, id)
		}
	}
	return last, nil
}

// putOthersAside moves folders that are not among layers to where damaged ones are kept until the
// next boot, and counts them.
func (s *records) putOthersAside(entries []os.DirEntry, layers []folder) (to string, count int, err error) {
	keep := make(map[string]bool)
	for _, l := range layers {
		keep[l.name()] = true
	}
	to = filepath.Join(s.asideDir(), fmt.Sprintf("all-%d", time.Now().UnixNano()))
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", 0, fmt.Errorf("put folders of layers aside: %w", err)
	}
	for _, e := range entries {
		if keep[e.Name()] {
			continue
		}
		if err := os.Rename(filepath.Join(s.layersDir(), e.Name()), filepath.Join(to, e.Name())); err != nil {
			return "", 0, fmt.Errorf("put folder of a layer aside: %w", err)
		}
		count++
	}
	if count == 0 {
		return "", 0, os.Remove(to)
	}
	return to, count, durable.Sync(s.layersDir())
}

// rebuildRecords makes metadata.db say what layers are there, and that last was the last id.
func (s *records) rebuildRecords(ctx context.Context, layers []folder, last uint64) error {
	file := s.recordsFile() + ".new"
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, l := range layers {
		if err := setLastID(file, l.id-1); err != nil {
			return err
		}
		if err := enterInto(ctx, file, l); err != nil {
			return fmt.Errorf("layer %s: %w", l.Chain, err)
		}
	}
	if err := setLastID(file, last); err != nil {
		return err
	}
	if err := durable.Sync(file); err != nil { // bolt has not
		return err
	}
	if err := os.Rename(file, s.recordsFile()); err != nil {
		return err
	}
	return durable.Sync(s.root)
}

// setLastID makes storage, which numbers snapshots itself, continue after an id.
func setLastID(file string, last uint64) error {
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, NoStatistics: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("v1"))
		if err != nil {
			return err
		}
		if _, err := b.CreateBucketIfNotExists([]byte("parents")); err != nil {
			return err
		}
		if b, err = b.CreateBucketIfNotExists([]byte("snapshots")); err != nil {
			return err
		}
		return b.SetSequence(last)
	})
	return errors.Join(err, db.Close())
}

// enterInto records a layer in a file, which is to give it the id that it has.
func enterInto(ctx context.Context, file string, l folder) error {
	meta, err := storage.NewMetaStore(file, func(o *bolt.Options) error {
		o.NoSync, o.Timeout = true, time.Second
		return nil
	})
	if err != nil {
		return err
	}
	err = meta.WithTransaction(ctx, true, func(ctx context.Context) error {
		id, err := recordLayer(ctx, l.record)
		if err == nil && id != l.name() {
			err = fmt.Errorf("it has id %d and would be recorded with %s", l.id, id)
		}
		return err
	})
	return errors.Join(err, meta.Close())
}

// recordLayer records a layer in the transaction of ctx, and returns its id.
func recordLayer(ctx context.Context, r record) (id string, err error) {
	key := workKey()
	if _, err := storage.CreateSnapshot(ctx, snapshots.KindActive, key, r.Parent.String()); err != nil {
		return "", err
	}
	return storage.CommitActive(ctx, key, r.Chain.String(), snapshots.Usage{Size: r.Bytes, Inodes: r.Inodes},
		snapshots.WithParent(r.Parent.String()), snapshots.WithLabels(r.Labels))
}

// Restored reports whether layers were restored without metadata.db when the store was opened.
func (s *records) Restored() bool { return s.restored }
