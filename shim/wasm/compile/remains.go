package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remains returns the folders of compilations and removals that were cut short: all that are there while none is under way.
// Nothing is locked.
func Remains(cacheDir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(cacheDir, tmpPrefix+"*"))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	// Who compiles has its lock for as long as its folder is there. So a folder that is older than a moment at which
	// there is no lock is nobody's.
	if busy, err := locked(cacheDir); err != nil || busy {
		return nil, err
	}
	var dirs []string
	for _, dir := range found {
		if _, err := os.Lstat(dir); err == nil { // else it went meanwhile, with its compilation
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// locked says whether anybody has a lock of the cache.
func locked(cacheDir string) (bool, error) {
	f, err := os.Open(filepath.Join(cacheDir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open lock of module cache: %w", err)
	}
	defer f.Close()
	all := unix.Flock_t{Type: unix.F_WRLCK} // from the beginning to the end
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &all); err != nil {
		return false, fmt.Errorf("read lock of module cache: %w", err)
	}
	return all.Type != unix.F_UNLCK, nil
}
