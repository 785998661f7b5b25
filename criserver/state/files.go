package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sunaba-project/sunaba/host/durable"
)

// maxFree is how many empty files are kept.
const maxFree = 16

// change is one of a file: it was emptied or deleted, or it was made, for the record that it has.
type change[R any] struct {
	id   string
	rec  *R     // that was dropped
	sync string // the path to be synced for it
}

// writeFirst writes the first line of a record into an empty file, or into a new one.
func (s *Store[R]) writeFirst(id string, e *entry[R], line []byte) error {
	s.mu.Lock()
	if n := len(s.free); n > 0 {
		e.file, e.named, s.free = s.free[n-1], true, s.free[:n-1]
	}
	s.mu.Unlock()
	if _, err := os.Stat(e.file); err != nil { // none is free, or somebody has deleted it
		if e.file, err = s.newFile(); err != nil {
			return err
		}
		e.named = false
		s.mu.Lock()
		s.changes, s.changed = append(s.changes, change[R]{id: id, sync: s.dir}), s.changed+1
		s.mu.Unlock()
	}
	if err := s.put(e.file, line, durable.Mode{Append: true}); err != nil {
		return errors.Join(err, s.remove(e.file))
	}
	e.size = len(line)
	return nil
}

// newFile makes an empty file.
func (s *Store[R]) newFile() (string, error) {
	f, err := os.CreateTemp(s.dir, recordPrefix+"*"+recordSuffix)
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// clear empties the file of a record, or deletes it, and returns the path to be synced for that.
func (s *Store[R]) clear(e *entry[R]) (string, error) {
	path, clear := s.dir, s.remove
	if e.named && reusable(filepath.Base(e.file)) && s.empties() < maxFree {
		path, clear = e.file, s.empty
	}
	err := clear(e.file)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = s.dir, nil
	}
	return path, err
}

// empties is how many files are free, or will be.
func (s *Store[R]) empties() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := len(s.free)
	for _, c := range s.changes {
		if c.sync != s.dir {
			n++
		}
	}
	return n
}

// Settle makes durable what was dropped until now, also by a server before this one; only then the
// follower is told of it. Callers side by side share a sync. If it syncs the folder, it makes empty
// files before, as far as the disk allows.
func (s *Store[R]) Settle() error {
	s.mu.RLock()
	want := s.changed
	s.mu.RUnlock()
	s.settling.Lock()
	defer s.settling.Unlock()
	if s.settled >= want {
		return nil
	}
	s.mu.RLock()
	now, changed := s.changes, s.changed
	s.mu.RUnlock()
	var paths []string
	for _, c := range now {
		paths = append(paths, c.sync)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	for _, path := range paths {
		for path == s.dir && s.empties()+len(s.fresh) < maxFree {
			file, err := s.newFile()
			if err != nil {
				break // records are made without
			}
			s.fresh = append(s.fresh, file)
		}
		err := s.flush(path)
		if errors.Is(err, fs.ErrNotExist) { // it was deleted meanwhile
			err = s.flush(s.dir)
		}
		if err != nil {
			return fmt.Errorf("sync records: %w", err)
		}
	}
	s.settled = changed
	if slices.Contains(paths, s.dir) {
		s.mu.Lock()
		s.free, s.fresh = append(s.free, s.fresh...), nil
		s.mu.Unlock()
	}
	s.tell(now, func(change[R]) bool { return true })
	return nil
}

// Tell tells the follower of records that were dropped, without a sync: what they belonged to is
// removed for good, and the next server drops those that a power cut brings back. Their ids are not
// used again.
func (s *Store[R]) Tell(of func(*R) bool) {
	s.settling.Lock()
	defer s.settling.Unlock()
	s.mu.RLock()
	now := s.changes
	s.mu.RUnlock()
	s.tell(now, func(c change[R]) bool { return c.rec != nil && of(c.rec) })
}

// tell ends those of the first changes that wait for no sync any more. The files that they have
// emptied are free only now: what a power cut brings back instead of a new record does no harm.
func (s *Store[R]) tell(now []change[R], over func(change[R]) bool) {
	var left []change[R]
	var free []string
	for _, c := range now {
		if !over(c) {
			left = append(left, c)
			continue
		}
		if c.rec != nil {
			s.follow(c.rec, nil)
		}
		if c.sync != s.dir {
			free = append(free, c.sync)
		}
	}
	s.mu.Lock()
	s.changes, s.free = append(left, s.changes[len(now):]...), append(s.free, free...)
	s.mu.Unlock()
}
