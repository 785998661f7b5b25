package wasip2

import (
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi/beneath"
)

// Flags of open-at, and the one of path-flags.
const (
	openCreate uint32 = 1 << iota
	openDirectory
	openExclusive
	openTruncate

	symlinkFollow uint32 = 1
)

// follows reads path-flags: whether a link in the last component is followed.
func follows(flags uint64) bool { return uint32(flags)&symlinkFollow != 0 }

// pathOf returns the directory of a path function and the path.
func pathOf(c *canonical.Call, handle, at, length uint64) (*wasi.Dir, string, error) {
	d := canonical.Get[*descriptor](c, handle)
	path, err := readPath(c, at, length)
	if err != nil {
		return nil, "", err
	}
	dir, err := d.node.file.AsDir()
	return dir, path, err
}

func openAt(c *canonical.Call, p []uint64, out uint32) error {
	dir, path, err := pathOf(c, p[0], p[2], p[3])
	if err != nil {
		return err
	}
	how, flags := uint32(p[4]), descriptorFlags(p[5])&descriptorAll
	if how&openDirectory != 0 && how&(openCreate|openExclusive|openTruncate) != 0 {
		return unix.EINVAL
	}
	if flags&descriptorWrite == 0 {
		flags |= descriptorRead // there is no way to open a file for neither
	}
	f, err := dir.Open(path, wasi.OpenOptions{
		Read:      flags&descriptorRead != 0,
		Write:     flags&descriptorWrite != 0,
		Follow:    follows(p[1]),
		Create:    how&openCreate != 0,
		Exclusive: how&openExclusive != 0,
		Truncate:  how&openTruncate != 0,
		Directory: how&openDirectory != 0,
		Flags:     syncs(flags),
	})
	if err != nil {
		return err
	}
	// What may be changed below a directory is the kernel's to say, and flag and deed are to agree.
	flags &^= descriptorMutate
	if f.Kind() == wasi.KindDirectory {
		flags |= descriptorMutate & canonical.Get[*descriptor](c, p[0]).flags
	}
	c.Put32(out, c.Add(&descriptor{node: &node{file: f, users: 1}, flags: flags}, 0))
	return nil
}

// syncs are the flags of synchronous writing.
func syncs(flags descriptorFlags) (f wasi.Flags) {
	if flags&descriptorFileSync != 0 {
		f |= wasi.Sync
	}
	if flags&descriptorDataSync != 0 {
		f |= wasi.Dsync
	}
	if flags&descriptorReadSync != 0 {
		f |= wasi.Rsync
	}
	return f
}

// onPath is a function of a directory and a path in it that answers nothing.
func onPath(do func(*wasi.Dir, string) error) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		dir, path, err := pathOf(c, p[0], p[1], p[2])
		if err != nil {
			return err
		}
		return do(dir, path)
	}
}

func linkAt(c *canonical.Call, p []uint64, _ uint32) error {
	from, path, err := pathOf(c, p[0], p[2], p[3])
	to, newPath, newErr := pathOf(c, p[4], p[5], p[6])
	if err != nil {
		return err
	}
	if newErr != nil {
		return newErr
	}
	return from.Link(path, follows(p[1]), to, newPath)
}

func renameAt(c *canonical.Call, p []uint64, _ uint32) error {
	from, path, err := pathOf(c, p[0], p[1], p[2])
	to, newPath, newErr := pathOf(c, p[3], p[4], p[5])
	if err != nil {
		return err
	}
	if newErr != nil {
		return newErr
	}
	return from.Rename(path, to, newPath)
}

func symlinkAt(c *canonical.Call, p []uint64, _ uint32) error {
	text, textErr := readPath(c, p[1], p[2])
	dir, path, err := pathOf(c, p[0], p[3], p[4])
	if err != nil {
		return err
	}
	if textErr != nil {
		return textErr
	}
	return dir.Symlink(text, path)
}

func readlinkAt(c *canonical.Call, p []uint64, out uint32) error {
	dir, path, err := pathOf(c, p[0], p[1], p[2])
	if err != nil {
		return err
	}
	var buffer [beneath.MaxPath]byte
	n, err := dir.Readlink(path, buffer[:])
	if err != nil {
		return err
	}
	if !utf8.Valid(buffer[:n]) {
		return unix.EILSEQ
	}
	c.PutBytes(out, buffer[:n])
	return nil
}

// entries is the resource directory-entry-stream.
type entries struct {
	node   *node
	cookie uint64 // of the next entry, as wasi.Dir.List has it
	ended  bool
}

func (e *entries) Drop() { e.node.release() }

func readDirectory(c *canonical.Call, p []uint64, out uint32) error {
	d := canonical.Get[*descriptor](c, p[0])
	if _, err := d.node.file.AsDir(); err != nil {
		return err
	}
	c.Put32(out, c.Add(&entries{node: d.node.use()}, 0))
	return nil
}

func readDirectoryEntry(c *canonical.Call, p []uint64, out uint32) error {
	e := canonical.Get[*entries](c, p[0])
	filetype, name, found, err := e.next()
	if err != nil {
		return err
	}
	c.PutBool(out, found)
	if found {
		c.Put8(out+4, fileTypes[filetype])
		c.PutBytes(out+8, name)
	}
	return nil
}

// next moves to the next entry. The specification leaves out "." and "..". A name that is not UTF-8
// is an error of its own; the one behind it comes next.
func (e *entries) next() (filetype wasi.Type, name []byte, found bool, err error) {
	dir, err := e.node.file.AsDir()
	for err == nil && !e.ended {
		var list *wasi.Listing
		if list, err = dir.List(e.cookie); err != nil {
			break
		}
		var entry wasi.Entry
		if entry, found, err = list.Entry(); err != nil || !found {
			e.ended = err == nil
			break
		}
		name = append(name[:0], entry.Name...)
		e.cookie = entry.Next
		list.Advance()
		switch {
		case string(name) == "." || string(name) == "..":
			continue
		case !utf8.Valid(name):
			return 0, nil, false, unix.EILSEQ
		}
		return entry.Type, name, true, nil
	}
	return 0, nil, false, err
}
