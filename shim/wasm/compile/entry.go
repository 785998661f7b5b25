package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// record is entry.json.
type record struct {
	Digest string `json:"digest"`
	facts
	Files []file `json:"files"`
}

// file is one file of an entry. The checksum finds damage; it is no signature: who can write the
// cache can write both.
type file struct {
	Name  string `json:"name"` // relative to the entry
	Size  int64  `json:"size"`
	CRC   uint32 `json:"crc32c"`
	Stamp stamp  `json:"stamp"`
}

// stamp changes when a file is written, replaced or truncated by a system call. It does not change
// when a disk loses data.
type stamp struct {
	Inode    uint64 `json:"inode"`
	Modified int64  `json:"modified"` // nanoseconds
	Changed  int64  `json:"changed"`
}

// unread is the size from which a file whose stamp matches is not read when its entry is: reading
// tens of MiB would take most of a start. Of these files the machine code is checked while a
// process is started that runs it.
const unread = 1 << 20

// read returns the entry in dir if it exists, is of digest, and is whole.
func read(dir, digest string) (Entry, error) {
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
	e := Entry{Dir: dir, Digest: digest, StartFunction: r.StartFunction, Load: r.Load, Go: r.Go}
	buffer := make([]byte, readSize)
	for _, want := range r.Files {
		if err := verify(dir, want, buffer); err != nil {
			return Entry{}, err
		}
		if want.Name != NamesName { // seldom read
			e.Size += want.Size
		}
	}
	return e, r.Load.check(dir)
}

// readAhead reads what guests will map, so that its page cache is charged to the caller.
func (e Entry) readAhead() error {
	buffer := make([]byte, readSize)
	return filepath.WalkDir(e.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := open(e.Dir, strings.TrimPrefix(path, e.Dir))
		if err != nil {
			return err
		}
		_, _, err = checksum(f, buffer)
		return errors.Join(err, f.Close())
	})
}

// verify compares a file of an entry with its state when it was made.
func verify(dir string, want file, buffer []byte) error {
	f, err := open(dir, want.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	size, mark, err := stampOf(f)
	if err != nil {
		return err
	}
	if size == want.Size && size >= unread && mark == want.Stamp {
		return nil
	}
	n, sum, err := checksum(f, buffer)
	if err == nil && (n != want.Size || sum != want.CRC) {
		err = fmt.Errorf("file %q of entry is damaged", want.Name)
	}
	return err
}

// measure describes one file of an entry.
func measure(dir, name string) (file, error) {
	f, err := open(dir, name)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	_, mark, err := stampOf(f)
	if err != nil {
		return file{}, err
	}
	n, sum, err := checksum(f, make([]byte, readSize))
	return file{Name: name, Size: n, CRC: sum, Stamp: mark}, err
}

func open(dir, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

func stampOf(f *os.File) (size int64, s stamp, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, stamp{}, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, stamp{}, fmt.Errorf("file %q of entry is not regular", f.Name())
	}
	return st.Size, stamp{Inode: st.Ino, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}, nil
}

// readSize is small: every page of a new buffer costs as much as reading several pages into a used
// one.
const readSize = 16 << 10

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// checksum reads a file to its end.
func checksum(f *os.File, buffer []byte) (int64, uint32, error) {
	sum := crc32.New(castagnoli())
	n, err := io.CopyBuffer(sum, struct{ io.Reader }{f}, buffer) // the bare reader uses the buffer
	return n, sum.Sum32(), err
}

// seal turns what a child wrote into an entry: only regular files with one name, owned by root,
// readable by all, listed and checksummed, synced to disk.
func seal(dir, digest string) error {
	found, err := takeFacts(dir)
	if err != nil {
		return fmt.Errorf("take facts: %w", err)
	}
	r := record{Digest: digest, facts: found}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return r.add(dir, path)
	})
	if err != nil {
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

// add adds one path of a child's directory to the record.
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
