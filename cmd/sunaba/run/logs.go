package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	followEvery = 50 * time.Millisecond
	// maxLine bounds what is held back of a line that is to carry a prefix.
	maxLine = 256 << 10
)

// follower writes a container's log, a file in the CRI's format, to the streams that its lines came
// from, as it grows and is rotated.
type follower struct {
	log    *rotated
	out    map[string]*stream
	rest   []byte // of a line that is not whole yet
	broken func() // called when a stream cannot be written to any more
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once
	err    error // after done
}

// stream is one of a container's two.
type stream struct {
	to     io.Writer
	prefix string
	held   []byte // of a line with a prefix, until it ends
}

// follow follows a log, whose file need not exist yet. With a prefix each line starts with it, in
// brackets.
func follow(log *rotated, prefix string, stdout, stderr io.Writer, broken func()) *follower {
	if prefix != "" {
		prefix = "[" + prefix + "] "
	}
	f := &follower{
		log:    log,
		out:    map[string]*stream{"stdout": {to: stdout, prefix: prefix}, "stderr": {to: stderr, prefix: prefix}},
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
			return f.flush()
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
	buf := make([]byte, 32<<10)
	for {
		n, err := file.Read(buf)
		f.rest = append(f.rest, buf[:n]...)
		for {
			line, rest, ok := bytes.Cut(f.rest, []byte("\n"))
			if !ok {
				break
			}
			if err := f.line(line); err != nil {
				return err
			}
			f.rest = rest
		}
		f.rest = append([]byte(nil), f.rest...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
}

// line writes one line of the file: time, stream, tag, content. The tag says
// whether the content ends a line of the container (F) or not (P).
func (f *follower) line(line []byte) error {
	parts := bytes.SplitN(line, []byte(" "), 4)
	if len(parts) < 4 {
		return fmt.Errorf("read log %q: %q is not a line of a CRI log", f.log.path, line)
	}
	s, ok := f.out[string(parts[1])]
	if !ok {
		return fmt.Errorf("read log %q: there is no stream %q", f.log.path, parts[1])
	}
	tag, _, _ := bytes.Cut(parts[2], []byte(":"))
	return s.write(parts[3], string(tag) != "P")
}

func (s *stream) write(content []byte, whole bool) error {
	if s.prefix != "" {
		s.held = append(s.held, content...)
		if !whole && len(s.held) < maxLine {
			return nil
		}
		content, whole = append([]byte(s.prefix), s.held...), true
		s.held = nil
	}
	if whole {
		content = append(content[:len(content):len(content)], '\n')
	}
	_, err := s.to.Write(content)
	return err
}

// flush writes lines that were never ended.
func (f *follower) flush() error {
	var errs []error
	for _, name := range []string{"stdout", "stderr"} {
		if s := f.out[name]; len(s.held) > 0 {
			errs = append(errs, s.write(nil, true))
		}
	}
	return errors.Join(errs...)
}

// locked returns writers that take turns.
func locked(a, b io.Writer) (io.Writer, io.Writer) {
	mu := &sync.Mutex{}
	return &lockedWriter{mu, a}, &lockedWriter{mu, b}
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
