package unpack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
)

// Cleanup deletes the directories of what has been removed, which may take long.
func (s *records) Cleanup() error {
	s.changing.Lock()
	dirs, err := s.removed()
	s.changing.Unlock()
	errs := []error{err}
	for _, dir := range dirs {
		if !s.isHeld(dir) {
			err = space.Remove(dir)
		} else if _, err = s.setAside(dir, filepath.Base(dir)); errors.Is(err, os.ErrNotExist) {
			err = nil // another call was first
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removed renames the folders in "snapshots" that no record names, durably, and returns all that
// are to be deleted; s.changing is held.
func (s *records) removed() (dirs []string, err error) {
	entries, err := os.ReadDir(s.layersDir())
	if err != nil {
		return nil, fmt.Errorf("find removed layers: %w", err)
	}
	known := make(map[string]bool)
	layers, roots := s.all()
	for _, f := range append(layers, roots...) {
		known[f.name] = true
	}
	var errs []error
	renamed := false
	for _, e := range entries {
		if known[e.Name()] {
			continue
		}
		dir := filepath.Join(s.layersDir(), e.Name())
		if !strings.HasSuffix(dir, whyRemoved) {
			if err := os.Rename(dir, dir+whyRemoved); err != nil {
				errs = append(errs, err)
				continue
			}
			dir += whyRemoved
			renamed = true
		}
		dirs = append(dirs, dir)
	}
	if renamed { // first: a power cut is not to bring half of a layer back
		if err := durable.Sync(s.layersDir()); err != nil {
			return nil, errors.Join(append(errs, err)...)
		}
	}
	return dirs, errors.Join(errs...)
}
