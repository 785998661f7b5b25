package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Orphans returns the directories of compilations and removals that were killed. It returns none
// while any runs. Nothing is locked.
func Orphans(cacheDir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(cacheDir, tmpPrefix+"*"))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	// A process that compiles holds its lock for as long as its directory exists. So a directory
	// that is older than a moment without any lock is an orphan.
	if busy, err := locked(cacheDir); err != nil || busy {
		return nil, err
	}
	var dirs []string
	for _, dir := range found {
		if _, err := os.Lstat(dir); err == nil { // otherwise its compilation has ended meanwhile
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// locked says whether any process holds a lock of the cache.
func locked(cacheDir string) (bool, error) {
	f, err := os.Open(filepath.Join(cacheDir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open lock of module cache: %w", err)
	}
	defer f.Close()
	all := unix.Flock_t{Type: unix.F_WRLCK} // from the start to the end
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &all); err != nil {
		return false, fmt.Errorf("read lock of module cache: %w", err)
	}
	return all.Type != unix.F_UNLCK, nil
}
