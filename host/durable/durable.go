// Package durable replaces small files as a whole, and says whether a disk is full.
package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// File is a file that is to replace another one. Until Commit it has another name, beside it.
type File struct {
	*os.File
	path string
}

// unfinished follows a dot and a file's name in the name of a File.
const unfinished = ".tmp-"

// Create makes a File that is to replace the file at path, whose folder must exist. Its mode is
// 0600.
func Create(path string) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+unfinished+"*")
	if err != nil {
		return nil, err
	}
	return &File{f, path}, nil
}

// Commit replaces the file at path, durably: the content is synced, then the name, then the folder.
// After an error the file at path is as it was, and the File is deleted; only if the folder cannot
// be synced, the file is replaced and may be as it was after a power cut.
func (f *File) Commit() error {
	if err := f.commit(true); err != nil {
		return err
	}
	return Sync(filepath.Dir(f.path))
}

// Discard deletes a File that is not committed.
func (f *File) Discard() error { return errors.Join(f.Close(), os.Remove(f.Name())) }

func (f *File) commit(sync bool) (err error) {
	if sync {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Discard())
	}
	if err := f.Close(); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Write replaces the file at path, durably before it returns: at any moment, also after a power
// cut, it has either the old content or the new one. The folder must exist. Its errors name the
// path.
func Write(path string, data []byte, mode os.FileMode) error {
	err := replace(path, data, mode, true)
	if err == nil {
		err = Sync(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}

// Replace is Write without durability: a power cut may leave the old content, the new one or none.
func Replace(path string, data []byte, mode os.FileMode) error {
	if err := replace(path, data, mode, false); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}

func replace(path string, data []byte, mode os.FileMode, sync bool) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err != nil {
		return errors.Join(err, f.Discard())
	}
	return f.commit(sync)
}

// Sync makes the content of a file durable, or the names in a folder.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, unix.EINVAL) {
		err = nil // a filesystem that cannot sync folders
	}
	return errors.Join(err, f.Close())
}

// Unfinished says whether a name is that of a File that was never committed, as a process leaves it
// that is killed.
func Unfinished(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, unfinished)
}

// Sweep deletes the Files in a folder that were never committed, of those that were to replace the
// named files, or without names of all. Nobody may write these files meanwhile. A missing folder is
// no error.
func Sweep(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var left []string
	for _, e := range entries {
		name, _, found := strings.Cut(e.Name(), unfinished)
		name, dotted := strings.CutPrefix(name, ".")
		if !found || !dotted || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		left = append(left, e.Name())
	}
	return Remove(dir, left...)
}

// Remove deletes files of a folder, or with "" by their paths. One that is missing is no error.
func Remove(dir string, names ...string) error {
	var errs []error
	for _, name := range names {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Full says whether an error is that of a full disk or a used-up quota (ENOSPC, EDQUOT of
// write(2)).
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// ReadOnly says whether an error is that of a file system that cannot be written, perhaps after an
// error of its disk (EROFS of open(2)).
func ReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }

// Refused says whether an error is that of a disk that takes nothing: it is full or read-only.
func Refused(err error) bool { return Full(err) || ReadOnly(err) }
