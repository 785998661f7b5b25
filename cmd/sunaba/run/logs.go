package run

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/crilog"
)

const followEvery = 50 * time.Millisecond

// follower writes a container's log, a file in the CRI's format, to the streams that its lines came
// from, as it grows and is rotated.
type follower struct {
	log    *rotated
	lines  *crilog.Lines
	broken func() // called when a stream cannot be written to any more
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once
	err    error // after done
}

// follow follows a log, whose file need not exist yet. With a prefix each line starts with it, in
// brackets.
func follow(log *rotated, prefix string, stdout, stderr io.Writer, broken func()) *follower {
	if prefix != "" {
		prefix = "[" + prefix + "] "
	}
	f := &follower{
		log:    log,
		lines:  crilog.NewLines(prefix, stdout, stderr),
		broken: broken,
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	var rotating sync.WaitGroup
	rotating.Go(func() { log.watch(f.stop) })
	go func() {
		defer close(f.done)
		if f.err = f.run(); f.err != nil {
			log.unread()
			f.broken()
		}
		rotating.Wait()
		log.told.Wait()
	}()
	return f
}

// finish writes what is left in the log and ends following. Further calls answer the same.
func (f *follower) finish() error {
	f.once.Do(func() { close(f.stop) })
	<-f.done
	return f.err
}

func (f *follower) run() error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	defer f.log.close()
	for last := false; ; {
		for more := true; more; {
			file, err := f.log.current()
			if err != nil {
				return err
			}
			if file != nil {
				if err := f.copy(file); err != nil {
					return err
				}
			}
			if more, err = f.log.next(f.copy); err != nil {
				return err
			}
		}
		if last {
			return f.lines.Close()
		}
		select {
		case <-f.stop:
			last = true // once more, for what came before the stop
		case <-tick.C:
		}
	}
}

// copy writes the file's lines up to its present end.
func (f *follower) copy(file io.Reader) error {
	_, err := io.Copy(f.lines, file)
	return err
}

// locked returns writers of whole texts. Those of one file, such as a terminal, take turns; else
// neither waits for a reader of the other that pauses.
func locked(a, b io.Writer) (io.Writer, io.Writer) {
	mu := &sync.Mutex{}
	if sameFile(a, b) {
		return &lockedWriter{mu, a}, &lockedWriter{mu, b}
	}
	return &lockedWriter{mu, a}, &lockedWriter{&sync.Mutex{}, b}
}

func sameFile(a, b io.Writer) bool {
	if a == b {
		return true
	}
	x, isFile := a.(*os.File)
	y, areFiles := b.(*os.File)
	if !isFile || !areFiles {
		return false
	}
	one, err := x.Stat()
	if err != nil {
		return false
	}
	other, err := y.Stat()
	return err == nil && os.SameFile(one, other)
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
