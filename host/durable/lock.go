package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process, or another open file of this one, holds a lock.
var ErrLocked = errors.New("locked by another process")

// Lock locks an open file for as long as it is open, and does not wait: it is ErrLocked if somebody
// else has it locked. The kernel gives the lock back when the process ends, however it ends.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// WaitLock locks an open file as Lock does, and waits until whoever has it locked is done: it is
// for locks that are held for a moment.
func WaitLock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Locked reports whether another open file holds the lock of f. Several may ask at a time.
func Locked(f *os.File) (bool, error) {
	if err := flock(f, unix.LOCK_SH); errors.Is(err, ErrLocked) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	return false, unix.Flock(int(f.Fd()), unix.LOCK_UN)
}

// Named reports whether an open file still has the name with which it was opened: another may have
// removed it, and made a new one.
func Named(f *os.File) (bool, error) {
	have, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(have, named), err
}

// RemoveLock closes the file of a lock that is at its end. Before that it removes the file, unless
// its name is another's by now, and the folder of locks with its last one.
func RemoveLock(f *os.File) error {
	if err := removeLock(f); err != nil {
		return errors.Join(fmt.Errorf("remove lock: %w", err), f.Close())
	}
	return f.Close()
}

func removeLock(f *os.File) error {
	named, err := Named(f)
	if err != nil {
		return err
	}
	if named {
		if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(filepath.Dir(f.Name())); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
