package state

import (
	"maps"
	"slices"
	"time"
)

// A record that the disk has refused is written again after firstRetry, and then at intervals that
// double up to lastRetry.
const (
	firstRetry = time.Second
	lastRetry  = 10 * time.Second
)

// Insist is Update (Note, without sync) for a change that has happened, whatever the disk says. If
// the disk refuses it, refused is why: the change holds in memory, and is written and synced once
// the disk takes it. written is closed then, or when the record is removed; it is nil if nothing is
// left to be written.
//
// # Errors
//
// ErrNotFound if there is no such record; else change's own error.
func (s *Store[R]) Insist(id string, sync bool, change func(R) (R, error)) (written <-chan struct{}, refused, err error) {
	_, err = s.change(id, change, func(e *entry[R], r R) error {
		if refused = s.add(id, e, r, sync); refused != nil {
			written = s.remember(id, e)
		}
		return nil
	})
	return written, refused, err
}

// remember has an entry written later, whose lock write the caller holds.
func (s *Store[R]) remember(id string, e *entry[R]) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.unwritten == nil {
		e.unwritten = make(chan struct{})
	}
	s.unwritten[id] = e
	if !s.retrying {
		s.retrying = true
		time.AfterFunc(firstRetry, func() { s.retry(firstRetry) })
	}
	return e.unwritten
}

// wrote notes that nothing of an entry is left to be written. The caller holds its lock write.
func (s *Store[R]) wrote(id string, e *entry[R]) {
	if e.unwritten == nil {
		return
	}
	s.mu.Lock()
	delete(s.unwritten, id)
	s.mu.Unlock()
	close(e.unwritten) // last: who waits for it finds all done
	e.unwritten = nil
}

// retry writes what the disk has refused, up to the first that it refuses again.
func (s *Store[R]) retry(waited time.Duration) {
	s.mu.RLock()
	ids := slices.Collect(maps.Keys(s.unwritten))
	s.mu.RUnlock()
	for _, id := range ids {
		if err := s.rewrite(id); err != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retrying = len(s.unwritten) > 0; s.retrying {
		wait := min(2*waited, lastRetry)
		time.AfterFunc(wait, func() { s.retry(wait) })
	}
}

// rewrite writes a record that the disk has refused.
func (s *Store[R]) rewrite(id string) error {
	e, err := s.entry(id)
	if err != nil {
		return nil // it was removed
	}
	e.write.Lock()
	defer e.write.Unlock()
	if e.unwritten == nil {
		return nil
	}
	if err := s.add(id, e, e.rec, true); err != nil {
		return err
	}
	s.logger.Info("record written that the disk had refused", "record", id)
	return nil
}
