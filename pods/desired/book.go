package desired

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// book knows for every file its last good version and its state, and all applied objects. What it
// knows is on disk before it is published.
type book struct {
	options Options
	logger  *slog.Logger
	folders []string
	// recheck asks a folder to read one file again.
	recheck func(path string)
	changed chan struct{}
	shown

	mu    sync.Mutex // held over writes to the disk: readers use now
	files map[string]*file
	// broken are folders that cannot be listed, by path, with the reason.
	broken  map[string]trouble
	owners  map[manifest.Key]*file // of objects of files
	applied map[manifest.Key]Entry
	bytes   int64 // of all loaded files
	dirty   bool  // the snapshot is not up to date
	// first are files that stood in their folder when it was first listed, and of which no verdict
	// was told yet; told are the verdicts that wait to be fetched.
	first map[string]bool
	told  []Verdict
}

// trouble is a message and when it first applied.
type trouble struct {
	message string
	since   time.Time
}

// file is one manifest file.
type file struct {
	path   string
	good   *version // nil before there is one
	status Status
	since  time.Time
	// message is why it is refused, without what stays in use instead.
	message string
	// missing says that the folder was listed and does not have it.
	missing bool
	// full is the hash of the content that is refused because the disk is full, and was told to be.
	full string
	// waits are objects that stand elsewhere, for which it is refused. If there is no other cause,
	// present are all objects of the content that waits: other files may take what the good version
	// has beside them.
	waits, present []manifest.Key
}

// left says whether a file has an object in its good version, but not in the content that waits.
func (f *file) left(key manifest.Key) bool {
	return f.present != nil && !slices.Contains(f.present, key)
}

// version is the content of a file that was accepted.
type version struct {
	hash    string // of the bytes
	size    int64
	taken   time.Time
	folder  uint64 // the inode of the folder in which it was
	entries []Entry
	notes   []string // what is ignored in it
}

// openBook reads the records below o.Store. Versions of files in other folders are forgotten.
func openBook(o Options, folders []string) (*book, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &book{
		options: o, logger: o.Logger, folders: folders, recheck: func(string) {}, changed: make(chan struct{}, 1), first: map[string]bool{},
		files: map[string]*file{}, broken: map[string]trouble{}, owners: map[manifest.Key]*file{}, applied: map[manifest.Key]Entry{},
	}
	for _, dir := range []string{b.manifests(), b.appliedDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := durable.Sweep(dir); err != nil {
			return nil, err
		}
	}
	if err := b.readApplied(); err != nil {
		return nil, err
	}
	if err := b.readVersions(); err != nil {
		return nil, err
	}
	b.dirty = true
	b.publish()
	return b, nil
}

func (b *book) manifests() string  { return filepath.Join(b.options.Store, "manifests") }
func (b *book) appliedDir() string { return filepath.Join(b.options.Store, "applied") }

// readVersions reads the last good versions. Where two have one object, the one that was taken
// later has it, as in the run in which that happened.
func (b *book) readVersions() error {
	records, err := readRecords(b.manifests(), decodeVersion, b.setAside)
	if err != nil {
		return err
	}
	slices.SortFunc(records, func(x, y *file) int {
		return errorsFirst(y.good.taken.Compare(x.good.taken), strings.Compare(x.path, y.path))
	})
	for _, f := range records {
		if !slices.Contains(b.folders, filepath.Dir(f.path)) {
			if err := b.unrecord(f.path); err != nil {
				b.logger.Warn("failed to forget the manifest of a folder that is not configured any more", "file", f.path, "error", err)
			}
			continue
		}
		f.good.entries = slices.DeleteFunc(f.good.entries, func(e Entry) bool {
			_, applied := b.applied[e.Key]
			return applied || b.owners[e.Key] != nil
		})
		b.files[f.path] = f
		b.bytes += f.good.size
		for _, e := range f.good.entries {
			b.owners[e.Key] = f
		}
	}
	return nil
}

// errorsFirst is the first comparison that tells.
func errorsFirst(results ...int) int {
	for _, r := range results {
		if r != 0 {
			return r
		}
	}
	return 0
}

// setAside moves a record that cannot be read out of the way, where it can be looked at.
func (b *book) setAside(path string, cause error) {
	dir := filepath.Join(b.options.Store, "broken")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Rename(path, filepath.Join(dir, filepath.Base(path)))
	}
	b.logger.Error("failed to read a record of desired objects", "path", path, "moved_to", dir, "error", errors.Join(cause, err))
}

// forget drops a file that was removed, and its record.
func (b *book) forget(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[path]
	if f == nil {
		return
	}
	if f.good != nil {
		if err := b.unrecord(path); err != nil {
			b.logger.Error("failed to remove the record of a deleted manifest", "file", path, "error", err)
		}
		b.bytes -= f.good.size
	}
	delete(b.files, path)
	delete(b.first, path)
	freed := b.disown(f, nil)
	b.dirty = true
	b.logger.Info("manifest was deleted", "file", path, "objects", len(freed))
	b.free(freed)
}

// disown takes a file's objects from it, except those that it keeps, and says which they were.
func (b *book) disown(f *file, keep map[manifest.Key]bool) (freed []manifest.Key) {
	if f.good == nil {
		return nil
	}
	for _, e := range f.good.entries {
		if b.owners[e.Key] == f && !keep[e.Key] {
			delete(b.owners, e.Key)
			freed = append(freed, e.Key)
		}
	}
	return freed
}

// free has files read again that were refused because these objects stood elsewhere.
func (b *book) free(keys []manifest.Key) {
	if len(keys) == 0 {
		return
	}
	for path, f := range b.files {
		if slices.ContainsFunc(f.waits, func(k manifest.Key) bool { return slices.Contains(keys, k) }) {
			b.recheck(path)
		}
	}
}

// setMissing notes whether a folder that was listed has a file.
func (b *book) setMissing(path string, missing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.files[path]
	if f == nil || f.missing == missing {
		return
	}
	f.missing, b.dirty = missing, true
	if missing && f.good != nil {
		keys := make([]manifest.Key, 0, len(f.good.entries))
		for _, e := range f.good.entries {
			keys = append(keys, e.Key)
		}
		b.free(keys) // a file with another name may take them over
	}
}

// setBroken notes that a folder cannot be listed, or with an empty message that it can.
func (b *book) setBroken(folder, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if message == b.broken[folder].message {
		return
	}
	b.dirty = true
	if message == "" {
		delete(b.broken, folder)
		b.logger.Info("folder of manifests can be listed again", "folder", folder)
		return
	}
	b.broken[folder] = trouble{message, time.Now()}
	b.logger.Warn("failed to list a folder of manifests; its objects stay as they are", "folder", folder, "error", errors.New(message))
}

// known are the files of a folder that have a state, with the inodes of the folders in which their
// versions were.
func (b *book) known(folder string) (names []string, homes []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for path, f := range b.files {
		if filepath.Dir(path) != folder {
			continue
		}
		names = append(names, filepath.Base(path))
		if f.good != nil && f.good.folder != 0 && !slices.Contains(homes, f.good.folder) {
			homes = append(homes, f.good.folder)
		}
	}
	return names, homes
}

// knows says whether a file has a state.
func (b *book) knows(path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[path] != nil
}

// publish makes the present state visible, if it changed, and has changed called.
func (b *book) publish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publishLocked()
}

func (b *book) publishLocked() {
	if !b.dirty {
		return
	}
	b.dirty = false
	entries := make([]Entry, 0, len(b.owners)+len(b.applied))
	for _, folder := range b.folders {
		var paths []string
		for path := range b.files {
			if filepath.Dir(path) == folder {
				paths = append(paths, path)
			}
		}
		slices.Sort(paths)
		for _, path := range paths {
			f := b.files[path]
			if f.good == nil {
				continue
			}
			for _, e := range f.good.entries {
				if b.owners[e.Key] == f {
					entries = append(entries, e)
				}
			}
		}
	}
	// Texts are sorted elsewhere too: keys would link a sorting routine of their own.
	applied := map[string]Entry{}
	for key, e := range b.applied {
		applied[key.String()] = e
	}
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		entries = append(entries, applied[name])
	}
	b.now.Store(newSnapshot(entries))
	b.signal()
}

// signal has changed called. Signals that come while it runs are one.
func (b *book) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// current is the object of a key as it is now, published or not.
func (b *book) current(key manifest.Key) (Entry, bool) {
	if e, ok := b.applied[key]; ok {
		return e, true
	}
	if f := b.owners[key]; f != nil {
		for _, e := range f.good.entries {
			if e.Key == key {
				return e, true
			}
		}
	}
	return Entry{}, false
}

// unrecord removes a file's last good version from the disk.
func (b *book) unrecord(path string) error {
	if err := os.Remove(filepath.Join(b.manifests(), recordName(path))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := durable.Sync(b.manifests()); err != nil {
		return fmt.Errorf("sync %q: %w", b.manifests(), err)
	}
	return nil
}
