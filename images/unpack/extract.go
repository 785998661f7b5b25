package unpack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	// maxEntries bounds the files of a layer.
	maxEntries = 4 << 20
	// largeFile is from which size on it is looked first whether a file fits.
	largeFile = 16 << 20
	// entryCost is what an entry takes at least on disk: an inode and a name.
	entryCost = 512
)

// extraction is the unpacking of one layer into a directory.
type extraction struct {
	dir      string
	maxBytes int64
	grow     func(int64) error

	bytes   int64
	entries int
	sparse  []string // names of files that are to have holes
	seen    map[string]bool
	implied map[string]bool // directories that no entry describes, relative to dir
}

// extract writes a layer's files into dir, which knows nothing of the layers
// below, and returns the directories that the layer implies only. Whiteouts
// become overlayfs's own if there are layers below.
//
// # Errors
//
// ErrInvalidArgument for a layer that is beyond the limits; ErrDataLoss if it is
// not what its digest says; ErrResourceExhausted if the disk is full.
func (s *Store) extract(ctx context.Context, l Layer, dir string) (implied []string, err error) {
	blob, err := l.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	x := &extraction{dir: dir, maxBytes: s.maxBytes, grow: l.Grow, seen: map[string]bool{}, implied: map[string]bool{}}
	if err := x.run(ctx, blob, l); err != nil {
		// What is said of content is worth something only if the content is what
		// was meant; a reader tells at its end.
		if errdefs.IsInvalidArgument(err) {
			if _, rerr := io.Copy(io.Discard, blob); rerr != nil {
				return nil, rerr
			}
		}
		return nil, full(dir, err)
	}
	for name := range x.implied {
		implied = append(implied, name)
	}
	return implied, nil
}

func (x *extraction) run(ctx context.Context, blob io.Reader, l Layer) error {
	stream, err := compression.DecompressStream(blob)
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	defer stream.Close()
	verifier := l.Diff.Verifier()
	// A tar stream is longer than its files by a header and padding each.
	limited := &limitedReader{r: stream, left: x.maxBytes + x.maxBytes/4 + largeFile, max: x.maxBytes}
	tee := io.TeeReader(limited, verifier)
	opts := []archive.ApplyOpt{archive.WithFilter(x.accept)}
	if l.Parent != "" {
		opts = append(opts, archive.WithConvertWhiteout(archive.OverlayConvertWhiteout))
	}
	if _, err := archive.Apply(ctx, x.dir, tee, opts...); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, tee); err != nil { // padding behind the archive counts too
		return err
	}
	if !verifier.Verified() {
		return fmt.Errorf("its content is not what the image's configuration says: %w", errdefs.ErrDataLoss)
	}
	for _, name := range x.sparse {
		if err := x.digHoles(name); err != nil {
			return err
		}
	}
	return nil
}

// accept looks at each entry before it is written.
func (x *extraction) accept(h *tar.Header) (bool, error) {
	x.entries++
	if x.entries > maxEntries {
		return false, fmt.Errorf("it has more than %d files: %w", maxEntries, errdefs.ErrInvalidArgument)
	}
	if h.Size < 0 || h.Size > x.maxBytes-x.bytes {
		return false, tooLarge(x.maxBytes)
	}
	x.bytes += h.Size
	if x.grow != nil {
		if err := x.grow(h.Size + entryCost); err != nil {
			return false, err
		}
	}
	if h.Size >= largeFile && !isSparse(h) {
		if free := available(x.dir); h.Size > free {
			return false, fmt.Errorf("file %q of %d bytes: %w", h.Name, h.Size, unix.ENOSPC)
		}
	}
	// What overlayfs means by its own attributes is not for an image to say.
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "SCHILY.xattr.trusted.overlay.") || strings.HasPrefix(key, "SCHILY.xattr.user.overlay.") {
			delete(h.PAXRecords, key)
		}
	}
	if isSparse(h) {
		h.Typeflag = tar.TypeReg
		x.sparse = append(x.sparse, h.Name)
	}
	return true, x.noteParents(h)
}

// noteParents finds the directories that an entry is about to bring about
// without describing them.
func (x *extraction) noteParents(h *tar.Header) error {
	name := filepath.Join("/", h.Name)
	for dir := filepath.Dir(name); dir != "/" && !x.seen[dir]; dir = filepath.Dir(dir) {
		x.seen[dir] = true
		path, err := fs.RootPath(x.dir, dir)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			x.implied[strings.TrimPrefix(path, x.dir)] = true
		}
	}
	if h.Typeflag == tar.TypeDir {
		parent, err := fs.RootPath(x.dir, filepath.Dir(name))
		if err != nil {
			return err
		}
		x.seen[name] = true
		delete(x.implied, strings.TrimPrefix(filepath.Join(parent, filepath.Base(name)), x.dir))
	} else {
		// Something that is no directory may be in a directory's place, and give
		// way to one again.
		delete(x.seen, name)
	}
	return nil
}

// isSparse reports whether a file is written with holes.
func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// digHoles gives back the room of the zeros of a file, where that is possible.
func (x *extraction) digHoles(name string) error {
	path, err := fs.RootPath(x.dir, name)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil // a later entry took its place
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const block = 64 << 10
	buf, zeros := make([]byte, block), make([]byte, block)
	for offset := int64(0); offset < info.Size(); offset += block {
		n, err := f.ReadAt(buf, offset)
		if err != nil && err != io.EOF {
			return err
		}
		if string(buf[:n]) != string(zeros[:n]) {
			continue
		}
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, int64(n)); err != nil {
			break // the filesystem knows no holes
		}
	}
	// Reading and digging are no changes that the layer knows of.
	return os.Chtimes(path, info.ModTime(), info.ModTime())
}

// limitedReader fails when there is more than there may be.
type limitedReader struct {
	r         io.Reader
	left, max int64
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return 0, tooLarge(r.max)
	}
	return n, err
}

func tooLarge(limit int64) error {
	return fmt.Errorf("it unpacks to more than %d bytes, the limit for a layer (images.max_layer_mib): %w", limit, errdefs.ErrInvalidArgument)
}

// available returns how many bytes can be written below a directory.
func available(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 1 << 62
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// full gives the error of a full disk its class, and a text that says what to do.
func full(dir string, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || errdefs.IsResourceExhausted(err) {
		return err
	}
	return fmt.Errorf("%w: the filesystem of %q has no room (%d bytes free); remove images or containers: %w",
		err, dir, available(dir), errdefs.ErrResourceExhausted)
}
