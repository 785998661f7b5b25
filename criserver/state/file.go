package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

const (
	recordPrefix  = "record-" // and a number, not the id
	recordSuffix  = ".json"
	damagedSuffix = ".damaged"
	// maxFile is how large a file grows before it is replaced, if its newest line is short: else to
	// four times that, and never beyond maxLines.
	maxFile  = 64 << 10
	maxLines = 8 << 20
)

// Version is the version of the record layout that this build writes. A file of format 1 is named
// after the id of its record.
const Version = 2

// GoBack is what to do about a record of a newer format.
const GoBack = "start the newer release, and remove the pods with it before you go back to this one"

// newerFormat is the error of a record that a newer release wrote.
type newerFormat struct {
	file   string
	format int
}

func (e newerFormat) Error() string {
	return fmt.Sprintf("record %q is of format %d, which a newer release of sunaba wrote, and this one reads formats up to %d: %s",
		e.file, e.format, Version, GoBack)
}

func (newerFormat) Unwrap() error { return errdefs.ErrFailedPrecondition }

// envelope is a line of a file.
type envelope struct {
	Version int             `json:"version"`
	ID      string          `json:"id"`
	Record  json.RawMessage `json:"record"`
}

// maxRecord bounds a record's file, in bytes: a request has 16 MiB at most, and JSON writes a byte
// of it in up to six.
const maxRecord = 256 << 20

// errUnfinished says that a file has a part of its first line, or nothing: nobody was told of it.
var errUnfinished = errors.New("its first write was cut short")

// errFree says that a file is empty, and waits for a record.
var errFree = errors.New("it is empty")

// version is the newest version of a record that can be read.
type version[R any] struct {
	file string // its name
	id   string
	rec  R
	size int   // of the file; 0 if nothing may be added to it
	lost error // what is wrong with a newer line that was whole, and which line is used
	err  error // why no version can be read
}

// load reads the record in a file.
func (s *Store[R]) load(file string) version[R] {
	v := version[R]{file: file}
	data, err := regular.Read(filepath.Join(s.dir, file), maxRecord)
	if err != nil {
		v.err = fmt.Errorf("read record %q: %w", file, err)
		return v
	}
	if len(data) == 0 && reusable(file) {
		v.err = errFree
		return v
	}
	lines := bytes.Count(data, []byte("\n"))
	n, damaged := lines, 0
	var lost error
	for line := range durable.NewestFirst(data) {
		id, rec, err := s.decode(file, line)
		if errdefs.IsFailedPrecondition(err) {
			v.err = err
			return v
		}
		if err != nil {
			if lost == nil {
				lost, damaged = err, n
			}
			n--
			continue
		}
		if u, ok := any(rec).(interface{ Unfinished() bool }); ok && lost != nil && u.Unfinished() {
			break // it was finished, perhaps, and is not to be undone without a trace
		}
		v.id, v.rec = id, rec
		if lost != nil {
			v.lost = fmt.Errorf("line %d of %d is damaged, line %d is used: %w", damaged, lines, n, lost)
		} else if data[len(data)-1] == '\n' {
			v.size = len(data)
		}
		return v
	}
	v.id, v.rec, v.err = s.decode(file, data) // an earlier release wrote no newline
	if v.err != nil && lost == nil && cutShort(data) {
		v.err = errUnfinished
	} else if v.err != nil {
		v.err = cmp.Or(lost, v.err)
	}
	return v
}

// decode reads a line of a file.
//
// # Errors
//
// ErrFailedPrecondition if it is of a newer format.
func (s *Store[R]) decode(file string, line []byte) (id string, rec R, err error) {
	var env envelope
	if err := json.Unmarshal(line, &env); err != nil {
		return "", rec, fmt.Errorf("parse record %q: %w", file, err)
	}
	switch {
	case env.Version > Version:
		return "", rec, newerFormat{filepath.Join(s.dir, file), env.Version}
	case env.Version < 1:
		return "", rec, fmt.Errorf("parse record %q: no format is numbered %d", file, env.Version)
	}
	if err := json.Unmarshal(env.Record, &rec); err != nil {
		return "", rec, fmt.Errorf("parse record %q: %w", file, err)
	}
	id = env.ID
	if !reusable(file) {
		id = strings.TrimSuffix(file, recordSuffix)
	}
	return id, rec, s.check(id, rec)
}

// reusable says whether a file is not named after a record: once that is removed, another may be
// written into it.
func reusable(file string) bool { return strings.HasPrefix(file, recordPrefix) }

// cutShort says whether data is the first part of a line, with what a power cut may leave after it.
func cutShort(data []byte) bool {
	var any json.RawMessage
	err := json.NewDecoder(bytes.NewReader(bytes.TrimRight(data, "\x00"))).Decode(&any)
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// putAside renames a damaged file so that neither this nor the next start meets it again.
func (s *Store[R]) putAside(name string, cause error) {
	from, to := filepath.Join(s.dir, name), filepath.Join(s.dir, name+damagedSuffix)
	if err := os.Rename(from, to); err != nil {
		s.logger.Error("failed to put damaged record aside", "file", from, "cause", cause, "error", err)
		return
	}
	s.logger.Error("damaged record put aside", "file", to, "cause", cause)
}

// add writes the next version of a record. After an error the file has the one before, as far as
// the disk allows, and the next write replaces it.
func (s *Store[R]) add(id string, e *entry[R], rec R, sync bool) error {
	err := s.write(id, e, rec, sync)
	if err == nil {
		s.wrote(id, e)
	}
	return err
}

func (s *Store[R]) write(id string, e *entry[R], rec R, sync bool) error {
	line, err := encode(id, rec)
	if err != nil {
		return err
	}
	size := e.size
	if sync {
		line = fill(line, size)
	}
	e.size = 0 // until all is known to be there
	if size > 0 && size+len(line) <= max(maxFile, min(4*len(line), maxLines)) {
		if sync && !e.named {
			if err := s.Settle(); err != nil {
				return err
			}
			e.named = true
		}
		err = s.put(e.file, line, durable.Mode{Append: true, Sync: sync})
		if err == nil {
			e.size = size + len(line)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Also what is only noted is synced now: in the file is what may not be lost.
	line = fill(line, 0)
	if err := s.put(e.file, line, durable.Mode{Sync: true}); err != nil {
		return err
	}
	e.size, e.named = len(line), true
	return nil
}

// sector is what a disk writes as one, in bytes.
const sector = 512

// fill ends a line that starts at an offset with its sector: no later one is written over a part
// that is durable.
func fill(line []byte, offset int) []byte {
	line = bytes.TrimRight(line, " \n")
	for (offset+len(line)+1)%sector != 0 {
		line = append(line, ' ')
	}
	return append(line, '\n')
}

func encode[R any](id string, rec R) ([]byte, error) {
	data, err := json.Marshal(struct {
		Version int    `json:"version"`
		ID      string `json:"id"`
		Record  R      `json:"record"`
	}{Version, id, rec})
	return append(data, '\n'), err
}
