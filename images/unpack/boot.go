package unpack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
)

// boots keeps what containers may have mounted until the next boot of the machine.
type boots struct {
	root   string // of the store
	first  bool   // opened for the first time in this boot: no container has anything mounted
	last   uint64 // greatest id of a folder
	held   uint64 // folders with ids up to this one are not deleted in this boot, see dropLost
	logger *slog.Logger
}

// What follows the name of a folder that counts no more.
const (
	whyDamaged = ".damaged"
	whyRemoved = ".removed"
	whyLost    = ".lost-" // the greatest id of that time follows
)

// asideDir is where folders are kept that containers may have mounted. It is there from the first
// time on that the store is opened in this boot.
func (s *boots) asideDir() string { return filepath.Join(s.root, "aside", bootID()) }

// openAside finds out what is kept for this boot, and deletes what was for others.
func (s *boots) openAside() error {
	dir := filepath.Dir(s.asideDir())
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list damaged layers: %w", err)
	}
	s.first = len(entries) > 0
	var errs []error
	for _, e := range entries {
		if e.Name() == bootID() {
			s.first = false
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	// On a full disk there is no folder of any boot then, and the next time is not the first.
	if err := os.MkdirAll(s.asideDir(), 0o700); err != nil && !durable.Refused(err) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// bootID names this boot of the machine.
func bootID() string {
	id, err := boot.ID()
	if err != nil {
		return "unknown"
	}
	return id
}

// maxID bounds the names of folders that are taken for ids. No node comes near it.
const maxID = math.MaxInt64

// folderID returns the id that a folder's name says, also one with why it was set aside: 0 if none.
func folderID(name string) (uint64, bool) {
	name, _, _ = strings.Cut(name, ".")
	id, err := strconv.ParseUint(name, 10, 64)
	if err != nil || id == 0 || id >= maxID || strconv.FormatUint(id, 10) != name {
		return 0, false
	}
	return id, true
}

// countIDs finds the greatest id of the folders that there are, and of those that were set aside in
// this boot, so that no folder is taken for another: and which of them are held.
func (s *boots) countIDs(entries []os.DirEntry) {
	aside, _ := os.ReadDir(s.asideDir()) // missing on a full disk
	for _, e := range append(aside, entries...) {
		id, _ := folderID(e.Name())
		s.last = max(s.last, id)
		if _, last, ok := strings.Cut(e.Name(), whyLost); ok {
			id, _ := folderID(last)
			s.held = max(s.held, id)
		}
	}
}

// isHeld reports whether a container may have a folder mounted whose record was lost.
func (s *boots) isHeld(dir string) bool {
	id, ok := folderID(filepath.Base(dir))
	return ok && id <= s.held
}

// dropLost removes a folder whose record is lost. It may be the root of a container that runs: then
// the layers that there are stay as well.
func (s *boots) dropLost(dir string) error {
	if s.first {
		return space.Remove(dir)
	}
	s.held = s.last
	_, err := s.setAside(dir, fmt.Sprint(filepath.Base(dir), whyLost, s.last))
	return err
}

// setAside keeps a directory that may be mounted until the next boot, under a name to which it
// adds.
func (s *boots) setAside(dir, name string) (aside string, err error) {
	if err := os.MkdirAll(s.asideDir(), 0o700); err != nil {
		return "", err
	}
	aside = filepath.Join(s.asideDir(), name+"."+rand.Text())
	return aside, os.Rename(dir, aside)
}
