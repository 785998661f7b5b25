package desired

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/inotify"
)

// What is watched. CREATE tells of links, which nobody closes.
const (
	folderEvents = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF |
		unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	parentEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
)

// folder watches one folder of manifests. What is below asked is of the goroutine of run alone.
type folder struct {
	path   string
	book   *book
	times  times
	logger *slog.Logger

	mu    sync.Mutex
	names map[string]bool // files that are to be read again; "" for all
	asked chan struct{}

	watcher *inotify.Watcher // nil if there is none: then listings tell everything
	wd      int32            // of the folder
	parent  int32            // of the nearest folder above one that does not exist
	waitFor string           // the name in it that is waited for

	files    map[string]*seen
	homes    []uint64 // inodes of the folder in earlier runs
	dev, ino uint64   // of the folder when it was last listed in this run
	lost     bool     // listing it failed
	nextList time.Time
}

// seen is what a folder knows of one of its files.
type seen struct {
	stamp   stamp // of the content that was offered
	waiting stamp // what it was when it was found too young
	// due is when to read it, zero for never; whole says that it was closed or moved in.
	due   time.Time
	whole bool
	tries int // readings that found it being written
	peek  bool
	// pause is what was waited last before it was read again because the disk was full.
	pause time.Duration
	// gone is since when it is missing; deleted says that an event told so.
	gone    time.Time
	deleted bool
}

// The set is published after so many files, or after slice: each is written durably before it is in
// the set, and the objects of the first need not wait for the last.
const (
	batch = 64
	slice = 20 * time.Millisecond
)

func newFolder(path string, b *book, o Options) *folder {
	return &folder{
		path: path, book: b, times: o.times, logger: b.logger, names: map[string]bool{}, asked: make(chan struct{}, 1),
		wd: inotify.None, parent: inotify.None, files: map[string]*seen{},
	}
}

// ask has a file read again, or with "" has all files listed and read again. It does not wait.
func (f *folder) ask(name string) {
	f.mu.Lock()
	f.names[name] = true
	f.mu.Unlock()
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

// run watches until the context ends. It calls listed once, after the first listing.
func (f *folder) run(ctx context.Context, listed func()) {
	var notices chan []inotify.Notice
	w, err := inotify.Open()
	if err != nil {
		f.logger.Warn("failed to watch a folder of manifests; it is listed from time to time only", "folder", f.path, "error", err)
	} else {
		f.watcher, notices = w, w.Notices
		defer w.Close()
	}
	names, homes := f.book.known(f.path)
	f.homes = homes
	for _, name := range names {
		f.files[name] = &seen{}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; {
		now := time.Now()
		f.step(now)
		f.book.publish()
		next := f.next()
		if first && next.After(now) {
			first = false
			listed()
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			if first {
				listed()
			}
			return
		case all := <-notices:
			for _, n := range all {
				f.handle(n, time.Now())
			}
		case <-f.asked:
			f.answer(time.Now())
		case <-timer.C:
		}
	}
}

// answer does what ask was called for.
func (f *folder) answer(now time.Time) {
	f.mu.Lock()
	names := f.names
	f.names = map[string]bool{}
	f.mu.Unlock()
	if names[""] {
		f.nextList = now
	}
	for name, s := range f.files {
		switch {
		case names[name] && s.gone.IsZero() && !f.lost:
			s.stamp, s.due, s.whole = stamp{}, now, true
		case names[""]:
			s.stamp = stamp{}
		}
	}
}

// next is when step has something to do although nothing happened.
func (f *folder) next() time.Time {
	next := f.nextList
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, s := range f.files {
		earlier(s.due)
		if !s.gone.IsZero() {
			earlier(s.gone.Add(f.times.gone))
		}
		if s.peek {
			return time.Time{}
		}
	}
	return next
}

// handle takes one event. It only notes what to do.
func (f *folder) handle(n inotify.Notice, now time.Time) {
	switch {
	case n.Mask&unix.IN_Q_OVERFLOW != 0, n.WD == f.parent && n.Name == f.waitFor:
		f.nextList = now
		return
	case n.WD != f.wd:
		return
	case n.Mask&unix.IN_IGNORED != 0:
		f.wd, f.nextList = inotify.None, now
		return
	case n.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0, f.lost, n.Name == "..data":
		f.nextList = now // "..data" is what Kubernetes' trees of links are switched with
		return
	case n.Mask&unix.IN_ISDIR != 0, !manifestName(n.Name):
		return
	}
	s := f.files[n.Name]
	if n.Mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0 {
		if s != nil && s.gone.IsZero() {
			s.deleted = true
			f.missing(n.Name, s, now)
		}
		return
	}
	if s == nil {
		if len(f.files) >= f.times.most {
			f.nextList = now // which says so
			return
		}
		s = &seen{}
		f.files[n.Name] = s
	}
	if n.Mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0 {
		f.found(n.Name, s)
		s.due, s.whole, s.tries, s.pause = now, true, 0, 0
		return
	}
	s.peek = true
}

// missing notes that a file is not there.
func (f *folder) missing(name string, s *seen, now time.Time) {
	s.gone, s.due, s.peek, s.whole, s.tries, s.stamp = now, time.Time{}, false, false, 0, stamp{}
	f.book.setMissing(filepath.Join(f.path, name), true)
}

// found notes that a file is there.
func (f *folder) found(name string, s *seen) {
	if s.gone.IsZero() && !s.deleted {
		return
	}
	s.gone, s.deleted = time.Time{}, false
	f.book.setMissing(filepath.Join(f.path, name), false)
}

// step does what is due.
func (f *folder) step(now time.Time) {
	expired := false
	for _, s := range f.files {
		expired = expired || !s.gone.IsZero() && !now.Before(s.gone.Add(f.times.gone))
	}
	if expired || !now.Before(f.nextList) {
		f.list(now)
	}
	var due []string
	for name, s := range f.files {
		if s.peek || !s.due.IsZero() && !now.Before(s.due) {
			due = append(due, name)
		}
	}
	if len(due) == 0 || f.lost {
		return
	}
	d, err := openDirectory(f.path)
	if err != nil {
		f.nextList = now // which says what it is
		return
	}
	defer d.Close()
	if d.dev != f.dev || d.ino != f.ino {
		f.nextList = now
		return
	}
	slices.Sort(due)
	for i, name := range due[:min(len(due), batch)] {
		if i > 0 && time.Since(now) > slice {
			return
		}
		f.check(d, name, now)
	}
}

// check looks at one file, and reads it if it is whole.
func (f *folder) check(d *directory, name string, now time.Time) {
	s := f.files[name]
	if s.peek || !s.whole {
		s.peek = false
		p, st, err := d.look(name)
		f.judge(name, s, p, st, err, now)
		if s.due.IsZero() || now.Before(s.due) {
			if s.due.IsZero() && s.stamp == (stamp{}) && p != present && s.gone.IsZero() && !f.book.knows(filepath.Join(f.path, name)) {
				delete(f.files, name) // what never was a manifest
			}
			return
		}
	}
	path := filepath.Join(f.path, name)
	data, st, err := d.read(name)
	switch {
	case errors.Is(err, errWriting):
		s.due = now.Add(min(time.Millisecond<<min(s.tries, 20), f.times.young))
		if s.tries++; s.tries == 15 {
			f.book.refuse(path, errWriting)
		}
		return
	case errors.Is(err, fs.ErrNotExist):
		s.whole, s.due, s.peek = false, time.Time{}, true // to see its new state
		return
	}
	s.stamp, s.due, s.whole, s.tries = st, time.Time{}, false, 0
	if err != nil {
		f.book.refuse(path, err)
		return
	}
	if !f.book.offer(path, content{data, d.ino}) {
		s.pause = 0
		return
	}
	// Until the next listing a disk that was full for a moment would keep the pod away. A disk that
	// stays full is asked less and less often.
	s.pause = min(max(2*s.pause, f.times.young), f.times.relist)
	s.stamp, s.due = stamp{}, now.Add(s.pause)
}
