package stdio

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// timestamp is RFC 3339 with a fixed width, so that records sort as text.
const timestamp = "2006-01-02T15:04:05.000000000Z07:00"

// batchSize is how much is written at once; it holds the longest record.
const batchSize = 32 << 10

// batches are taken while records are being made.
var batches = sync.Pool{New: func() any { return new([batchSize]byte) }}

// logFile is a log in CRI format. It is this file's only writer; every write(2) appends whole
// records, so that stdout and stderr never mix within a line and a reader never sees half of one.
type logFile struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	file    *os.File // nil when the last stream has ended
	streams int
	writes  int
	failing bool // the last write failed and was reported

	meter *meter      // nil without limits
	timer *time.Timer // tells of what was dropped if nothing else is written
}

func openLog(path string, limits Limits, log *slog.Logger) (*logFile, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("log file %q: path is not absolute: %w", path, errdefs.ErrInvalidArgument)
	}
	file, err := appendTo(path)
	if err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}
	l := &logFile{path: path, log: log, file: file}
	if limits != (Limits{}) {
		info, err := file.Stat()
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("open log file: %w", err)
		}
		l.meter = newMeter(limits, info.Size(), time.Now())
	}
	return l, nil
}

// appendTo opens a log, which must be a regular file: a pipe would hold up whoever opens it or
// writes to it, and a link lead out of the folder of logs, into which pods may write.
func appendTo(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o640)
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP):
		// A pipe that nothing reads, a socket, a folder, or a link.
		return nil, fmt.Errorf("%q is not a regular file: %w", path, errdefs.ErrInvalidArgument)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR): // its folder was taken away
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	case err != nil:
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q is not a regular file: %w", path, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// stream returns the sink for one stream of the file, which is closed with its last one.
func (l *logFile) stream(name string) sink {
	l.streams++
	return &logStream{file: l, name: name, split: splitter{max: MaxLine}}
}

// reopen follows a rotation. Records are whole on either side of it.
func (l *logFile) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return fmt.Errorf("log file %q has had its last line: %w", l.path, errdefs.ErrFailedPrecondition)
	}
	file, err := appendTo(l.path)
	if err != nil {
		return fmt.Errorf("reopen log file: %w", err)
	}
	l.rotate(file)
	l.file.Close()
	l.file, l.failing = file, false
	return nil
}

// append writes whole records. What cannot be written is dropped, and the shim's log says so
// once: a full disk must not stop the program whose output this is.
func (l *logFile) append(records []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(records)
}

// write is append. The caller holds the lock.
func (l *logFile) write(records []byte) {
	if len(records) == 0 || l.file == nil {
		return
	}
	l.writes++
	n, err := l.file.Write(records)
	if err == nil {
		l.failing = false
		return
	}
	if n > 0 { // half a record must not stay: the next one would continue its line
		if info, statErr := l.file.Stat(); statErr == nil {
			err = errors.Join(err, l.file.Truncate(info.Size()-int64(n)))
		}
	}
	if !l.failing {
		l.failing = true
		l.log.Error("failed to write log, lines are dropped", "path", l.path, "error", err)
	}
}

func (l *logFile) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams--
	if l.streams > 0 || l.file == nil {
		return nil
	}
	l.last()
	err := l.file.Close()
	l.file = nil
	return err
}

// logStream turns one stream into records.
type logStream struct {
	file  *logFile
	name  string
	split splitter

	inLine, skips bool // a line's rest is to come; it is dropped
}

// Write implements sink. Lines that were read together carry one time.
func (s *logStream) Write(p []byte) (int, error) {
	s.records(func(emit func(byte, []byte)) { s.split.write(p, emit) })
	return len(p), nil
}

// Close implements sink.
func (s *logStream) Close() error {
	s.records(s.split.flush)
	return s.file.release()
}

// records appends what cut emits, in as few writes as fit a batch.
func (s *logStream) records(cut func(emit func(tag byte, content []byte))) {
	batch := batches.Get().(*[batchSize]byte)
	defer batches.Put(batch)
	out := batch[:0]
	now := time.Now().UTC()
	if s.file.meter != nil {
		cut(func(tag byte, content []byte) { s.file.limited(s, batch, now, tag, content) })
		return
	}
	cut(func(tag byte, content []byte) {
		if len(out)+len(timestamp)+len(s.name)+len(content)+5 > batchSize {
			s.file.append(out)
			out = batch[:0]
		}
		out = appendRecord(out, now, s.name, tag, content)
	})
	s.file.append(out)
}

// appendRecord appends one record: time, stream, tag, content.
func appendRecord(out []byte, at time.Time, stream string, tag byte, content []byte) []byte {
	out = at.AppendFormat(out, timestamp)
	out = append(out, ' ')
	out = append(out, stream...)
	out = append(out, ' ', tag, ' ')
	out = append(out, content...)
	return append(out, '\n')
}
