package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
)

// An entry is one line of the journal: eight hex digits of a CRC-32 (IEEE) of the rest, a space,
// and JSON.
type entry struct {
	Open *opened `json:"open,omitempty"`
	Take *Lease  `json:"take,omitempty"`
	Next uint64  `json:"next,omitempty"` // with Take: where the next search starts
	Free *freed  `json:"free,omitempty"`
}

// journalVersion is the format version of the journal.
const journalVersion = 1

type opened struct {
	Version int    `json:"version"`
	Boot    string `json:"boot"`
	Next    uint64 `json:"next"`
}

// freed ends a pod's lease, or, in a rewritten journal, says when addresses without a lease were
// freed.
type freed struct {
	Pod   string       `json:"pod,omitempty"`
	Addrs []netip.Addr `json:"addrs,omitempty"`
	At    time.Time    `json:"at"`
}

// journal is the file. Beside it lies a lock file, because the journal itself is replaced by
// renaming.
type journal struct {
	path  string
	lock  *os.File
	file  *os.File
	size  int64 // of the sound lines
	lines int
}

func openJournal(path, boot string) (*journal, []entry, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("lock leases: %w", err)
	}
	if err := durable.Lock(lock); err != nil {
		lock.Close()
		if errors.Is(err, durable.ErrLocked) {
			return nil, nil, fmt.Errorf("lock leases %q: another server uses this directory: %w", path, errdefs.ErrFailedPrecondition)
		}
		return nil, nil, fmt.Errorf("lock leases %q: %w", path, err)
	}
	entries, size, err := readJournal(path, boot)
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	return &journal{path: path, lock: lock, size: size, lines: len(entries)}, entries, nil
}

// readJournal reads the sound lines of a journal, with their size. A missing one has none.
func readJournal(path, boot string) ([]entry, int64, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, 0, fmt.Errorf("read leases: %w", err)
	}
	entries, size, err := decode(data)
	if err := judge(entries, boot, err); err != nil {
		return nil, 0, fmt.Errorf("read leases %q: %w", path, err)
	}
	return entries, size, nil
}

// judge says why a journal with these first entries cannot be used. err is where decoding ended.
func judge(entries []entry, boot string, err error) error {
	if len(entries) == 0 || entries[0].Open == nil {
		return err
	}
	switch open := entries[0].Open; {
	case open.Boot != boot:
		return nil // its leases ended with that boot; a power loss may have written a part of it
	case open.Version != journalVersion:
		return fmt.Errorf("it has format version %d, and this release reads %d: stop all pods, remove the file and start the server again: %w",
			open.Version, journalVersion, errdefs.ErrFailedPrecondition)
	}
	return err
}

// decode reads all lines but a torn last one, and tells their size. With a bad line before others
// it returns the ones before that.
func decode(data []byte) (out []entry, size int64, err error) {
	for n := 1; len(data) > 0; n++ {
		line, rest, complete := bytes.Cut(data, []byte{'\n'})
		e, err := decodeLine(line)
		if err != nil || !complete {
			if len(bytes.Trim(rest, "\x00")) == 0 { // a torn tail may have been extended by zeros
				return out, size, nil
			}
			return out, size, fmt.Errorf("line %d: %w", n, errors.Join(err, errdefs.ErrDataLoss))
		}
		out, size, data = append(out, e), size+int64(len(line))+1, rest
	}
	return out, size, nil
}

// reuse continues with the file as it is, after its last sound line.
func (j *journal) reuse() error {
	f, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open leases: %w", err)
	}
	j.file = f
	return f.Truncate(j.size)
}

func decodeLine(line []byte) (entry, error) {
	var e entry
	sum, body, ok := bytes.Cut(line, []byte{' '})
	if !ok || string(sum) != checksum(body) {
		return e, errors.New("checksum differs")
	}
	return e, json.Unmarshal(body, &e)
}

func encode(e entry) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s %s\n", checksum(body), body), nil
}

func checksum(body []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(body)) }

// append adds one line. On an error the journal is as it was.
func (j *journal) append(e entry) error {
	if j.file == nil {
		return fmt.Errorf("write leases: %w", os.ErrClosed)
	}
	line, err := encode(e)
	if err != nil {
		return err
	}
	_, err = j.file.WriteAt(line, j.size)
	if err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(len(line))
	j.lines++
	return nil
}

// rewrite replaces the journal.
func (j *journal) rewrite(entries []entry) error {
	var data []byte
	for _, e := range entries {
		line, err := encode(e)
		if err != nil {
			return err
		}
		data = append(data, line...)
	}
	err := durable.Write(j.path, data, 0o600)
	if err != nil && j.current() {
		return err
	}
	// From here on the old file is no longer what the path names: better none than one that will
	// not be read.
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	f, openErr := os.OpenFile(j.path, os.O_RDWR, 0)
	if openErr == nil {
		j.file, j.size, j.lines = f, int64(len(data)), len(entries)
	}
	return errors.Join(err, openErr)
}

// current reports whether the open file is still the one that the path names.
func (j *journal) current() bool {
	if j.file == nil {
		return false
	}
	have, err := j.file.Stat()
	named, err2 := os.Stat(j.path)
	return err == nil && err2 == nil && os.SameFile(have, named)
}

// close may be called again.
func (j *journal) close() error {
	var err error
	if j.file != nil {
		err = j.file.Close()
		j.file = nil
	}
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
		j.lock = nil
	}
	return err
}
