// Package fingerprint tells whether the files of a layer are still those that were unpacked.
package fingerprint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/continuity/sysx"
	"golang.org/x/sys/unix"
)

// Fingerprint says what a layer's directory held when it was unpacked. It finds
// what a disk or a loss of power did to it; it is no proof against people.
type Fingerprint struct {
	sum sum
	// Room and Inodes are what the directory takes on disk.
	Room, Inodes int64
}

// sum is the sum of the digests of entries: those of names, kinds, owners, modes, sizes, attributes
// and content. An entry can be taken from it, and the order is of no matter.
type sum [4]uint64

func (s sum) plus(other sum) sum {
	for i := range s {
		s[i] += other[i]
	}
	return s
}

func (s sum) minus(other sum) sum {
	for i := range s {
		s[i] -= other[i]
	}
	return s
}

// String is the fingerprint in hexadecimal, without Room and Inodes.
func (f Fingerprint) String() string {
	return fmt.Sprintf("%016x%016x%016x%016x", f.sum[0], f.sum[1], f.sum[2], f.sum[3])
}

// Exchange takes the fingerprint of one entry for that of another.
func (f *Fingerprint) Exchange(before, after Fingerprint) {
	f.sum = f.sum.minus(before.sum).plus(after.sum)
	f.Room += after.Room - before.Room
}

// Sums are the sums of the content of files, by inode.
type Sums map[uint64]uint32

// Update adds content to the sum of a file.
func Update(sum uint32, content []byte) uint32 { return crc32.Update(sum, castagnoli, content) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Of reads a directory, except the content of files whose sums are known.
func Of(ctx context.Context, dir string, known Sums) (Fingerprint, error) {
	w := &printer{known: known, counted: map[inode]uint32{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		return w.add(strings.TrimPrefix(path, dir), path)
	})
	if err != nil {
		return Fingerprint{}, fmt.Errorf("read layer: %w", err)
	}
	return Fingerprint{sum: w.sum, Room: w.room, Inodes: int64(len(w.counted))}, nil
}

// OfDirectory reads one directory without what is in it.
func OfDirectory(name, path string) (Fingerprint, error) {
	w := &printer{counted: map[inode]uint32{}}
	err := w.add(name, path)
	return Fingerprint{sum: w.sum, Room: w.room}, err
}

type inode struct{ dev, ino uint64 }

type printer struct {
	known   Sums
	sum     sum
	buf     []byte
	text    []byte // of an entry
	room    int64
	counted map[inode]uint32 // content of files, so that links are read once
}

func (w *printer) add(name, path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	key := inode{uint64(st.Dev), st.Ino}
	content, counted := w.counted[key]
	if !counted {
		w.room += st.Blocks * 512
	}
	var text string
	var size int64
	kind := st.Mode & unix.S_IFMT
	switch kind {
	case unix.S_IFREG:
		size = st.Size
		if !counted {
			var err error
			if content, err = w.content(st.Ino, path); err != nil {
				return err
			}
		}
	case unix.S_IFLNK:
		var err error
		if text, err = os.Readlink(path); err != nil {
			return err
		}
	}
	w.counted[key] = content
	w.text = fmt.Appendf(w.text[:0], "%q %o %d %d %d %d %d %q\n", name, st.Mode, st.Uid, st.Gid, size, rdev(kind, uint64(st.Rdev)), content, text)
	if kind == unix.S_IFREG || kind == unix.S_IFDIR {
		if err := w.attributes(path); err != nil {
			return err
		}
	}
	h := sha256.Sum256(w.text)
	var entry sum
	for i := range entry {
		entry[i] = binary.LittleEndian.Uint64(h[8*i:])
	}
	w.sum = w.sum.plus(entry)
	return nil
}

// rdev is a device's number, where there is one.
func rdev(kind uint32, number uint64) uint64 {
	if kind == unix.S_IFBLK || kind == unix.S_IFCHR {
		return number
	}
	return 0
}

// content is the sum of a file's content.
func (w *printer) content(ino uint64, path string) (uint32, error) {
	if sum, ok := w.known[ino]; ok {
		return sum, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if w.buf == nil {
		w.buf = make([]byte, 128<<10)
	}
	sum := crc32.New(castagnoli)
	_, err = io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, w.buf)
	return sum.Sum32(), err
}

func (w *printer) attributes(path string) error {
	names, err := sysx.LListxattr(path)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	var all []string
	for _, name := range names {
		if strings.HasPrefix(name, "security.selinux") || strings.HasPrefix(name, "system.posix_acl") {
			continue // the node's own, and what the mode says already
		}
		value, err := sysx.LGetxattr(path, name)
		if err != nil {
			return &os.PathError{Op: "getxattr", Path: path, Err: err}
		}
		all = append(all, fmt.Sprintf("%q=%x", name, value))
	}
	// The order is the filesystem's.
	var total uint64
	for _, a := range all {
		total += uint64(crc32.Checksum([]byte(a), castagnoli)) + uint64(len(a))<<32
	}
	w.text = binary.LittleEndian.AppendUint64(w.text, total)
	return nil
}
