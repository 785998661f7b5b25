package unpack

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
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/continuity/sysx"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// Labels on committed layers.
const (
	printLabel   = "sunaba/print" // "sunaba/fingerprint" was another sum
	damagedLabel = "sunaba/damaged"
)

// Fingerprint says what a layer's directory held when it was unpacked. It finds
// what a disk or a loss of power did to it; it is no proof against people.
type Fingerprint struct {
	sum sum
	// Room and Inodes are what the directory takes on disk.
	Room, Inodes int64
}

// sum is the sum of the digests of entries: those of names, kinds, owners, modes,
// sizes, attributes and content. An entry can be taken from it, and the order is
// of no matter.
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

func (f Fingerprint) text() string {
	return fmt.Sprintf("%016x%016x%016x%016x", f.sum[0], f.sum[1], f.sum[2], f.sum[3])
}

func (f Fingerprint) labels() map[string]string {
	return map[string]string{printLabel: f.text()}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fingerprint reads a directory, but for the content of files whose sums are known.
func fingerprint(ctx context.Context, dir string, known contents) (Fingerprint, error) {
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

// fingerprintOf reads one directory without what is in it.
func fingerprintOf(name, path string) (Fingerprint, error) {
	w := &printer{counted: map[inode]uint32{}}
	err := w.add(name, path)
	return Fingerprint{sum: w.sum, Room: w.room}, err
}

type inode struct{ dev, ino uint64 }

type printer struct {
	known   contents
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

// isOverlayAttribute reports whether an extended attribute is overlayfs's own.
func isOverlayAttribute(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
}

// Check reads an unpacked layer and compares it with what was unpacked.
//
// # Errors
//
// ErrNotFound for a layer that is not known; ErrDataLoss for one that is
// damaged.
func (s *Store) Check(ctx context.Context, chain digest.Digest) error {
	info, err := s.snapshots.Stat(s.quiet(ctx), chain.String())
	if err != nil {
		return fmt.Errorf("check layer %s: %w", chain, err)
	}
	if info.Labels[damagedLabel] != "" {
		return fmt.Errorf("layer %s was found damaged: %w", chain, errdefs.ErrDataLoss)
	}
	got, err := fingerprint(ctx, info.Labels[upperLabel], nil)
	var errno syscall.Errno
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrNotExist), errors.As(err, &errno) && (errno == unix.EIO || errno == unix.EUCLEAN || errno == unix.ENODATA):
		return fmt.Errorf("layer %s is damaged: %w: %w", chain, err, errdefs.ErrDataLoss)
	case err != nil:
		return fmt.Errorf("check layer %s: %w", chain, err)
	}
	if want := info.Labels[printLabel]; want != "" && want != got.text() {
		return fmt.Errorf("layer %s is damaged: its files are not those that were unpacked: %w", chain, errdefs.ErrDataLoss)
	}
	return nil
}

// MarkDamaged makes a layer count as not there, so that the next Stage and
// Commit of its chain put another in its place. It stays for the containers that
// have it.
func (s *Store) MarkDamaged(ctx context.Context, chain digest.Digest) error {
	return s.setLabels(s.quiet(ctx), chain, map[string]string{damagedLabel: strconv.FormatBool(true)})
}

// setLabels changes a layer's labels and takes some away.
func (s *Store) setLabels(ctx context.Context, chain digest.Digest, labels map[string]string, without ...string) error {
	info := snapshots.Info{Name: chain.String(), Labels: labels}
	var fields []string
	for name := range labels {
		fields = append(fields, "labels."+name)
	}
	for _, name := range without {
		fields = append(fields, "labels."+name) // absent: removed
	}
	if _, err := s.snapshots.Update(ctx, info, fields...); err != nil {
		return fmt.Errorf("mark layer %s: %w", chain, err)
	}
	s.keepRecords(ctx)
	return nil
}

// Chain returns the chain ids of which a chain consists, the topmost first.
//
// # Errors
//
// ErrNotFound if the chain is not unpacked.
func (s *Store) Chain(ctx context.Context, top digest.Digest) ([]digest.Digest, error) {
	var out []digest.Digest
	for c := top; c != ""; {
		info, err := s.snapshots.Stat(s.quiet(ctx), c.String())
		if err != nil {
			return nil, fmt.Errorf("find layer %s: %w", c, err)
		}
		out = append(out, c)
		c = digest.Digest(info.Parent)
	}
	return out, nil
}

// Whole reports whether a chain and all of which it consists are unpacked and
// not known to be damaged.
func (s *Store) Whole(ctx context.Context, top digest.Digest) bool {
	chains, err := s.Chain(ctx, top)
	if err != nil {
		return false
	}
	for _, c := range chains {
		if !s.Has(ctx, c) {
			return false
		}
	}
	return true
}
