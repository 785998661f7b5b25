// Package atomic replaces the content of a folder at once, as a kubelet does in volumes: whoever
// reads there sees all of the old files or all of the new ones.
package atomic

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-project/sunaba/pods/volumes/tree"
)

// Names in a volume that are not of its content. They start with "..", which no key may.
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	dataFolder  = "..2006_01_02_15_04_05."
)

// File is one file of a content: its permissions, with what the group adds, and its owner.
type File struct {
	Data []byte
	Mode uint32
	UID  int
}

// Content is what a folder is to show, by path. Paths are relative and clean, and none starts with
// "..".
type Content map[string]File

// Writer replaces the content of a folder: files are links to
// ..data/NAME, ..data is a link to a folder with a time as its name, and a rename puts another
// folder in its place.
//
// It may be killed at every instruction. What it leaves then is either the old content or the new
// one, and the next write removes the rest.
type Writer struct {
	// Dir must exist. Nobody but this writer writes there.
	Dir string
	// Group has all files and folders.
	Group tree.Group
	// Now names the folders.
	Now func() time.Time
	// step is called before each step that changes something. Tests stop there.
	step func(name string)
}

// Write makes the folder show c. It says whether that is another content than before.
//
// # Errors
//
// Those of the file system. Then either the old content is shown or the new one.
func (w Writer) Write(c Content) (changed bool, err error) {
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	current, err := currentFolder(root)
	if err != nil {
		return false, err
	}
	changed = current == "" || !w.shows(root, current, c)
	if changed {
		if err := w.sweep(root, current); err != nil { // makes room
			return false, err
		}
		if current, err = w.put(root, c); err != nil {
			return false, errors.Join(err, w.sweep(root, current))
		}
	}
	return changed, errors.Join(w.link(root, c), w.sweep(root, current))
}

// currentFolder is the folder that ..data leads to, "" if the link does not exist.
func currentFolder(root *os.Root) (string, error) {
	target, err := root.Readlink(dataLink)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if info, err := root.Lstat(target); err != nil || !info.IsDir() || !strings.HasPrefix(target, "..2") {
		return "", nil
	}
	return target, nil
}

// shows says whether a folder has exactly this content.
func (w Writer) shows(root *os.Root, folder string, c Content) bool {
	seen := 0
	err := fs.WalkDir(root.FS(), folder, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		want, ok := c[strings.TrimPrefix(name, folder+"/")]
		info, err := e.Info()
		if err != nil {
			return err
		}
		st, known := info.Sys().(*syscall.Stat_t)
		if !ok || !known || !info.Mode().IsRegular() || info.Size() != int64(len(want.Data)) ||
			st.Mode&0o7777 != want.Mode || int(st.Uid) != want.UID || w.Group.Set && int(st.Gid) != w.Group.ID {
			return fs.ErrInvalid
		}
		data, err := root.ReadFile(name)
		if err == nil && !bytes.Equal(data, want.Data) {
			err = fs.ErrInvalid
		}
		seen++
		return err
	})
	return err == nil && seen == len(c)
}

// put writes the content to a new folder and makes ..data lead to it. It answers the folder that
// ..data leads to, also after an error.
func (w Writer) put(root *os.Root, c Content) (current string, err error) {
	if current, err = currentFolder(root); err != nil {
		return "", err
	}
	folder, err := w.newFolder(root)
	if err != nil {
		return current, err
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		w.at("write " + name)
		if err := w.file(root, folder, name, c[name]); err != nil {
			return current, fmt.Errorf("write %q: %w", name, err)
		}
	}
	if err := w.folders(root, folder); err != nil {
		return current, err
	}
	w.at("link new data")
	if err := root.Symlink(folder, newDataLink); err != nil {
		return current, err
	}
	w.at("rename link")
	if err := root.Rename(newDataLink, dataLink); err != nil {
		return current, err
	}
	return folder, nil
}

// newFolder makes a folder that is named after the time.
func (w Writer) newFolder(root *os.Root) (string, error) {
	w.at("make folder")
	now := w.Now().UTC()
	for {
		name := now.Format(dataFolder) + fmt.Sprintf("%09d", now.Nanosecond())
		err := root.Mkdir(name, 0o700)
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
		now = now.Add(1)
	}
}

func (w Writer) file(root *os.Root, folder, name string, f File) error {
	if err := root.MkdirAll(path.Join(folder, path.Dir(name)), 0o700); err != nil {
		return err
	}
	out, err := root.OpenFile(path.Join(folder, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(f.Data)
	gid := -1
	if w.Group.Set {
		gid = w.Group.ID
	}
	if err == nil {
		err = out.Chown(f.UID, gid)
	}
	if err == nil {
		err = out.Chmod(os.FileMode(f.Mode)) // after chown, and whatever the umask is
	}
	return errors.Join(err, out.Close())
}

// folders gives the folders of a new content their group and mode.
func (w Writer) folders(root *os.Root, folder string) error {
	w.at("set modes")
	return fs.WalkDir(root.FS(), folder, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if w.Group.Set {
			if err := root.Chown(name, -1, w.Group.ID); err != nil {
				return err
			}
		}
		return root.Chmod(name, fileMode(w.Group.ReadOnlyFolder(0o755)))
	})
}

// link makes a link for each name at the top of the content, and removes those of other contents.
func (w Writer) link(root *os.Root, c Content) error {
	want := map[string]bool{}
	for name := range c {
		first, _, _ := strings.Cut(name, "/")
		want[first] = true
	}
	names, err := namesIn(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "..") {
			continue
		}
		target, err := root.Readlink(name)
		if want[name] && err == nil && target == path.Join(dataLink, name) {
			delete(want, name)
			continue
		}
		w.at("remove " + name)
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w.at("link " + name)
		if err := root.Symlink(path.Join(dataLink, name), name); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what writes have left that were interrupted, and contents that are not shown any
// more.
func (w Writer) sweep(root *os.Root, current string) error {
	names, err := namesIn(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "..") || name == dataLink && current != "" || name == current {
			continue
		}
		w.at("sweep " + name)
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

func (w Writer) at(step string) {
	if w.step != nil {
		w.step(step)
	}
}

func namesIn(root *os.Root) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// fileMode is a mode as package os writes it.
func fileMode(mode uint32) os.FileMode {
	out := os.FileMode(mode & 0o777)
	for bit, is := range map[uint32]os.FileMode{syscall.S_ISUID: os.ModeSetuid, syscall.S_ISGID: os.ModeSetgid, syscall.S_ISVTX: os.ModeSticky} {
		if mode&bit != 0 {
			out |= is
		}
	}
	return out
}
