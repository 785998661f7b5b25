package run

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A log that is not read as fast as it is written takes keepLogs files of maxLog bytes, as a
// kubelet's containerLogMaxFiles and containerLogMaxSize.
const (
	maxLog   = 10 << 20
	keepLogs = 5
)

// rotated is a container's log file, which is rotated so that it stays within bounds, and is read
// from its first file to its last. Files are removed once they were read.
type rotated struct {
	path string
	max  int64 // bytes of one file
	// reopen makes the server write to a new file at path.
	reopen func() error
	// problem is told what goes wrong, one thing at a time. It may wait for a reader that pauses:
	// the log is rotated meanwhile.
	problem func(string)
	telling atomic.Bool
	told    sync.WaitGroup

	mu       sync.Mutex
	count    int
	old      []string // rotated files that are not being read, the oldest first
	file     *os.File // the one that is being read
	reading  string   // its name if it was rotated
	noReader bool     // nobody reads: what is dropped is no problem
}

// watch rotates the log until stop is closed.
func (r *rotated) watch(stop <-chan struct{}) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if info, err := os.Stat(r.path); err != nil || info.Size() <= r.max {
			continue
		}
		if err := r.rotate(); err != nil {
			r.tell(fmt.Sprintf("failed to rotate the log: %v", err))
			return
		}
	}
}

// tell tells a problem, unless another one is being told.
func (r *rotated) tell(text string) {
	if r.telling.CompareAndSwap(false, true) {
		r.told.Go(func() {
			defer r.telling.Store(false)
			r.problem(text)
		})
	}
}

func (r *rotated) rotate() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("%s.%d", r.path, r.count+1)
	if err := os.Rename(r.path, name); err != nil {
		return err
	}
	if err := r.reopen(); err != nil {
		return errors.Join(err, os.Rename(name, r.path))
	}
	r.count++
	if r.file != nil && r.reading == "" {
		r.reading = name
	} else {
		r.old = append(r.old, name)
	}
	if len(r.old) < keepLogs {
		return nil
	}
	oldest := r.old[0]
	r.old = r.old[1:]
	if !r.noReader {
		r.tell("a part of the log was dropped: its output is not read as fast as it is written")
	}
	return os.Remove(oldest)
}

// current is the file to read from, nil without one.
func (r *rotated) current() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		return r.file, nil
	}
	name := r.path
	if len(r.old) > 0 {
		name = r.old[0]
	}
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	r.file = file
	if len(r.old) > 0 {
		r.old, r.reading = r.old[1:], name
	}
	return file, nil
}

// next closes the file that is being read if it was rotated, after what came into it before that;
// more says that there is a file to continue with.
func (r *rotated) next(read func(io.Reader) error) (more bool, err error) {
	r.mu.Lock()
	file, name := r.file, r.reading
	r.mu.Unlock()
	if name == "" {
		return false, nil
	}
	if err := read(file); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file, r.reading = nil, ""
	if err := errors.Join(file.Close(), os.Remove(name)); err != nil {
		return false, fmt.Errorf("remove log that was read: %w", err)
	}
	return true, nil
}

// unread says that nobody reads the log any more, so that what is dropped of it is no problem.
func (r *rotated) unread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noReader = true
}

// close closes the file that is being read.
func (r *rotated) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
