package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// IDs returns the ids of all records, sorted.
func (s *Store[R]) IDs() []string {
	s.mu.RLock()
	ids := slices.Collect(maps.Keys(s.entries))
	s.mu.RUnlock()
	slices.Sort(ids)
	return ids
}

// List returns all records in the order of their ids.
func (s *Store[R]) List() []R { return s.Select(func(*R) bool { return true }) }

// Select returns the records that keep says true for, in the order of their ids. keep does not call
// the store.
func (s *Store[R]) Select(keep func(*R) bool) []R {
	type place struct {
		id string
		*entry[R]
	}
	var order []place
	s.mu.RLock()
	for id, e := range s.entries {
		e.mu.RLock()
		if !e.deleted && keep(&e.rec) {
			order = append(order, place{id, e})
		}
		e.mu.RUnlock()
	}
	s.mu.RUnlock()
	slices.SortFunc(order, func(a, b place) int { return strings.Compare(a.id, b.id) })
	recs := make([]R, 0, len(order)) // a record is large: it is copied once
	for _, e := range order {
		e.mu.RLock()
		if !e.deleted && keep(&e.rec) { // it may have changed
			recs = append(recs, e.rec)
		}
		e.mu.RUnlock()
	}
	return recs
}

// Made is Resolve with Get, of a record that is not still being made.
func Made[R any](s *Store[R], what, id string, phase func(R) Phase) (rec R, err error) {
	full, err := s.Resolve(id)
	if err == nil {
		rec, err = s.Get(full)
	}
	if err == nil && phase(rec) == Creating {
		err = fmt.Errorf("id %q: %w", id, errdefs.ErrNotFound)
	}
	if err != nil {
		return *new(R), fmt.Errorf("find %s: %w", what, err)
	}
	return rec, nil
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
