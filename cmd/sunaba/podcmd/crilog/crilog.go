// Package crilog reads the logs of containers, files in the CRI's format: the end of one, and what
// is added to it, also over rotations.
package crilog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/clock"
	"github.com/sunaba-project/sunaba/host/regular"
)

const (
	// timeFormat is RFC 3339 with a fixed width, as a kubelet shows it.
	timeFormat = "2006-01-02T15:04:05.000000000Z07:00"
	chunk      = 32 << 10
	// maxRecord bounds a record of a file; what is longer is no record and is left out.
	maxRecord = 1 << 20
	// maxHeld bounds what is held back of a line that is to be written whole.
	maxHeld = 256 << 10
	// followEvery is how often a file is looked at, aliveEvery how often its container.
	followEvery = 100 * time.Millisecond
	aliveEvery  = 500 * time.Millisecond
)

// Options say what of a log is wanted, and how.
type Options struct {
	// Tail is how many records from the end; below 0 is all.
	Tail int64
	// Since leaves out what is older.
	Since time.Time
	// LimitBytes ends after so many bytes; 0 is no limit.
	LimitBytes int64
	// Timestamps puts the time before each line, Prefix stands before that.
	Timestamps bool
	Prefix     string
	// Whole writes only whole lines, for a writer that others write to.
	Whole bool
	// Running says whether the container still runs; the log is followed until it does not. Nil
	// reads up to the present end. It is asked now and then, and not while the log grows.
	Running func(context.Context) bool
}

// Read writes the lines of a log to out. If it follows, it ends without an error when the container
// is over, and with ctx's error when ctx ends.
//
// # Errors
//
// ErrNotFound if there is no such log and it is not followed; ErrInvalidArgument if it is no
// regular file; those of out.
func Read(ctx context.Context, path string, o Options, out io.Writer) error {
	r := &reader{path: path, o: o, out: out, errOut: out, held: map[string][]byte{}, atStart: true}
	defer r.close()
	if err := r.start(ctx); err != nil || r.file == nil {
		return err
	}
	err := r.run(ctx)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// Lines writes the lines of a log, whose file is written to it in pieces of any size, each to the
// writer of its stream.
type Lines struct{ r reader }

// NewLines returns a writer for the file of a log. With a prefix it writes whole lines only.
func NewLines(prefix string, stdout, stderr io.Writer) *Lines {
	return &Lines{reader{o: Options{Prefix: prefix, Whole: prefix != ""}, out: stdout, errOut: stderr, held: map[string][]byte{}, atStart: true}}
}

// Write writes the lines that are whole in the file. Errors are those of the writers.
func (l *Lines) Write(data []byte) (int, error) {
	if err := l.r.records(data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Close writes what was held back of lines that never ended.
func (l *Lines) Close() error { return l.r.finish() }

// errLimit ends reading at LimitBytes.
var errLimit = errors.New("limit reached")

// reader reads a log and those that it became by rotation.
type reader struct {
	path   string
	o      Options
	out    io.Writer
	errOut io.Writer // of lines of stderr

	file    *os.File
	content io.Reader // of the file, unpacked
	offset  int64     // in file, if it is not packed
	rest    []byte    // of a record that is not whole yet
	skip    bool      // the rest of a record that is too long
	last    time.Time // of the last record

	written int64
	atStart bool              // of a line
	held    map[string][]byte // of lines that are not whole, by stream
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// start opens the log at the place where reading starts. If it is followed and not there yet, it is
// waited for, as is one that is being rotated; r.file is nil if the container ended without a log.
func (r *reader) start(ctx context.Context) error {
	over := false
	for tries := 0; ; tries++ {
		f, err := regular.Open(r.path)
		switch {
		case err == nil:
			r.file, r.content = f, f
			if r.o.Tail < 0 {
				return nil
			}
			if r.offset, err = tailOffset(f, r.o.Tail); err != nil {
				return fmt.Errorf("read log %q: %w", r.path, err)
			}
			_, err = f.Seek(r.offset, io.SeekStart)
			return err
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("open log: %w", err)
		case r.o.Running == nil && (tries == maxTries || !r.rotated()):
			return fmt.Errorf("open log: %w: %w", err, errdefs.ErrNotFound)
		case over:
			return nil
		}
		over = r.o.Running != nil && !r.o.Running(ctx)
		if err := clock.Sleep(ctx, followEvery); err != nil {
			return err
		}
	}
}

// run reads up to the end, and on if the log is followed.
func (r *reader) run(ctx context.Context) error {
	over, asked := r.o.Running == nil, time.Now()
	for {
		if err := r.drain(ctx); err != nil {
			return err
		}
		if r.o.Running != nil {
			advanced, err := r.advance(ctx)
			if err != nil {
				return err
			}
			if advanced {
				continue
			}
		}
		if over {
			return r.finish()
		}
		if time.Since(asked) >= aliveEvery {
			// What was written before it ended is read once more.
			over, asked = !r.o.Running(ctx), time.Now()
			continue
		}
		if err := clock.Sleep(ctx, followEvery); err != nil {
			return errors.Join(err, r.finish())
		}
	}
}

// drain writes the records up to the present end of the file.
func (r *reader) drain(ctx context.Context) error {
	buf := make([]byte, chunk)
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := r.content.Read(buf)
		r.offset += int64(n)
		if rerr := r.records(buf[:n]); rerr != nil {
			return rerr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log %q: %w", r.path, err)
		}
	}
}

// records takes the next bytes of the file.
func (r *reader) records(data []byte) error {
	for len(data) > 0 {
		line, after, whole := bytes.Cut(data, []byte("\n"))
		data = after
		if !r.skip {
			r.rest = append(r.rest, line...)
		}
		if len(r.rest) > maxRecord {
			r.rest, r.skip = nil, true
		}
		if !whole {
			return nil
		}
		record := r.rest
		skipped := r.skip
		r.rest, r.skip = r.rest[:0], false
		if skipped {
			continue
		}
		if err := r.record(record); err != nil {
			return err
		}
	}
	return nil
}

// record writes one record: time, stream, tag, content. The tag says whether the content ends a
// line of the container (F) or not (P). What is no record is left out, as a kubelet does.
func (r *reader) record(text []byte) error {
	at, stream, content, whole, ok := parse(text)
	if !ok {
		return nil
	}
	r.last = at
	if at.Before(r.o.Since) {
		return nil
	}
	if r.o.Whole {
		held := append(r.held[stream], content...)
		if !whole && len(held) < maxHeld {
			r.held[stream] = held
			return nil
		}
		content, whole = held, true
		delete(r.held, stream)
	}
	var line []byte
	if r.atStart {
		line = append(line, r.o.Prefix...)
		if r.o.Timestamps {
			line = append(at.AppendFormat(line, timeFormat), ' ')
		}
	}
	line = append(line, content...)
	if r.atStart = whole; whole {
		line = append(line, '\n')
	}
	return r.write(stream, line)
}

func parse(text []byte) (at time.Time, stream string, content []byte, whole, ok bool) {
	parts := bytes.SplitN(text, []byte(" "), 4)
	if len(parts) < 4 {
		return at, "", nil, false, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	stream = string(parts[1])
	tag, _, _ := strings.Cut(string(parts[2]), ":")
	return at, stream, parts[3], tag != "P", err == nil && (stream == "stdout" || stream == "stderr")
}

func (r *reader) write(stream string, line []byte) error {
	full := false
	if limit := r.o.LimitBytes; limit > 0 && r.written+int64(len(line)) >= limit {
		line, full = line[:limit-r.written], true
	}
	out := r.out
	if stream == "stderr" {
		out = r.errOut
	}
	n, err := out.Write(line)
	r.written += int64(n)
	if err == nil && full {
		err = errLimit
	}
	return err
}

// finish writes what was held back of lines that never ended.
func (r *reader) finish() error {
	for _, stream := range []string{"stdout", "stderr"} {
		if held := r.held[stream]; len(held) > 0 {
			delete(r.held, stream)
			line := append([]byte(r.o.Prefix), held...)
			if err := r.write(stream, append(line, '\n')); err != nil {
				return err
			}
		}
	}
	return nil
}

// tailOffset is where the last n records of a file start.
func tailOffset(f *os.File, n int64) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return end, nil
	}
	buf := make([]byte, chunk)
	for at := end; at > 0; {
		size := min(at, chunk)
		at -= size
		if _, err := f.ReadAt(buf[:size], at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := size - 1; i >= 0; i-- {
			if buf[i] != '\n' || at+i == end-1 { // the last record's own end
				continue
			}
			if n--; n == 0 {
				return at + i + 1, nil
			}
		}
	}
	return 0, nil
}
