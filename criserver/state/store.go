// Package state keeps what the CRI server must know after a crash, a restart or a reboot: one JSON
// file for each sandbox and each container.
//
// Create writes the record as an intent, before anything of the pod or container exists. Update
// replaces it under the record's own lock, atomically, and returns once the new version is on disk.
// Delete is idempotent.
//
// Open loads every record. A file that cannot be read as a record (torn by a broken disk, written
// by a newer version) is renamed to NAME.damaged, logged and left for a person to look at; it never
// keeps the server from starting.
package state

import (
	"encoding/json"
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
	"github.com/sunaba-project/sunaba/host/regular"
)

const (
	recordSuffix  = ".json"
	damagedSuffix = ".damaged"
)

// Version is the version of the record layout this build writes. A record of a newer version is not
// understood and is treated as damaged.
const Version = 1

// Store holds the records of one kind. All methods may be called at the same time.
//
// A record is a value: what Get and List return, and what Update hands to its function, shares
// maps, slices and pointers with the store. Replace them, never change them in place.
type Store[R any] struct {
	dir    string
	logger *slog.Logger
	follow Follower[R]

	mu      sync.RWMutex
	entries map[string]*entry[R]
}

type entry[R any] struct {
	write sync.Mutex // held over a whole Update, Delete

	mu      sync.RWMutex // guards the two below
	rec     R
	deleted bool
}

// Follower is told of every record: of those that Open finds (before is nil), and of every change
// once it stands, under the lock of that record, so that it learns of the changes of one record in
// their order. after is nil for one that is deleted. It keeps nothing of what it is given from
// being used by others, and does not call the store.
type Follower[R any] func(before, after *R)

// envelope is what a file holds.
type envelope struct {
	Version int             `json:"version"`
	Record  json.RawMessage `json:"record"`
}

// Open reads all records in dir, which it creates if it is missing. Files that are damaged are
// moved aside and logged. The id of a record is its file's name; check, if not nil, may refuse a
// record (a damaged one again). follow may be nil.
func Open[R any](dir string, logger *slog.Logger, check func(id string, rec R) error, follow Follower[R]) (*Store[R], error) {
	if follow == nil {
		follow = func(before, after *R) {}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create state folder %q: %w", dir, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read state folder %q: %w", dir, err)
	}
	s := &Store[R]{dir: dir, logger: logger, follow: follow, entries: map[string]*entry[R]{}}
	for _, n := range names {
		name := n.Name()
		switch {
		case durable.Unfinished(name):
			// A write that was cut short; the record it was for stands beside it.
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				logger.Warn("failed to remove unfinished record", "file", name, "error", err)
			}
		case strings.HasSuffix(name, recordSuffix):
			id := strings.TrimSuffix(name, recordSuffix)
			rec, err := s.load(id)
			if err == nil && check != nil {
				err = check(id, rec)
			}
			if err != nil {
				s.putAside(name, err)
				continue
			}
			s.entries[id] = &entry[R]{rec: rec}
			follow(nil, &rec)
		}
	}
	return s, nil
}

// maxRecord bounds a record's file, in bytes: a request has 16 MiB at most, and JSON writes a byte
// of it in up to six.
const maxRecord = 256 << 20

func (s *Store[R]) load(id string) (R, error) {
	var rec R
	data, err := regular.Read(s.path(id), maxRecord)
	if err != nil {
		return rec, fmt.Errorf("read record %q: %w", id, err)
	}
	var env envelope
	if err := json.Unmarshal(data, &env); err != nil {
		return rec, fmt.Errorf("parse record %q: %w", id, err)
	}
	if env.Version < 1 || env.Version > Version {
		return rec, fmt.Errorf("parse record %q: version %d is not known here (newest known: %d)", id, env.Version, Version)
	}
	if err := json.Unmarshal(env.Record, &rec); err != nil {
		return rec, fmt.Errorf("parse record %q: %w", id, err)
	}
	return rec, nil
}

// putAside renames a damaged file so that neither this nor the next start meets it again.
func (s *Store[R]) putAside(name string, cause error) {
	from, to := filepath.Join(s.dir, name), filepath.Join(s.dir, name+damagedSuffix)
	if err := os.Rename(from, to); err != nil {
		s.logger.Error("failed to put damaged record aside", "file", from, "cause", cause, "error", err)
		return
	}
	s.logger.Error("damaged record put aside", "file", to, "cause", cause)
}

func (s *Store[R]) path(id string) string { return filepath.Join(s.dir, id+recordSuffix) }

// Create writes the first version of a record.
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
	if err := s.write(id, rec); err != nil {
		e.mu.Lock()
		e.deleted = true
		e.mu.Unlock()
		os.Remove(s.path(id)) // the rename may have succeeded and only the sync of the folder not
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
	return s.change(id, change, s.write)
}

// Amend is Update without the disk: the change is durable with the next Update. It is for what may
// be lost in a crash because something else holds it durably, or because it is found out anew.
func (s *Store[R]) Amend(id string, change func(R) (R, error)) (R, error) {
	return s.change(id, change, func(string, R) error { return nil })
}

func (s *Store[R]) change(id string, change func(R) (R, error), write func(string, R) error) (R, error) {
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
	if err := write(id, next); err != nil {
		return zero, err
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

// Delete removes a record for good. A record that does not exist is no error.
func (s *Store[R]) Delete(id string) error {
	e, err := s.entry(id)
	if err != nil {
		return nil
	}
	e.write.Lock()
	defer e.write.Unlock()
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record %q: %w", id, err)
	}
	if err := durable.Sync(s.dir); err != nil {
		return fmt.Errorf("remove record %q: %w", id, err)
	}
	e.mu.Lock()
	last, again := e.rec, e.deleted
	e.deleted = true
	e.mu.Unlock()
	s.forget(id)
	if !again {
		s.follow(&last, nil)
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

func (s *Store[R]) write(id string, rec R) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("write record %q: %w", id, err)
	}
	data, err := json.Marshal(envelope{Version: Version, Record: raw})
	if err != nil {
		return fmt.Errorf("write record %q: %w", id, err)
	}
	if err := durable.Write(s.path(id), data, 0o600); err != nil {
		return fmt.Errorf("write record %q: %w", id, err)
	}
	return nil
}
