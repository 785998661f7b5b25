package unpack

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

// boots keeps what containers may have mounted until the next boot of the machine.
type boots struct {
	root   string // of layers and roots
	held   uint64 // folders with ids up to this one are not deleted in this boot, see bootFile
	logger *slog.Logger
}

// asideDir is where damaged layers are kept that containers may have mounted.
func (s *boots) asideDir() string { return filepath.Join(s.root, "aside", bootID()) }

// removeAside deletes damaged layers of boots before this one.
func (s *boots) removeAside() error {
	entries, err := os.ReadDir(filepath.Dir(s.asideDir()))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list damaged layers: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != filepath.Base(s.asideDir()) {
			errs = append(errs, os.RemoveAll(filepath.Join(filepath.Dir(s.asideDir()), e.Name())))
		}
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

// folderID returns the id that a folder's name says.
func folderID(name string) (uint64, bool) {
	id, err := strconv.ParseUint(name, 10, 64)
	return id, err == nil && id > 0 && id < maxID && strconv.FormatUint(id, 10) == name
}

// bootFile holds the boot during which the store was opened last. After a restore in a boot during
// which it may have been open before, the last id of that time follows: containers without a record
// may have these layers mounted.
func (s *boots) bootFile() string { return filepath.Join(s.root, "boot") }

var bootPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// readBoot returns what the boot file says, "" if it cannot be read.
func (s *boots) readBoot() (boot string, held uint64) {
	data, err := regular.Read(s.bootFile(), 128)
	fields := strings.Fields(string(data))
	if err != nil || len(fields) == 0 || len(fields) > 2 || !bootPattern.MatchString(fields[0]) {
		return "", 0
	}
	if len(fields) == 2 {
		if held, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
			return "", 0
		}
	}
	return fields[0], held
}

// mayBeMounted reports whether containers may have layers mounted: unless the store is opened for
// the first time in this boot.
func (s *boots) mayBeMounted() bool {
	boot, _ := s.readBoot()
	return boot == "" || boot == bootID()
}

// noteBoot writes down that the store has been opened in this boot, and finds out which layers are
// to be kept until the next.
func (s *boots) noteBoot() error {
	boot, held := s.readBoot()
	if boot == bootID() {
		s.held = held
		return nil
	}
	err := durable.Replace(s.bootFile(), []byte(bootID()+"\n"), 0o600)
	if err == nil {
		return nil
	}
	// Without the file it counts as opened before, which is safe.
	if rerr := os.Remove(s.bootFile()); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return errors.Join(err, rerr)
	}
	s.logger.Warn("failed to record the boot of the layer store", "error", err)
	return nil
}

// isHeld reports whether containers may have a folder mounted that no record names any more.
func (s *boots) isHeld(dir string) bool {
	id, ok := folderID(filepath.Base(dir))
	return ok && id <= s.held
}

// setAside keeps a directory that may be mounted until the next boot, under a name.
func (s *boots) setAside(dir, name string) error {
	if err := os.MkdirAll(s.asideDir(), 0o700); err != nil {
		return err
	}
	return os.Rename(dir, filepath.Join(s.asideDir(), name))
}
