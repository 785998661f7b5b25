package checkpoint

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/containerd/containerd/v2/pkg/archive"
	cfs "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/images/unpack/extract"
)

// Layers are where a root filesystem lies: Upper is what was written to it, Lower what it stands
// on, the topmost first.
type Layers struct {
	Upper string
	Lower []string
}

// WriteRoot writes what a container changed in its root filesystem: to w a tar file of what it
// wrote, and as result the paths of what it removed. Sockets are left out: their listeners are
// dead.
//
// # Errors
//
// ErrFailedPrecondition if an overlay keeps what only it understands (redirected folders, files
// without content).
func (l Layers) WriteRoot(ctx context.Context, w io.Writer) (deleted []string, err error) {
	out := archive.NewChangeWriter(w, l.Upper)
	err = filepath.WalkDir(l.Upper, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || path == l.Upper {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name := "/" + path[len(l.Upper)+1:]
		switch {
		case info.Mode()&fs.ModeSocket != 0:
			return nil
		case isWhiteout(info):
			deleted = append(deleted, name)
			return nil
		}
		for _, x := range []string{"redirect", "metacopy"} {
			if _, is := overlayAttribute(path, x); is {
				return fmt.Errorf("file %q cannot be taken out of its overlay (%s): %w", name, x, errdefs.ErrFailedPrecondition)
			}
		}
		if value, _ := overlayAttribute(path, "opaque"); info.IsDir() && value == "y" {
			hidden, err := l.hidden(name)
			if err != nil {
				return err
			}
			deleted = append(deleted, hidden...)
		}
		return out.HandleChange(cfs.ChangeKindAdd, name, info, nil)
	})
	return deleted, errors.Join(err, out.Close())
}

func isWhiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// overlayAttribute reads what an overlay noted of a file, for root or for a user namespace.
func overlayAttribute(path, name string) (string, bool) {
	var value [256]byte
	for _, space := range []string{"trusted.overlay.", "user.overlay."} {
		if n, err := unix.Lgetxattr(path, space+name, value[:]); err == nil {
			return string(value[:n]), true
		}
	}
	return "", false
}

// hidden are the entries of a folder that was removed and made anew.
func (l Layers) hidden(name string) ([]string, error) {
	var out []string
	for _, lower := range l.Lower {
		entries, err := os.ReadDir(filepath.Join(lower, name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			path := filepath.Join(name, e.Name())
			if _, err := os.Lstat(filepath.Join(l.Upper, path)); errors.Is(err, fs.ErrNotExist) && !slices.Contains(out, path) {
				out = append(out, path)
			}
		}
	}
	return out, nil
}

// ApplyRoot makes the changes of an archive, which is laid out in dir, to a root filesystem that is
// not in use yet. Changes may be as WriteRoot writes them, or a layer of an image, as containerd
// does; they are no more than limit bytes.
func ApplyRoot(ctx context.Context, dir, root string, limit int64) error {
	if err := applyTar(ctx, filepath.Join(dir, RootFile), root, limit); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("apply %s of a checkpoint: %w", RootFile, err)
	}
	var deleted []string
	if _, err := os.Lstat(filepath.Join(dir, DeletedFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := readJSON(filepath.Join(dir, DeletedFile), maxDeleted, &deleted); err != nil {
		return err
	}
	in, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, name := range deleted {
		name = filepath.Clean("/" + name)[1:]
		if name == "" {
			return fmt.Errorf("apply %s of a checkpoint: it names the root: %w", DeletedFile, errdefs.ErrInvalidArgument)
		}
		if err := in.RemoveAll(name); err != nil {
			return fmt.Errorf("apply %s of a checkpoint: %w", DeletedFile, err)
		}
	}
	return nil
}

func applyTar(ctx context.Context, file, root string, limit int64) error {
	f, err := regular.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := extract.Decompress(f)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer plain.Close()
	stream, files := newBudget(limit), newBudget(limit)
	// A file may be longer than what the stream has of it: it has holes.
	within := archive.WithFilter(func(h *tar.Header) (bool, error) { return true, errors.Join(files.file(), files.take(h.Size)) })
	_, err = archive.Apply(ctx, root, stream.reader(plain), within)
	return err
}
