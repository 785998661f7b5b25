package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// record is entry.json.
type record struct {
	Digest        string `json:"digest"`
	StartFunction bool   `json:"startFunction,omitempty"`
	Files         []file `json:"files"`
}

// file is one file of an entry. The checksum finds damage; it is no signature: who can write the
// cache can write both.
type file struct {
	Name string `json:"name"` // relative to the entry
	Size int64  `json:"size"`
	CRC  uint32 `json:"crc32c"`
}

// read returns the entry of digest if it is there and whole.
func read(cacheDir, digest string) (Entry, error) {
	dir := entryDir(cacheDir, digest)
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return Entry{}, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return Entry{}, fmt.Errorf("decode %s: %w", recordName, err)
	}
	if r.Digest != digest || len(r.Files) == 0 {
		return Entry{}, fmt.Errorf("entry is of %q", r.Digest)
	}
	e := Entry{Dir: dir, Digest: digest, StartFunction: r.StartFunction}
	for _, want := range r.Files {
		got, err := measure(dir, want.Name)
		if err != nil {
			return Entry{}, err
		}
		if got != want {
			return Entry{}, fmt.Errorf("file %q of entry is damaged", want.Name)
		}
		e.Size += got.Size
	}
	return e, nil
}

// measure reads one file of an entry.
func measure(dir, name string) (file, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}
	if !info.Mode().IsRegular() {
		return file{}, fmt.Errorf("file %q of entry is not regular", name)
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	// The bare reader and writer keep io.CopyBuffer from making a buffer of its own.
	buffer := make([]byte, min(info.Size()+1, 128<<10))
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, buffer)
	return file{Name: name, Size: n, CRC: sum.Sum32()}, err
}

// seal turns what a child wrote into an entry of ours: only regular files with one name, owned by
// root, readable by all, listed and checksummed, on disk.
func seal(dir, digest string) error {
	r := record{Digest: digest}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return r.add(dir, path)
	})
	if err != nil {
		return err
	}
	marker := filepath.Join(dir, startMarker)
	if err := os.Remove(marker); err == nil {
		r.StartFunction = true
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, recordName)
	if err := os.WriteFile(name, data, 0o644); err != nil {
		return err
	}
	return errors.Join(syncFile(name), syncFile(dir))
}

// add takes over one path of a child's directory.
func (r *record) add(dir, path string) error {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return errors.Join(os.Lchown(path, 0, 0), os.Chmod(path, 0o755))
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || rel == recordName:
		return fmt.Errorf("compiler wrote %q, which is no plain file of an entry", rel)
	case rel == startMarker:
		return nil
	}
	if err := errors.Join(os.Lchown(path, 0, 0), os.Chmod(path, 0o644), syncFile(path)); err != nil {
		return err
	}
	f, err := measure(dir, rel)
	r.Files = append(r.Files, f)
	return err
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
