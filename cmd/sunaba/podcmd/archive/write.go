package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/regular"
)

// Write writes a file, or a folder with all that is in it, as a tar archive in which it has the
// name as. Links within are written as links. The format is GNU's, whose long names busybox reads
// too.
//
// # Errors
//
// ErrInvalidArgument for devices, pipes and sockets: those are left out, the archive is whole
// without. The context's, those of w and of the file system.
func Write(ctx context.Context, w io.Writer, source, as string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	out := &writer{tar: tar.NewWriter(w)}
	if !info.IsDir() {
		f, err := regular.Open(source)
		if err != nil {
			return err
		}
		if err := errors.Join(out.file(f, as), f.Close()); err != nil {
			return err
		}
		return out.tar.Close()
	}
	root, err := os.OpenRoot(source)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		return out.entry(root, name, path.Join(as, name))
	})
	if err != nil {
		return err
	}
	if err := out.tar.Close(); err != nil {
		return err
	}
	if len(out.refused) > 0 {
		return fmt.Errorf("only folders, links and regular files are copied, not %q: %w", out.refused, errdefs.ErrInvalidArgument)
	}
	return nil
}

type writer struct {
	tar     *tar.Writer
	refused []string
}

// entry writes what is in a folder under a name. The folder may be changed meanwhile.
func (w *writer) entry(root *os.Root, name, as string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return w.header(info, as+"/", "")
	case fs.ModeSymlink:
		to, err := root.Readlink(name)
		if err != nil {
			return err
		}
		return w.header(info, as, to)
	case 0:
		f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return errors.Join(w.file(f, as), f.Close())
	}
	if len(w.refused) < maxRefused && !slices.Contains(w.refused, name) {
		w.refused = append(w.refused, name)
	}
	return nil
}

// file writes a file that is open, with as many bytes as it has now.
func (w *writer) file(f *os.File, as string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("read %q: it is no regular file any more: %w", filepath.Base(f.Name()), errdefs.ErrInvalidArgument)
	}
	if err := w.header(info, as, ""); err != nil {
		return err
	}
	if _, err := io.CopyN(w.tar, f, info.Size()); err != nil {
		return fmt.Errorf("read %q, which may have become shorter meanwhile: %w", f.Name(), err)
	}
	return nil
}

func (w *writer) header(info fs.FileInfo, as, link string) error {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Format = as, "", "", tar.FormatGNU
	// GNU's format has them where others have the start of the name, as which busybox takes them.
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	return w.tar.WriteHeader(h)
}
