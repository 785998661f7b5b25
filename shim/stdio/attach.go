package stdio

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxBehind is how many bytes of output an attacher may be behind before it is let go.
const maxBehind = 1 << 20

// Attachment says by which FIFOs somebody takes part in the streams of a process. An empty name
// leaves a stream out. The caller has its ends of them open already: a reader of the outputs, a
// writer of the input.
type Attachment struct {
	Stdin, Stdout, Stderr string
	// Once ends the process's input with the end of this Stdin. A terminal's input does not end.
	Once bool
	// Ended is called after each of the streams has ended for this attacher: a good moment to give
	// memory back. It may be nil.
	Ended func()
}

// Attach lets somebody take part until it closes its ends, the streams end, or it is maxBehind
// bytes behind with reading: neither the process nor its log ever waits for it, except for the
// first attacher with AwaitAttach. Any number may be attached at once. A stream that the process
// does not have, or that has ended, is left alone: the caller sees its end.
//
// # Errors
//
// ErrFailedPrecondition if the streams are not attachable at all, or the caller has not opened its
// ends.
func (s *Streams) Attach(a Attachment) error {
	if s.input == nil && len(s.taps) == 0 {
		return fmt.Errorf("attach: the streams are their caller's: %w", errdefs.ErrFailedPrecondition)
	}
	if a.Ended == nil {
		a.Ended = func() {}
	}
	var made []*listener
	for stream, path := range map[string]string{"stdout": a.Stdout, "stderr": a.Stderr} {
		t := s.taps[stream]
		if path == "" || t == nil {
			continue
		}
		l, err := t.listen(path, a.Ended, s.log)
		if err != nil {
			for _, l := range made {
				l.cut()
			}
			return fmt.Errorf("attach to %s: %w", stream, err)
		}
		if l != nil {
			made = append(made, l)
		}
	}
	for _, l := range made {
		l.tie(made)
	}
	if len(made) > 0 && s.gate.take() {
		for _, l := range made {
			l.hold()
		}
		s.gate.open()
	}
	if a.Stdin == "" || s.input == nil {
		return nil
	}
	if err := s.input.attach(a); err != nil {
		for _, l := range made {
			l.cut()
		}
		return fmt.Errorf("attach to stdin: %w", err)
	}
	return nil
}

// tap is the sink of an output that can be listened to.
type tap struct {
	sink

	mu        sync.Mutex
	ended     bool
	listeners []*listener
}

// Write implements sink.
func (t *tap) Write(p []byte) (int, error) {
	n, err := t.sink.Write(p)
	t.room()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listeners = slices.DeleteFunc(t.listeners, func(l *listener) bool { return !l.offer(p) })
	return n, err
}

// Close implements sink. Listeners get what they have not got yet, and their end.
func (t *tap) Close() error {
	err := t.sink.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.listeners {
		l.finish()
	}
	t.ended = true
	return err
}

// Heard returns when attachers have what is left for them of output that has ended, but does not
// wait for them for ever: silence is without any of it being taken.
func (s *Streams) Heard(silence, most time.Duration) {
	late := time.After(most)
	for _, t := range s.taps {
		t.mu.Lock()
		left := t.listeners // no more come
		t.mu.Unlock()
		for _, l := range left {
			for last, now := int64(-1), l.passed.Load(); now != last; last, now = now, l.passed.Load() {
				select {
				case <-l.done:
				case <-time.After(silence):
				case <-late:
					return
				}
			}
		}
	}
}

func (t *tap) listen(path string, ended func(), log *slog.Logger) (*listener, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, nil
	}
	l, err := newListener(path, ended, log)
	if err != nil {
		return nil, err
	}
	t.listeners = append(t.listeners, l)
	return l, nil
}

// listener passes an output on to one FIFO, by a queue that its writer never waits for.
type listener struct {
	file *os.File
	log  *slog.Logger
	wake chan struct{} // holds one token when there is something new below
	done chan struct{} // closed when no more is passed on

	passed atomic.Int64 // bytes

	mu    sync.Mutex
	queue []byte
	ended bool        // no more will come
	gone  bool        // nobody wants any more
	first bool        // it is not let go for being behind
	holds bool        // the output waits for it
	less  *sync.Cond  // of mu: there is less in the queue, or the output waits no more
	tied  []*listener // of the same attacher
}

// newListener opens a FIFO that has a reader.
func newListener(path string, ended func(), log *slog.Logger) (*listener, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("FIFO %q has no reader: %w", path, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	l := &listener{file: file, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.less = sync.NewCond(&l.mu)
	go l.watch()
	go func() {
		l.pass()
		ended()
	}()
	return l, nil
}

// offer queues p. It reports whether the listener is still there.
func (l *listener) offer(p []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone:
		return false
	case len(l.queue)+len(p) > maxBehind && !l.first:
		l.log.Warn("reader detached: it is too slow", "behind", len(l.queue))
		l.leave()
		for _, other := range l.tied {
			go other.cut() // not here: it may be about to cut this one
		}
		return false
	}
	l.queue = append(l.queue, p...)
	l.nudge()
	return true
}

// tie makes listeners of one attacher end together when one is too slow: it would miss a part
// without knowing.
func (l *listener) tie(all []*listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, other := range all {
		if other != l {
			l.tied = append(l.tied, other)
		}
	}
}

// finish lets the listener go once it has got all that is queued.
func (l *listener) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.nudge()
}

// cut lets the listener go at once.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave()
}

// leave ends the passing on. The caller holds l.mu.
func (l *listener) leave() {
	l.gone, l.queue = true, nil
	_ = l.file.SetWriteDeadline(time.Unix(1, 0)) // closed already is as good
	l.nudge()
	l.less.Broadcast()
}

func (l *listener) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pass writes what is queued until the end.
func (l *listener) pass() {
	defer close(l.done)
	defer l.file.Close()
	for {
		l.mu.Lock()
		next, over := l.queue, l.ended || l.gone
		l.queue = nil
		l.less.Broadcast()
		l.mu.Unlock()
		if len(next) == 0 {
			if over {
				return
			}
			<-l.wake
			continue
		}
		for part := range slices.Chunk(next, chunk) {
			if _, err := l.file.Write(part); err != nil {
				l.cut()
				return
			}
			l.passed.Add(int64(len(part)))
		}
	}
}

// watch notices that the reader has closed its end while there is nothing to write. The end of a
// pipe that is written to has an error then, for which one waits as for something to read.
func (l *listener) watch() {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return
	}
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		return err != nil && err != unix.EINTR || n > 0 && fds[0].Revents&unix.POLLERR != 0
	})
	if err == nil {
		l.cut()
	}
}

// input is a process's input that stays open between attachers.
type input struct {
	file     *os.File // the pipe's end, or from Start on the terminal
	terminal bool
	ends     func() // called before the file is closed; may be nil

	mu      sync.Mutex
	over    bool // nobody can attach any more
	copiers map[*copier]struct{}
}

func (in *input) attach(a Attachment) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return nil
	}
	fifo, err := openFIFOReader(a.Stdin)
	if err != nil {
		return err
	}
	c := newCopier("stdin", fifo, &fileSink{File: in.file, keep: true}, true)
	in.copiers[c] = struct{}{}
	go func() {
		c.run()
		in.mu.Lock()
		delete(in.copiers, c)
		in.mu.Unlock()
		if a.Once && !in.terminal {
			in.shut()
			in.close()
		}
		a.Ended()
	}()
	return nil
}

// shut lets nobody attach any more and returns who has.
func (in *input) shut() []*copier {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	return slices.Collect(maps.Keys(in.copiers))
}

// finish passes on what attachers have written so far and then ends the input, which only a pipe
// has an end of.
func (in *input) finish() {
	if in.terminal {
		return
	}
	left := in.shut()
	for _, c := range left {
		c.finish()
	}
	go func() {
		for _, c := range left {
			<-c.done
		}
		in.close()
	}()
}

// stop ends it at once.
func (in *input) stop() {
	for _, c := range in.shut() {
		c.stop()
	}
	if !in.terminal {
		in.close()
	}
}

// close ends the input, a second time too.
func (in *input) close() {
	if in.ends != nil {
		in.ends()
	}
	in.file.Close()
}
