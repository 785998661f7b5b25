package desired

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sunaba-project/sunaba/host/inotify"
)

// judge takes what a name stands for: it sets when the file is to be read.
func (f *folder) judge(name string, s *seen, p presence, st stamp, err error, now time.Time) {
	path := filepath.Join(f.path, name)
	switch p {
	case absent:
		if s.gone.IsZero() {
			f.missing(name, s, now)
		}
		return
	case dangles, unknown:
		f.found(name, s)
		s.due, s.stamp = time.Time{}, stamp{}
		if p == dangles {
			err = errors.New("is a link that leads nowhere")
		}
		if f.book.knows(path) || p == unknown {
			f.book.refuse(path, err)
		}
		return
	}
	f.found(name, s)
	if s.whole && !s.due.IsZero() {
		return // it was closed
	}
	age := time.Duration(now.UnixNano() - st.newest())
	switch {
	case st == s.stamp:
		s.due = time.Time{}
	case age < f.times.young && age > -f.times.young && st != s.waiting:
		s.waiting, s.due = st, now.Add(f.times.young)
	case s.due.IsZero() || st != s.waiting:
		s.due = now
	}
}

// list compares the whole folder with what is known of it.
func (f *folder) list(now time.Time) {
	f.nextList = now.Add(f.times.relist)
	d, err := openDirectory(f.path)
	if err != nil {
		f.lose(err, now)
		return
	}
	defer d.Close()
	f.watch(d)
	names, err := d.manifests(f.times.most)
	if err == nil && len(names) == 0 && f.strange(d) {
		err = fmt.Errorf("list %q: it is another folder than it was and is empty (is a disk not mounted?); put a manifest into it to have the objects of the others deleted", f.path)
	}
	if err != nil {
		f.lose(err, now)
		return
	}
	if f.ino == 0 {
		f.book.setFirst(f.path, names)
	}
	f.dev, f.ino, f.lost = d.dev, d.ino, false
	f.book.setBroken(f.path, "")
	there := make(map[string]bool, len(names))
	for _, name := range names {
		p, st, err := d.look(name)
		s := f.files[name]
		if p == absent || p == dangles && s == nil {
			continue
		}
		there[name] = true
		if s == nil {
			s = &seen{}
			f.files[name] = s
		}
		f.judge(name, s, p, st, err, now)
	}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		switch s := f.files[name]; {
		case there[name]:
		case s.gone.IsZero():
			f.missing(name, s, now)
		case !now.Before(s.gone.Add(f.times.gone)):
			f.book.forget(filepath.Join(f.path, name))
			delete(f.files, name)
		}
	}
}

// strange says of an empty folder that it is not the one in which the files were that are known,
// and that nobody was seen to delete them.
func (f *folder) strange(d *directory) bool {
	home := slices.Contains(f.homes, d.ino)
	if f.dev != 0 {
		home = d.dev == f.dev && d.ino == f.ino
	}
	if home {
		return false
	}
	for _, s := range f.files {
		if !s.deleted {
			return true
		}
	}
	return false
}

// lose notes that the folder cannot be listed: nothing changes until it can.
func (f *folder) lose(err error, now time.Time) {
	f.lost = true
	message := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		message = "the folder does not exist; it is waited for"
		f.await(now)
	}
	f.book.setBroken(f.path, message)
	for name, s := range f.files {
		s.stamp, s.due, s.whole, s.peek, s.tries = stamp{}, time.Time{}, false, false, 0
		if !s.gone.IsZero() {
			s.gone = time.Time{}
			f.book.setMissing(filepath.Join(f.path, name), false)
		}
	}
}

// watch watches the open folder instead of what was watched before.
func (f *folder) watch(d *directory) {
	if f.watcher == nil {
		return
	}
	f.watcher.Remove(f.parent)
	f.parent = inotify.None
	wd, err := f.watcher.Add(fmt.Sprintf("/proc/self/fd/%d", d.Fd()), folderEvents)
	if err != nil {
		f.logger.Warn("failed to watch a folder of manifests; it is listed from time to time only", "folder", f.path, "error", err)
	}
	if wd != f.wd {
		f.watcher.Remove(f.wd)
		f.wd = wd
	}
}

// await watches the nearest folder above one that does not exist.
func (f *folder) await(now time.Time) {
	if f.watcher == nil {
		return
	}
	f.watcher.Remove(f.wd)
	f.watcher.Remove(f.parent)
	f.wd, f.parent = inotify.None, inotify.None
	for path := f.path; path != filepath.Dir(path); path = filepath.Dir(path) {
		wd, err := f.watcher.Add(filepath.Dir(path), parentEvents)
		if err != nil {
			continue
		}
		f.parent, f.waitFor = wd, filepath.Base(path)
		if _, err := os.Stat(path); err == nil {
			f.nextList = now // it was made meanwhile
		}
		return
	}
}
