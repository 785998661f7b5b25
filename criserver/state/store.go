// Package state keeps what the CRI server must know after a crash, a restart or a reboot: one file
// for each sandbox and each container.
//
// Create writes the record as an intent, before anything of the pod or container exists. Update
// writes its next version under the record's own lock, and returns once that is on disk. Delete is
// idempotent.
//
// A file has a version in each line, as JSON: the newest whole line that can be read counts. So a
// change is one synced write. A file that has grown, or whose end is not known, is replaced.
//
// All outlives the server at once. A power cut, which ends all pods, may take back what is noted,
// until the record's next Update.
//
// Open loads every record. A file that cannot be read as a record (torn by a broken disk, written
// by a newer version) is renamed to NAME.damaged, logged and left for a person to look at; it never
// keeps the server from starting.
package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Store holds the records of one kind. All methods may be called at the same time.
//
// A record is a value: what Get and List return, and what Update hands to its function, shares
// maps, slices and pointers with the store. Replace them, never change them in place.
type Store[R any] struct {
	dir    string
	logger *slog.Logger
	check  func(id string, rec R) error
	follow Follower[R]
	// put, remove and flush (of a folder) are those of the disk.
	put           func(path string, data []byte, m durable.Mode) error
	remove, flush func(path string) error

	mu      sync.RWMutex
	entries map[string]*entry[R]
	dropped []R // not settled yet
	drops   int // since Open

	settling sync.Mutex
	settled  int // how many of the drops are durable; below 0 if those before Open may not be
}

type entry[R any] struct {
	write sync.Mutex // held over a whole Update, Delete; guards the two below
	size  int        // of the file; 0 has the next write replace it
	named bool       // its name is durable

	mu      sync.RWMutex // guards the two below
	rec     R
	deleted bool
}

// Follower is told of every record: of those that Open finds (before is nil), and of every change
// once it stands, so that it learns of the changes of one record in their order. after is nil for
// one that is deleted, once that is durable. It keeps nothing of what it is given from being used
// by others, and does not call the store.
type Follower[R any] func(before, after *R)

// Open reads all records in dir, which it creates if it is missing. Files that are damaged are
// moved aside and logged. The id of a record is its file's name; check, if not nil, may refuse a
// record (a damaged one again). follow may be nil.
func Open[R any](dir string, logger *slog.Logger, check func(id string, rec R) error, follow Follower[R]) (*Store[R], error) {
	if follow == nil {
		follow = func(before, after *R) {}
	}
	if check == nil {
		check = func(string, R) error { return nil }
	}
	err := os.MkdirAll(dir, 0o700)
	for _, above := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} { // whoever made them
		err = cmp.Or(err, durable.Sync(above))
	}
	if err != nil {
		return nil, fmt.Errorf("create state folder %q: %w", dir, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read state folder %q: %w", dir, err)
	}
	s := &Store[R]{dir: dir, logger: logger, check: check, follow: follow, entries: map[string]*entry[R]{}, settled: -1}
	s.put, s.remove, s.flush = durable.Put, os.Remove, durable.Sync
	if err := durable.Sweep(dir); err != nil { // the records that they were for stand beside them
		logger.Warn("failed to remove unfinished records", "error", err)
	}
	for _, n := range names {
		name := n.Name()
		id, isRecord := strings.CutSuffix(name, recordSuffix)
		if !isRecord {
			continue
		}
		v, err := s.load(id)
		switch {
		case errors.Is(err, errUnfinished):
			logger.Warn("record is removed: there is no whole version in it", "file", s.path(id))
			if err := os.Remove(s.path(id)); err != nil {
				logger.Warn("failed to remove unfinished record", "file", name, "error", err)
			}
			continue
		case err != nil:
			s.putAside(name, err)
			continue
		case v.lost != nil:
			logger.Warn("the newest version of a record is damaged, the one before it is used", "file", s.path(id), "cause", v.lost)
		}
		s.entries[id] = &entry[R]{rec: v.rec, size: v.size}
		follow(nil, &v.rec)
	}
	return s, nil
}

// Create notes the first version of a record.
//
// # Errors
//
// ErrAlreadyExists if there is one of this id.
func (s *Store[R]) Create(id string, rec R) error {
	e := &entry[R]{rec: rec}
	e.write.Lock()
	defer e.write.Unlock()
	s.mu.Lock()
	if _, ok := s.entries[id]; ok {
		s.mu.Unlock()
		return fmt.Errorf("record %q: %w", id, errdefs.ErrAlreadyExists)
	}
	s.entries[id] = e
	s.mu.Unlock()
	line, err := encode(rec)
	if err == nil {
		err = s.put(s.path(id), line, durable.Mode{})
	}
	e.size = len(line)
	if err != nil {
		err = fmt.Errorf("write record %q: %w", id, err)
		e.mu.Lock()
		e.deleted = true
		e.mu.Unlock()
		s.forget(id)
		return err
	}
	s.follow(nil, &rec)
	return nil
}

// Update changes a record: change gets the present version and returns the next one. If it returns
// an error, or the write fails, the record stays as it was. Updates of one record never run at the
// same time.
//
// # Errors
//
// ErrNotFound if there is no such record; else change's own error or that of the disk.
func (s *Store[R]) Update(id string, change func(R) (R, error)) (R, error) {
	return s.change(id, change, func(e *entry[R], r R) error { return s.add(e, s.path(id), r, true) })
}

// Note is Update without the sync: a power cut may take the change back. It is for what a restart
// of the machine changes anyway, or what is found out anew.
func (s *Store[R]) Note(id string, change func(R) (R, error)) (R, error) {
	return s.change(id, change, func(e *entry[R], r R) error { return s.add(e, s.path(id), r, false) })
}

// Amend is Update without the disk: the change is durable with the next Update. It is for what may
// be lost in a crash because something else holds it durably, or because it is found out anew.
func (s *Store[R]) Amend(id string, change func(R) (R, error)) (R, error) {
	return s.change(id, change, func(*entry[R], R) error { return nil })
}

func (s *Store[R]) change(id string, change func(R) (R, error), write func(*entry[R], R) error) (R, error) {
	var zero R
	e, err := s.entry(id)
	if err != nil {
		return zero, err
	}
	e.write.Lock()
	defer e.write.Unlock()
	e.mu.RLock()
	old, deleted := e.rec, e.deleted
	e.mu.RUnlock()
	if deleted {
		return zero, fmt.Errorf("record %q: %w", id, errdefs.ErrNotFound)
	}
	next, err := change(old)
	if err != nil {
		return zero, err
	}
	if err := write(e, next); err != nil {
		return zero, fmt.Errorf("write record %q: %w", id, err)
	}
	e.mu.Lock()
	e.rec = next
	e.mu.Unlock()
	s.follow(&old, &next)
	return next, nil
}

// Get returns the present version of a record, or ErrNotFound.
func (s *Store[R]) Get(id string) (R, error) {
	var zero R
	e, err := s.entry(id)
	if err != nil {
		return zero, err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.deleted {
		return zero, fmt.Errorf("record %q: %w", id, errdefs.ErrNotFound)
	}
	return e.rec, nil
}

// Delete removes a record for good. A record that does not exist is no error: if it was dropped, or
// removed by a server that was killed, its removal is on disk when Delete returns.
func (s *Store[R]) Delete(id string) error { return errors.Join(s.Drop(id), s.Settle()) }

// Drop removes a record as Delete does, but a power cut may bring it back until Settle returned.
func (s *Store[R]) Drop(id string) error {
	e, err := s.entry(id)
	if err != nil {
		return nil
	}
	e.write.Lock()
	defer e.write.Unlock()
	if e.deleted { // nobody else sets it while write is held
		return nil
	}
	if err := s.remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record %q: %w", id, err)
	}
	s.mu.Lock() // at once: who does not find the record settles what is counted
	defer s.mu.Unlock()
	e.mu.Lock()
	e.deleted = true
	e.mu.Unlock()
	s.dropped, s.drops = append(s.dropped, e.rec), s.drops+1
	delete(s.entries, id)
	return nil
}

// Settle makes durable what was dropped until now, also by a server before this one; only then the
// follower is told of it. Callers side by side share a sync.
func (s *Store[R]) Settle() error {
	s.mu.RLock()
	want := s.drops
	s.mu.RUnlock()
	s.settling.Lock()
	defer s.settling.Unlock()
	if s.settled >= want {
		return nil
	}
	s.mu.Lock()
	dropped, drops := s.dropped, s.drops
	s.dropped = nil
	s.mu.Unlock()
	if err := s.flush(s.dir); err != nil {
		s.mu.Lock()
		s.dropped = append(dropped, s.dropped...)
		s.mu.Unlock()
		return fmt.Errorf("remove records: %w", err)
	}
	s.settled = drops
	for i := range dropped {
		s.follow(&dropped[i], nil)
	}
	return nil
}

// IDs returns the ids of all records, sorted.
func (s *Store[R]) IDs() []string {
	s.mu.RLock()
	ids := make([]string, 0, len(s.entries))
	for id := range s.entries {
		ids = append(ids, id)
	}
	s.mu.RUnlock()
	sort.Strings(ids)
	return ids
}

// List returns all records in the order of their ids.
func (s *Store[R]) List() []R {
	ids := s.IDs()
	recs := make([]R, 0, len(ids))
	for _, id := range ids {
		if rec, err := s.Get(id); err == nil {
			recs = append(recs, rec)
		}
	}
	return recs
}

// Resolve returns the full id for an id or an unambiguous prefix of one.
//
// # Errors
//
// ErrNotFound if none matches, ErrInvalidArgument if several do.
func (s *Store[R]) Resolve(prefix string) (string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, ok := s.entries[prefix]; ok {
		return prefix, nil
	}
	found := ""
	for id := range s.entries {
		if prefix == "" || !strings.HasPrefix(id, prefix) {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("id %q is the prefix of several: %w", prefix, errdefs.ErrInvalidArgument)
		}
		found = id
	}
	if found == "" {
		return "", fmt.Errorf("id %q: %w", prefix, errdefs.ErrNotFound)
	}
	return found, nil
}

func (s *Store[R]) entry(id string) (*entry[R], error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.entries[id]
	if !ok {
		return nil, fmt.Errorf("record %q: %w", id, errdefs.ErrNotFound)
	}
	return e, nil
}

func (s *Store[R]) forget(id string) {
	s.mu.Lock()
	delete(s.entries, id)
	s.mu.Unlock()
}
