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
// A file's name is a number, not the id of its record, which each line has. Empty files are made
// together, by one sync of the folder, and a removal empties the file: so the first version of a
// record is one synced write, and its removal another. A file gets its next record once the removal
// of the one before is durable, or need not be (Tell).
//
// All outlives the server at once. A power cut, which ends all pods, may take back what is noted,
// until the record's next Update. It may take back what Open finds too, until Sync: the server
// before may have been killed between a write and its sync.
//
// Open loads every record. A file that cannot be read as a record (torn by a broken disk) is
// renamed to NAME.damaged, logged and left for a person to look at; it never keeps the server from
// starting. A record of a newer format does, with a text: neither is its content known here, nor
// does an older line of its file hold any more.
package state

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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
	// put, empty, remove and flush (of a file or folder) are those of the disk.
	put                  func(path string, data []byte, m durable.Mode) error
	empty, remove, flush func(path string) error

	mu      sync.RWMutex
	entries map[string]*entry[R]
	changes []change[R] // not settled yet, or not told
	changed int         // how often, since Open
	free    []string    // empty files, whose names are durable

	unwritten map[string]*entry[R] // that the disk has refused
	retrying  bool                 // a timer has them written

	settling sync.Mutex
	settled  int      // how many of the changes are durable
	fresh    []string // empty files, whose names are not durable
}

type entry[R any] struct {
	write     sync.Mutex    // held over a whole Update, Delete; guards the four below
	file      string        // its path
	size      int           // of the file; 0 has the next write replace it
	named     bool          // its name is durable
	unwritten chan struct{} // closed once the disk has what it refused; nil = it has all

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
// moved aside and logged. check, if not nil, may refuse a record (a damaged one again). follow may
// be nil.
//
// # Errors
//
// ErrFailedPrecondition if a record is of a newer format: nothing is changed then.
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
	s := &Store[R]{dir: dir, logger: logger, check: check, follow: follow, entries: map[string]*entry[R]{}, unwritten: map[string]*entry[R]{}}
	s.changes, s.changed = []change[R]{{sync: dir}}, 1 // those of a server before
	s.put, s.remove, s.flush = durable.Put, os.Remove, durable.Sync
	s.empty = func(path string) error { return os.Truncate(path, 0) }
	var found []version[R]
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), recordSuffix) {
			continue
		}
		v := s.load(n.Name())
		if errdefs.IsFailedPrecondition(v.err) {
			return nil, v.err
		}
		found = append(found, v)
	}
	if err := durable.Sweep(dir); err != nil { // the records that they were for stand beside them
		logger.Warn("failed to remove unfinished records", "error", err)
	}
	for _, v := range found {
		s.take(v)
	}
	return s, nil
}

// take keeps what was read of a record.
func (s *Store[R]) take(v version[R]) {
	file := filepath.Join(s.dir, v.file)
	if other := s.entries[v.id]; v.err == nil && other != nil {
		v.err = fmt.Errorf("record %q is in %q too", v.id, other.file)
	}
	switch {
	case errors.Is(v.err, errFree), errors.Is(v.err, errUnfinished):
		if errors.Is(v.err, errUnfinished) {
			s.logger.Warn("record is removed: there is no whole version in it", "file", file)
		} // else what was in it may not be removed for good before it is deleted
		if err := os.Remove(file); err != nil {
			s.logger.Warn("failed to remove unfinished record", "file", file, "error", err)
		}
		return
	case v.err != nil:
		s.putAside(v.file, v.err)
		return
	case v.lost != nil:
		s.logger.Warn("the newest version of a record is damaged, the one before it is used", "file", file, "cause", v.lost)
	}
	s.entries[v.id] = &entry[R]{rec: v.rec, file: file, size: v.size}
	s.follow(nil, &v.rec)
}

// Create notes the first version of a record. If its id is that of one that was dropped, the drop
// is settled before.
//
// # Errors
//
// ErrAlreadyExists if there is one of this id.
func (s *Store[R]) Create(id string, rec R) error {
	e := &entry[R]{rec: rec}
	e.write.Lock()
	defer e.write.Unlock()
	s.mu.Lock()
	_, taken := s.entries[id]
	again := slices.ContainsFunc(s.changes, func(c change[R]) bool { return c.rec != nil && c.id == id })
	if !taken {
		s.entries[id] = e
	}
	s.mu.Unlock()
	if taken {
		return fmt.Errorf("record %q: %w", id, errdefs.ErrAlreadyExists)
	}
	var err error
	if again { // the follower learns of the end first
		err = s.Settle()
	}
	line, eerr := encode(id, rec)
	if err = cmp.Or(err, eerr); err == nil {
		err = s.writeFirst(id, e, line)
	}
	if err != nil {
		e.mu.Lock()
		e.deleted = true
		e.mu.Unlock()
		s.forget(id)
		return fmt.Errorf("write record %q: %w", id, err)
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
	return s.change(id, change, func(e *entry[R], r R) error { return s.add(id, e, r, true) })
}

// Note is Update without the sync: a power cut may take the change back. It is for what a restart
// of the machine changes anyway, or what is found out anew.
func (s *Store[R]) Note(id string, change func(R) (R, error)) (R, error) {
	return s.change(id, change, func(e *entry[R], r R) error { return s.add(id, e, r, false) })
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

// Sync makes the present version of a record durable as Open has found it: a power cut may take it
// back until then.
func (s *Store[R]) Sync(id string) error {
	e, err := s.entry(id)
	if err != nil {
		return err
	}
	e.write.Lock()
	defer e.write.Unlock()
	if err := s.Settle(); err != nil { // the first one after Open syncs all names
		return err
	}
	if err := s.flush(e.file); err != nil {
		return fmt.Errorf("sync record %q: %w", id, err)
	}
	return nil
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
	changed, err := s.clear(e)
	if err != nil {
		return fmt.Errorf("remove record %q: %w", id, err)
	}
	s.wrote(id, e)
	s.mu.Lock() // at once: who does not find the record settles what is counted
	defer s.mu.Unlock()
	e.mu.Lock()
	e.deleted = true
	e.mu.Unlock()
	s.changes, s.changed = append(s.changes, change[R]{id, &e.rec, changed}), s.changed+1
	delete(s.entries, id)
	return nil
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
