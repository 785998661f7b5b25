// Package archive makes tar archives of local files and unpacks those of containers. An archive of a
// container is untrusted: it must not write outside the target, follow a link out of it, create
// anything except folders and regular files, or fill the disk.
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
	"strings"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	// maxFiles bounds the files of an archive, maxName the bytes of a name and maxDepth its
	// components.
	maxFiles = 1 << 20
	maxName  = 4 << 10
	maxDepth = 255
	// maxRest bounds the bytes after an archive's end: tar pads blocks.
	maxRest = 1 << 20
	// maxRefused is how many refused files an error names.
	maxRefused = 5
)

// Target says where an archive is unpacked.
type Target struct {
	// Dir is an existing folder. Nothing outside of it is changed.
	Dir string
	// From is the name below which all files of the archive are; it becomes As, "." for Dir itself.
	From, As string
	// Limit bounds the contents of all files, in bytes.
	Limit int64
	// Plain gives files the permissions that new ones have, instead of the archive's.
	Plain bool
	// Note is called with what is left out.
	Note func(text string)
}

// Unpack unpacks a tar archive and returns how many files and folders it has made. Links are left
// out; hard links within the archive are created. An existing file is replaced atomically.
// Permissions are at most rwx, and the umask applies; owners and times are not the archive's.
//
// # Errors
//
// ErrInvalidArgument if it is not an archive, if its names lead out of the target, or if it has
// devices, pipes or sockets: those are left out, the rest is unpacked. ErrResourceExhausted if it is
// too large. The context's and those of the file system.
func Unpack(ctx context.Context, r io.Reader, t Target) (int, error) {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	u := &unpacker{Target: t, root: root, left: t.Limit}
	in := tar.NewReader(r)
	for entries := 0; ; entries++ {
		if err := ctx.Err(); err != nil {
			return u.made, err
		}
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u.made, fmt.Errorf("read archive: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		if entries == maxFiles {
			return u.made, fmt.Errorf("the archive has more than %d files: %w", maxFiles, errdefs.ErrResourceExhausted)
		}
		if err := u.unpack(header, in); err != nil {
			return u.made, err
		}
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(r, maxRest+1)); err != nil || n > maxRest {
		return u.made, errors.Join(err, fmt.Errorf("read archive: data follows its end: %w", errdefs.ErrInvalidArgument))
	}
	return u.made, u.refusedFiles()
}

type unpacker struct {
	Target
	root    *os.Root
	left    int64 // bytes that may still come
	made    int
	refused []string
	more    int // refused ones that are not named
}

func (u *unpacker) unpack(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := u.place(header.Name)
	if err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return u.folder(name, header)
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.file(name, header, content)
	case tar.TypeLink:
		return u.link(name, header.Linkname)
	case tar.TypeSymlink:
		u.Note(fmt.Sprintf("skipping symlink: %q -> %q", header.Name, header.Linkname))
		return nil
	}
	u.refuse(header)
	return nil
}

// refuse records a file that is not unpacked.
func (u *unpacker) refuse(header *tar.Header) {
	if len(u.refused) == maxRefused {
		u.more++
		return
	}
	kind := map[byte]string{tar.TypeFifo: "a pipe", tar.TypeChar: "a device", tar.TypeBlock: "a device"}[header.Typeflag]
	if kind == "" {
		kind = fmt.Sprintf("of type %q", header.Typeflag)
	}
	u.refused = append(u.refused, fmt.Sprintf("%q is %s", header.Name, kind))
}

func (u *unpacker) refusedFiles() error {
	if len(u.refused) == 0 {
		return nil
	}
	text := strings.Join(u.refused, ", ")
	if u.more > 0 {
		text += fmt.Sprintf(" and %d more", u.more)
	}
	return fmt.Errorf("only folders and regular files are copied: %s: %w", text, errdefs.ErrInvalidArgument)
}

// place is the path of a name of the archive below the target's folder.
func (u *unpacker) place(name string) (string, error) {
	parts := strings.Split(strings.TrimSuffix(name, "/"), "/")
	bad := len(name) > maxName || len(parts) > maxDepth || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) || slices.Contains(parts, "..")
	clean := path.Clean(name)
	rest := clean
	if u.From != "." && !bad {
		var below bool
		rest, below = strings.CutPrefix(clean+"/", u.From+"/")
		rest = strings.TrimSuffix(rest, "/")
		bad = !below
	}
	at := path.Join(u.As, rest)
	if bad || !filepath.IsLocal(at) {
		if len(name) > maxDepth {
			name = name[:maxDepth] + "…"
		}
		return "", fmt.Errorf("read archive: name %q does not lead into the target: %w", name, errdefs.ErrInvalidArgument)
	}
	return at, nil
}

func (u *unpacker) folder(name string, header *tar.Header) error {
	mode := fs.FileMode(header.Mode)&0o777 | 0o700
	if u.Plain {
		mode = 0o777
	}
	if name == "." {
		u.made++
		return nil
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	err := u.root.Mkdir(name, mode)
	if errors.Is(err, fs.ErrExist) {
		info, serr := u.root.Stat(name)
		if serr != nil {
			return fmt.Errorf("make folder %q: %w", name, serr)
		}
		if !info.IsDir() {
			return fmt.Errorf("make folder %q: %w", name, err)
		}
		err = nil
	}
	if err == nil {
		u.made++
	}
	return err
}

func (u *unpacker) file(name string, header *tar.Header, content io.Reader) error {
	mode := fs.FileMode(header.Mode) & 0o777
	if u.Plain {
		mode = 0o666
	}
	return u.replace(name, func(temporary string) error {
		f, err := u.root.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		n, err := io.Copy(f, io.LimitReader(content, u.left+1))
		u.left -= n
		if err == nil && u.left < 0 {
			err = fmt.Errorf("write %q: the archive has more than %d bytes, more than may be written there: %w", name, u.Limit, errdefs.ErrResourceExhausted)
		}
		return errors.Join(err, f.Close())
	})
}

// link creates another name of an unpacked file.
func (u *unpacker) link(name, to string) error {
	old, err := u.place(to)
	if err != nil {
		return err
	}
	if info, err := u.root.Lstat(old); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("link %q: %q is not a file of the archive: %w", name, to, errdefs.ErrInvalidArgument)
	}
	return u.replace(name, func(temporary string) error { return u.root.Link(old, temporary) })
}

// replace creates a file under a temporary name and renames it.
func (u *unpacker) replace(name string, create func(temporary string) error) error {
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("write %q: %w", name, err)
	case info.IsDir():
		return fmt.Errorf("write %q: a folder has that name", name)
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("write %q: it exists and is neither a file nor a link", name)
	}
	dir := path.Dir(name)
	if err := u.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temporary := path.Join(dir, ".sunaba-cp-"+rand.String(12))
	err = create(temporary)
	if err == nil {
		err = u.root.Rename(temporary, name)
	}
	if err == nil {
		u.made++
	}
	// A rename between two names of one file leaves both.
	if rerr := u.root.Remove(temporary); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}
