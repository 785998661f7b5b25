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

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

const (
	recordSuffix  = ".json"
	damagedSuffix = ".damaged"
	// maxFile is how large a file grows before it is replaced, if its newest line is short: else to
	// four times that, and never beyond maxLines.
	maxFile  = 64 << 10
	maxLines = 8 << 20
)

// Version is the version of the record layout this build writes. A record of a newer version is not
// understood and is treated as damaged.
const Version = 1

// envelope is a line of a file.
type envelope struct {
	Version int             `json:"version"`
	Record  json.RawMessage `json:"record"`
}

func (s *Store[R]) path(id string) string { return filepath.Join(s.dir, id+recordSuffix) }

// maxRecord bounds a record's file, in bytes: a request has 16 MiB at most, and JSON writes a byte
// of it in up to six.
const maxRecord = 256 << 20

// errUnfinished says that a file has a part of its first line, or nothing: nobody was told of it.
var errUnfinished = errors.New("its first write was cut short")

// version is the newest version of a record that can be read.
type version[R any] struct {
	rec  R
	size int   // of the file; 0 if nothing may be added to it
	lost error // what is wrong with a newer line that was whole
}

func (s *Store[R]) load(id string) (version[R], error) {
	data, err := regular.Read(s.path(id), maxRecord)
	if err != nil {
		return version[R]{}, fmt.Errorf("read record %q: %w", id, err)
	}
	var lost error
	for line := range durable.NewestFirst(data) {
		rec, err := s.decode(id, line)
		if err != nil {
			lost = cmp.Or(lost, err)
			continue
		}
		if u, ok := any(rec).(interface{ Unfinished() bool }); ok && lost != nil && u.Unfinished() {
			break // it was finished, perhaps, and is not to be undone without a trace
		}
		v := version[R]{rec: rec, lost: lost}
		if lost == nil && data[len(data)-1] == '\n' {
			v.size = len(data)
		}
		return v, nil
	}
	rec, err := s.decode(id, data) // an earlier release wrote no newline
	if err != nil && lost == nil && cutShort(data) {
		err = errUnfinished
	} else if err != nil {
		err = cmp.Or(lost, err)
	}
	return version[R]{rec: rec}, err
}

func (s *Store[R]) decode(id string, line []byte) (R, error) {
	var rec R
	var env envelope
	if err := json.Unmarshal(line, &env); err != nil {
		return rec, fmt.Errorf("parse record %q: %w", id, err)
	}
	if env.Version < 1 || env.Version > Version {
		return rec, fmt.Errorf("parse record %q: version %d is not known here (newest known: %d)", id, env.Version, Version)
	}
	if err := json.Unmarshal(env.Record, &rec); err != nil {
		return rec, fmt.Errorf("parse record %q: %w", id, err)
	}
	return rec, s.check(id, rec)
}

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
func (s *Store[R]) add(e *entry[R], path string, rec R, sync bool) error {
	line, err := encode(rec)
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
			if err := s.flush(s.dir); err != nil {
				return err
			}
			e.named = true
		}
		err = s.put(path, line, durable.Mode{Append: true, Sync: sync})
		if err == nil {
			e.size = size + len(line)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Also what is only noted is synced now: in the file is what may not be lost.
	line = fill(line, 0)
	if err := s.put(path, line, durable.Mode{Sync: true}); err != nil {
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

func encode[R any](rec R) ([]byte, error) {
	data, err := json.Marshal(struct {
		Version int `json:"version"`
		Record  R   `json:"record"`
	}{Version, rec})
	return append(data, '\n'), err
}
