package extract

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What the names of files mean in layers, by the OCI image specification.
const (
	whiteoutPrefix = ".wh."
	opaqueMark     = ".wh..wh..opq"
	metaPrefix     = ".wh..wh." // of no meaning here but the mark
)

const xattrPrefix = "SCHILY.xattr."

// entry writes one entry of an archive.
func (x *extraction) entry(ctx context.Context, h *tar.Header, content io.Reader) error {
	name := path.Join("/", h.Name)
	if name == "/" || h.Typeflag == tar.TypeXGlobalHeader {
		return nil // a layer says nothing of the root directory itself
	}
	parent, base, err := x.find(name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(base, whiteoutPrefix) {
		return x.whiteout(parent, base, h)
	}
	if h.Uid < 0 || h.Gid < 0 || uint64(h.Uid) >= math.MaxUint32 || uint64(h.Gid) >= math.MaxUint32 {
		return invalid(name, fmt.Sprintf("owner %d:%d", h.Uid, h.Gid))
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return x.file(ctx, parent, base, h, content)
	case tar.TypeDir:
		err = x.directory(parent, base, h)
	case tar.TypeSymlink:
		err = x.anew(parent, base, func() error { return unix.Symlinkat(h.Linkname, parent, base) })
	case tar.TypeLink:
		return x.hardLink(parent, base, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		var made bool
		if made, err = x.device(parent, base, h); !made {
			return err
		}
	default:
		return invalid(name, fmt.Sprintf("its kind %q is unknown", h.Typeflag))
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return x.describeNow(parent, base, h)
}

// anew calls fn, and once more if something stood in the place, which is removed.
func (x *extraction) anew(parent int, base string, fn func() error) error {
	err := fn()
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if _, err := x.clear(parent, base); err != nil {
		return err
	}
	return fn()
}

// directory makes a directory, unless it is there.
func (x *extraction) directory(parent int, base string, h *tar.Header) error {
	name := path.Join("/", h.Name)
	x.dirs = append(x.dirs, described{name, h.ModTime, h.AccessTime})
	if err := x.describes(parent, base); err != nil {
		return err
	}
	err := unix.Mkdirat(parent, base, perm(h))
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	st, _, err := stat(parent, base)
	if err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return err
	}
	whiteout, err := x.clear(parent, base)
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(parent, base, perm(h)); err != nil || !whiteout || x.lowest {
		return err
	}
	return opaque(at(parent, base)) // what the whiteout hid stays hidden
}

// hardLink makes another name for a file of the layer. What its entry says of
// the file holds for all its names.
func (x *extraction) hardLink(parent int, base string, h *tar.Header) error {
	target := path.Join("/", h.Linkname)
	if target == "/" {
		return invalid(h.Name, "it is a link to the root directory")
	}
	from, err := x.lookup(path.Dir(target))
	if err != nil {
		return &os.LinkError{Op: "link", Old: target, New: h.Name, Err: err}
	}
	defer unix.Close(from)
	there, ok, err := stat(from, path.Base(target))
	if err == nil && !ok {
		err = unix.ENOENT
	}
	if err != nil {
		return &os.LinkError{Op: "link", Old: target, New: h.Name, Err: err}
	}
	if here, ok, err := stat(parent, base); err != nil || ok && here.Ino == there.Ino && here.Dev == there.Dev {
		return err // it is that already
	}
	err = x.anew(parent, base, func() error { return unix.Linkat(from, path.Base(target), parent, base, 0) })
	if err != nil {
		return &os.LinkError{Op: "link", Old: target, New: h.Name, Err: err}
	}
	return x.describeNow(parent, base, h)
}

// device makes a device or a pipe. Where devices may not be made they are left out.
func (x *extraction) device(parent int, base string, h *tar.Header) (made bool, err error) {
	if h.Devmajor < 0 || h.Devmajor > math.MaxUint32 || h.Devminor < 0 || h.Devminor > math.MaxUint32 {
		return false, invalid(h.Name, fmt.Sprintf("device %d:%d", h.Devmajor, h.Devminor))
	}
	kind := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO}[h.Typeflag]
	number := int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
	err = x.anew(parent, base, func() error { return unix.Mknodat(parent, base, kind|perm(h), number) })
	if errors.Is(err, unix.EPERM) && h.Typeflag != tar.TypeFifo {
		x.log.Warn("device of a layer is left out: this server may not make devices", "device", h.Name)
		return false, nil
	}
	return err == nil, err
}

// whiteout hides a name of the layers below, or all of them in a directory. It
// hides nothing of its own layer.
func (x *extraction) whiteout(parent int, base string, h *tar.Header) error {
	hidden := strings.TrimPrefix(base, whiteoutPrefix)
	if base != opaqueMark && (hidden == "" || hidden == "." || hidden == "..") {
		return invalid(h.Name, "it is a whiteout of nothing")
	}
	if x.lowest || base != opaqueMark && strings.HasPrefix(base, metaPrefix) {
		return nil
	}
	if base == opaqueMark {
		return opaque(nameOf(parent))
	}
	st, ok, err := stat(parent, hidden)
	switch {
	case err != nil:
	case ok && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return opaque(at(parent, hidden))
	case !ok:
		err = unix.Mknodat(parent, hidden, unix.S_IFCHR, 0)
	}
	if err != nil {
		return &os.PathError{Op: "hide", Path: h.Name, Err: err}
	}
	return nil
}

// opaque makes a directory hide those below.
func opaque(dir string) error {
	if err := unix.Setxattr(dir, "trusted.overlay.opaque", []byte{'y'}, 0); err != nil {
		return fmt.Errorf("make directory opaque: %w", err)
	}
	return nil
}

// describeNow describes what has been made as it is now.
func (x *extraction) describeNow(parent int, base string, h *tar.Header) error {
	st, ok, err := stat(parent, base)
	if err == nil && !ok {
		err = unix.ENOENT
	}
	if err != nil {
		return &os.PathError{Op: "describe", Path: h.Name, Err: err}
	}
	return x.describe(parent, base, h, st)
}

// describe gives what has been made, and is st, owner, attributes, mode and times.
func (x *extraction) describe(parent int, base string, h *tar.Header, st unix.Stat_t) (err error) {
	if st.Uid != uint32(h.Uid) || st.Gid != uint32(h.Gid) {
		if err = unix.Fchownat(parent, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			st.Mode |= unix.S_ISUID | unix.S_ISGID // what a change of owner may have taken away
		}
	}
	if err == nil {
		err = x.attributes(parent, base, h)
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK && st.Mode&0o7777 != perm(h) {
		err = unix.Fchmodat(parent, base, perm(h), 0)
	}
	if err == nil {
		err = setTimes(parent, base, h.ModTime, h.AccessTime)
	}
	if err != nil {
		return &os.PathError{Op: "describe", Path: h.Name, Err: err}
	}
	return nil
}

// perm is an entry's mode as system calls take it.
func perm(h *tar.Header) uint32 { return uint32(h.Mode & 0o7777) }

// attributes sets an entry's extended attributes. What is not for an image to say, such as
// overlayfs's own, and what the filesystem does not have, is left out.
func (x *extraction) attributes(parent int, base string, h *tar.Header) error {
	for key, value := range h.PAXRecords {
		name, ok := strings.CutPrefix(key, xattrPrefix)
		if !ok || strings.HasPrefix(name, "trusted.") || IsOverlayAttribute(name) {
			continue
		}
		err := unix.Lsetxattr(at(parent, base), name, []byte(value), 0)
		// Only files and directories can have attributes of users.
		if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) && strings.HasPrefix(name, "user.") {
			x.log.Warn("failed to set attribute of a file of a layer, it is left out", "attribute", name, "file", h.Name, "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("set attribute %q: %w", name, err)
		}
	}
	return nil
}

// setTimes sets the times of a name as its entry says them.
func setTimes(parent int, base string, modified, accessed time.Time) error {
	if accessed.Before(modified) {
		accessed = modified
	}
	return unix.UtimesNanoAt(parent, base, []unix.Timespec{timespec(accessed), timespec(modified)}, unix.AT_SYMLINK_NOFOLLOW)
}

// timespec is a time for the kernel; one that it cannot have is 1970.
func timespec(t time.Time) unix.Timespec {
	if ts, err := unix.TimeToTimespec(t); err == nil && t.Unix() >= 0 {
		return ts
	}
	return unix.Timespec{}
}

// finishDirs gives directories the times that their entries say.
func (x *extraction) finishDirs() error {
	for _, d := range x.dirs {
		parent, err := x.lookup(path.Dir(d.name))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue // a later entry took it away
		}
		if err != nil {
			return &os.PathError{Op: "open", Path: d.name, Err: err}
		}
		st, ok, err := stat(parent, path.Base(d.name))
		if err == nil && ok && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = setTimes(parent, path.Base(d.name), d.modified, d.accessed)
		}
		unix.Close(parent)
		if err != nil {
			return &os.PathError{Op: "set times", Path: d.name, Err: err}
		}
	}
	return nil
}

// IsOverlayAttribute reports whether an extended attribute is overlayfs's own.
func IsOverlayAttribute(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
}
