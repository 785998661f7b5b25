// Package desired is the set of objects that the node is to have: those of the manifest files of
// its folders and those that were applied. It watches the folders, keeps the last good version of
// each file on record, and says what an edit of a pod does.
package desired

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// Options are what a Set needs.
type Options struct {
	// Folders are the folders of manifests, in their order. None need exist.
	Folders []string
	// Store is the folder below which manifests/, applied/ and broken/ are: ROOT/pods. It is made,
	// with mode 0700: Secrets are in it.
	Store string
	// IgnoreKinds are kinds that are skipped with a note where a file brings them.
	IgnoreKinds []string
	Logger      *slog.Logger

	parse func(file string, data []byte, o manifest.Options) ([]manifest.Object, []string, error)
	times times
}

// times are how long a Set waits. Tests shorten some of them.
type times struct {
	relist time.Duration // between two full listings of a folder
	young  time.Duration // a file that changed less than this ago may be half a file
	gone   time.Duration // how long a file must stay away
	most   int           // how many manifest files a folder may hold
}

// usual are a kubelet's fileCheckFrequency, and the two seconds of pods.md B.2.
func usual() times {
	return times{relist: 20 * time.Second, young: time.Second, gone: time.Second, most: mostFiles}
}

// Entry is one object of a Set. It is never changed.
type Entry struct {
	manifest.Object
	// Source says where the object stands: Kind is "file" or "api"; Hash is the object's.
	Source cycle.Source
	// Seen is when the object was taken in its present form.
	Seen time.Time
}

// Set is the set of objects. All its methods may be called at the same time.
type Set struct {
	*shown
	book    *book
	folders []*folder
	running atomic.Bool
	listed  chan struct{}
}

// Open reads what is on record of the folders and what was applied. Until Run has listed the
// folders, the set holds the last good version of each file.
//
// # Errors
//
// Those of the file system; ErrInvalidArgument for a folder that is given twice or whose path is
// not absolute; ErrFailedPrecondition for a record of a newer format.
func Open(o Options) (*Set, error) {
	if o.parse == nil {
		o.parse = manifest.Parse
	}
	if o.times == (times{}) {
		o.times = usual()
	}
	s := &Set{listed: make(chan struct{})}
	folders := make([]string, 0, len(o.Folders))
	for _, path := range o.Folders {
		clean := filepath.Clean(path)
		if !filepath.IsAbs(path) || slices.Contains(folders, clean) {
			return nil, fmt.Errorf("open manifests %q: the path is not absolute, or is there twice: %w", path, errdefs.ErrInvalidArgument)
		}
		folders = append(folders, clean)
	}
	book, err := openBook(o, folders)
	if err != nil {
		return nil, fmt.Errorf("open manifests: %w", err)
	}
	s.book, s.shown = book, &book.shown
	for _, path := range folders {
		s.folders = append(s.folders, newFolder(path, book, o))
	}
	book.recheck = func(path string) {
		for _, f := range s.folders {
			if f.path == filepath.Dir(path) {
				f.ask(filepath.Base(path))
			}
		}
	}
	return s, nil
}

// Run watches the folders until the context ends, which is no error. It calls changed after the set
// or the state of a file changed, and once after the first listing; never twice at a time. It may
// be called once.
//
// # Errors
//
// ErrFailedPrecondition for a second call; ErrUnavailable if a file system does not answer when the
// context ends.
func (s *Set) Run(ctx context.Context, changed func()) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("watch manifests: they are watched already: %w", errdefs.ErrFailedPrecondition)
	}
	var folders, first sync.WaitGroup
	for _, f := range s.folders {
		first.Add(1)
		folders.Go(func() { f.run(ctx, first.Done) })
	}
	folders.Go(func() {
		first.Wait()
		close(s.listed)
		s.book.signal()
	})
	for {
		select {
		case <-ctx.Done():
			return stopped(&folders)
		case <-s.book.changed:
			changed()
		}
	}
}

// patience is how long Run waits for its folders at its end.
const patience = 5 * time.Second

// stopped waits for the end of the folders. One on a file system that does not answer cannot be
// ended.
func stopped(folders *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		folders.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("stop watching manifests: a file system does not answer: %w", errdefs.ErrUnavailable)
	}
}

// Listed is closed when each folder was listed once, or could not be, and its files were read,
// except those that were too young.
func (s *Set) Listed() <-chan struct{} { return s.listed }

// Reload lists all folders now, and reads again what is not loaded. It does not wait.
func (s *Set) Reload() {
	for _, f := range s.folders {
		f.ask("")
	}
}
