package unpack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/continuity/fs"
	"github.com/containerd/continuity/sysx"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/images/unpack/extract"
	"github.com/sunaba-project/sunaba/images/unpack/fingerprint"
)

// imitate makes a directory of a layer look like the one that it will hide, and
// says so in the fingerprint.
func (g *staged) imitate(dir string, below []string) error {
	path := filepath.Join(g.fs(), dir)
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return nil // a later entry of the layer took its place, or took it away
	}
	before, err := fingerprint.OfDirectory(dir, path)
	if err != nil {
		return err
	}
	if err := imitate(g.fs(), dir, below); err != nil {
		return err
	}
	after, err := fingerprint.OfDirectory(dir, path)
	if err != nil {
		return err
	}
	g.print.Exchange(before, after)
	return nil
}

// imitate gives a directory of a layer owner, mode, times and attributes of the
// directory that it will hide.
func imitate(root, dir string, below []string) error {
	path := filepath.Join(root, dir)
	for _, lower := range below {
		under, err := fs.RootPath(lower, dir)
		if err != nil {
			return err
		}
		info, err := os.Lstat(under)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return nil // it is replaced
		}
		st := info.Sys().(*syscall.Stat_t)
		if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
		if err := os.Chmod(path, info.Mode()); err != nil {
			return err
		}
		if err := copyAttributes(path, under); err != nil {
			return err
		}
		return os.Chtimes(path, time.Unix(st.Atim.Unix()), info.ModTime())
	}
	return nil
}

func copyAttributes(to, from string) error {
	names, err := sysx.LListxattr(from)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if extract.IsOverlayAttribute(name) {
			continue
		}
		value, err := sysx.LGetxattr(from, name)
		if err == nil {
			err = sysx.LSetxattr(to, name, value, 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("attribute %q: %w", name, err)
		}
	}
	return nil
}
