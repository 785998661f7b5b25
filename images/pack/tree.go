package pack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// Bounds of one variant's files.
const (
	maxEntries = 200_000
	maxBytes   = 8 << 30
	maxPath    = 4095 // bytes of a path, as the kernel has it
)

// File is a file or folder of the host that becomes one of an image.
type File struct {
	Host  string
	Guest string // absolute and clean
}

// ParseFile reads HOST:GUEST.
//
// # Errors
//
// ErrInvalidArgument.
func ParseFile(text string) (File, error) {
	at := strings.LastIndexByte(text, ':')
	if at <= 0 || at == len(text)-1 {
		return File{}, fmt.Errorf("file %q is not HOST:GUEST: %w", text, errdefs.ErrInvalidArgument)
	}
	f := File{Host: text[:at], Guest: text[at+1:]}
	if !cleanPath(f.Guest) {
		return f, fmt.Errorf("file %q: %q is not an absolute and clean path: %w", text, f.Guest, errdefs.ErrInvalidArgument)
	}
	return f, nil
}

// cleanPath says of a path in an image that it is absolute and has no part that means another.
func cleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= maxPath && !strings.ContainsRune(p, 0)
}

// modes says which permissions a file has in an image.
type modes func(fs.FileInfo) int64

// plainModes are those of an image whose files say only what is a program: 0755 or 0644.
func plainModes(info fs.FileInfo) int64 {
	if info.IsDir() || info.Mode().Perm()&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// ownModes are those that the files have.
func ownModes(info fs.FileInfo) int64 {
	mode := int64(info.Mode().Perm())
	for _, bit := range []struct {
		have fs.FileMode
		tar  int64
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if info.Mode()&bit.have != 0 {
			mode |= bit.tar
		}
	}
	return mode
}

// entry is one file, folder or link of an image.
type entry struct {
	host string // "" for a folder that only leads to others
	info fs.FileInfo
	mode int64
	link string
	dir  bool
}

// tree is what an image's file system holds, by paths without a leading slash.
type tree struct {
	modes   modes
	entries map[string]entry
	bytes   int64
}

func newTree(m modes) *tree { return &tree{modes: m, entries: map[string]entry{}} }

// add adds a file, or a folder with all that is in it. A link that is named itself is followed;
// those within a folder stay links.
func (t *tree) add(f File) error {
	info, err := os.Stat(f.Host)
	if err != nil {
		return fmt.Errorf("pack file %q: %w", f.Host, err)
	}
	if !info.IsDir() {
		return t.put(f.Host, f.Guest, info)
	}
	root := f.Host
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved
	}
	return filepath.WalkDir(root, func(host string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("pack folder %q: %w", f.Host, err)
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("pack folder %q: %w", f.Host, err)
		}
		rest, err := filepath.Rel(root, host)
		if err != nil {
			return fmt.Errorf("pack folder %q: %w", f.Host, err)
		}
		return t.put(host, path.Join(f.Guest, filepath.ToSlash(rest)), info)
	})
}

// put adds one entry and the folders that lead to it.
func (t *tree) put(host, guest string, info fs.FileInfo) error {
	refuse := func(why string) error {
		return fmt.Errorf("pack %q as %q: %s: %w", host, guest, why, errdefs.ErrInvalidArgument)
	}
	e := entry{host: host, info: info, mode: t.modes(info)}
	switch info.Mode().Type() {
	case 0:
		t.bytes += info.Size()
	case fs.ModeDir:
		e.dir = true
	case fs.ModeSymlink:
		var err error
		if e.link, err = os.Readlink(host); err != nil {
			return fmt.Errorf("pack link: %w", err)
		}
		e.mode = 0o777
	default:
		return refuse("it is " + kind(info.Mode()) + ", and an image of a module has files, folders and links only")
	}
	name := strings.TrimPrefix(guest, "/")
	switch {
	case !cleanPath(guest):
		return refuse("the path is not absolute and clean, or too long")
	case name == "" && !e.dir:
		return refuse("a file cannot be the root folder")
	case strings.HasPrefix(path.Base(name), ".wh."):
		return refuse("names that start with .wh. mean removed files in an image")
	}
	if had, ok := t.entries[name]; ok && (!had.dir || !e.dir) {
		return refuse(fmt.Sprintf("%q has this path already", had.host))
	}
	if name != "" {
		t.entries[name] = e
		if err := t.lead(name); err != nil {
			return refuse(err.Error())
		}
	}
	switch {
	case len(t.entries) > maxEntries:
		return refuse(fmt.Sprintf("these are more than %d files", maxEntries))
	case t.bytes > maxBytes:
		return refuse(fmt.Sprintf("these are more than %d bytes", int64(maxBytes)))
	}
	return nil
}

// lead adds the folders that lead to an entry, and refuses those that are something else.
func (t *tree) lead(name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		had, ok := t.entries[dir]
		if ok && !had.dir {
			return fmt.Errorf("%q is not a folder", "/"+dir)
		}
		if !ok {
			t.entries[dir] = entry{dir: true, mode: 0o755}
		}
	}
	return nil
}

// executable makes a file a program.
func (t *tree) executable(guest string) {
	name := strings.TrimPrefix(guest, "/")
	e := t.entries[name]
	e.mode = 0o755
	t.entries[name] = e
}

// has says whether a path is a regular file.
func (t *tree) has(guest string) bool {
	e, ok := t.entries[strings.TrimPrefix(guest, "/")]
	return ok && !e.dir && e.link == ""
}

// kind says what a special file is.
func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// errChanged is that a file is another one, or of another size, than when it was found.
var errChanged = errors.New("it was changed while it was packed")
