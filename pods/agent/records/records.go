// Package records keeps what the agent decided about pods in one file for each pod, so that the
// agent can be killed at any instruction and continue.
//
// A file has one record in each line, as JSON: the last whole line counts. So a change is one
// synced write of a few kilobytes, where replacing a file takes two, of the file and of its folder.
// What a crash left of a line is no record. A file that has grown is replaced by its last line.
package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

const (
	fileName = "pod.json"
	// broken is the folder of records that cannot be read.
	broken = "broken"
	// maxRecord bounds a record: a pod is below 10 MiB, and a record has it twice.
	maxRecord = 32 << 20
	// maxBroken is how many unreadable records are kept.
	maxBroken = 100
	// maxFile is how large a file grows before it is replaced.
	maxFile = 64 << 10
)

// Record is the file of one pod: the cycle's record, and what the agent itself must know.
type Record struct {
	cycle.Record
	// Manifest is the object as it stands in its source, in the version that is in force: what an
	// edit is compared with. Pod has the effects of admission too.
	Manifest *corev1.Pod `json:"manifest"`
	// Inputs are the hashes of the ConfigMaps and Secrets that the pod uses, by key, as they were
	// last seen.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Evicted is the last eviction of the pod, or of the one in whose place it is.
	Evicted *pressure.Eviction `json:"evicted,omitempty"`
	// Resizing are the containers whose resources in Pod were not applied yet.
	Resizing []string `json:"resizing,omitempty"`
}

// UID is that of the pod.
func (r *Record) UID() string { return string(r.Pod.UID) }

// Broken is a record that failed to be read.
type Broken struct {
	// UID is the name of its folder, Path is where the file was moved.
	UID, Path string
	Err       error
}

// Mode says how a file is written.
type Mode = durable.Mode

// Write writes a file.
type Write func(path string, data []byte, mode Mode) error

// Store is the folder of all records. Its methods may be called at the same time for different
// pods.
type Store struct {
	dir   string
	write Write

	mu sync.Mutex
	// sizes are those of files that this process has written, by UID. What a crash may have left at
	// the end of another one must not become part of a line.
	sizes map[string]int
}

// Open returns the store in dir, which is made if it is not there. A nil write is package
// durable's.
func Open(dir string, write Write) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder of pod records: %w", err)
	}
	if write == nil {
		write = durable.Put
	}
	return &Store{dir: dir, write: write, sizes: map[string]int{}}, nil
}

// Replace writes another file of the agent as records are written.
func (s *Store) Replace(path string, data []byte, sync bool) error {
	return s.write(path, data, Mode{Sync: sync})
}

// Load reads all records, sorted by UID. Those that cannot be read are moved to the folder "broken"
// and returned apart.
//
// # Errors
//
// ErrFailedPrecondition for a record of a newer version: nothing is moved then, and the agent must
// not start. Else those of the file system.
func (s *Store) Load() ([]*Record, []Broken, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("list pod records: %w", err)
	}
	var all []*Record
	var bad []Broken
	for _, e := range entries {
		if !e.IsDir() || !IsUID(e.Name()) {
			continue
		}
		dir := filepath.Join(s.dir, e.Name())
		if err := durable.Sweep(dir); err != nil {
			return nil, nil, fmt.Errorf("read pod record %q: %w", e.Name(), err)
		}
		r, err := read(filepath.Join(dir, fileName), e.Name())
		switch {
		case errdefs.IsFailedPrecondition(err):
			return nil, nil, err
		case errors.Is(err, fs.ErrNotExist):
			// The agent was killed before its first record, or after the last. What is in it is for
			// the sweep of volumes.
			if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("remove folder of deleted pod: %w", err)
			}
		case err != nil:
			bad = append(bad, Broken{UID: e.Name(), Err: err})
		default:
			all = append(all, r)
		}
	}
	for i := range bad {
		if bad[i].Path, err = s.setAside(bad[i].UID); err != nil {
			return nil, nil, err
		}
	}
	return all, bad, nil
}

func read(path, uid string) (*Record, error) {
	data, err := regular.Read(path, maxRecord)
	if err != nil {
		return nil, err
	}
	return decode(Last(data), path, uid)
}

// Last is the record of a file that counts: the last line that is whole. All is returned of a file
// without any.
func Last(file []byte) []byte {
	for line := range durable.NewestFirst(file) {
		if json.Valid(line) {
			return line
		}
	}
	return file
}

// Copy is a record that shares nothing with another one.
func Copy(r *Record) (*Record, error) {
	data, err := Encode(r)
	if err != nil {
		return nil, err
	}
	c, err := decode(data, "of "+r.UID(), r.UID())
	if err != nil {
		return nil, err
	}
	c.Live = r.Live
	c.Live.Running, c.Live.Failures = maps.Clone(r.Live.Running), maps.Clone(r.Live.Failures)
	c.Live.Stopped, c.Live.Told = maps.Clone(r.Live.Stopped), maps.Clone(r.Live.Told)
	return c, nil
}

func decode(data []byte, path, uid string) (*Record, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("read pod record %q: %w", path, err)
	}
	if head.Version > cycle.RecordVersion {
		return nil, fmt.Errorf("read pod record %q: it has version %d and this release reads up to %d: start the newer release again: %w",
			path, head.Version, cycle.RecordVersion, errdefs.ErrFailedPrecondition)
	}
	if head.Version < 1 {
		return nil, fmt.Errorf("read pod record %q: version %d: %w", path, head.Version, errdefs.ErrDataLoss)
	}
	r := &Record{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("read pod record %q: %w", path, err)
	}
	if r.Pod == nil || r.Manifest == nil || string(r.Pod.UID) != uid || r.Pod.Name == "" || r.Pod.Namespace == "" {
		return nil, fmt.Errorf("read pod record %q: it is not about pod %q: %w", path, uid, errdefs.ErrDataLoss)
	}
	return r, nil
}

// setAside moves an unreadable record to the folder of those.
func (s *Store) setAside(uid string) (string, error) {
	dir := filepath.Join(s.dir, broken)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("move unreadable pod record: %w", err)
	}
	if err := forgetOldest(dir); err != nil {
		return "", fmt.Errorf("move unreadable pod record: %w", err)
	}
	to := filepath.Join(dir, uid+"."+time.Now().UTC().Format("20060102-150405.000000000")+".json")
	if err := os.Rename(filepath.Join(s.dir, uid, fileName), to); err != nil {
		return "", fmt.Errorf("move unreadable pod record: %w", err)
	}
	return to, nil
}

// forgetOldest keeps the folder of unreadable records in bounds.
func forgetOldest(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < maxBroken {
		return err
	}
	oldest := slices.MinFunc(entries, func(a, b os.DirEntry) int { return modified(a).Compare(modified(b)) })
	return os.Remove(filepath.Join(dir, oldest.Name()))
}

func modified(e os.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Encode is a record's line.
func Encode(r *Record) ([]byte, error) {
	r.Version = cycle.RecordVersion
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of pod %q: %w", r.UID(), err)
	}
	return append(data, '\n'), nil
}

// Write writes the record of a pod. Without sync a power cut may lose what changed: that is for
// what can be observed anew.
func (s *Store) Write(uid string, data []byte, sync bool) error {
	size := s.size(uid)
	if size > 0 && size+len(data) <= maxFile {
		if err := s.write(filepath.Join(s.dir, uid, fileName), data, Mode{Append: true, Sync: sync}); err != nil {
			s.setSize(uid, 0) // part of it may be there, and an error of a sync is told once
			return err
		}
		s.setSize(uid, size+len(data))
		return nil
	}
	s.setSize(uid, 0)
	err := s.replace(uid, data, sync)
	if err == nil && sync { // else the name of the file may be lost with what is added to it
		s.setSize(uid, len(data))
	}
	return err
}

func (s *Store) size(uid string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizes[uid]
}

// setSize notes the size of a file; 0 has the next write replace it.
func (s *Store) setSize(uid string, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size > 0 {
		s.sizes[uid] = size
	} else {
		delete(s.sizes, uid)
	}
}

// replace writes the file of a record anew, with its folder.
func (s *Store) replace(uid string, data []byte, sync bool) error {
	dir := filepath.Join(s.dir, uid)
	if err := os.Mkdir(dir, 0o700); err == nil {
		if err := durable.Sync(s.dir); err != nil {
			return fmt.Errorf("create folder of pod %q: %w", uid, err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create folder of pod %q: %w", uid, err)
	}
	return s.write(filepath.Join(dir, fileName), data, Mode{Sync: sync})
}

// Remove deletes the record of a pod, durably, and its folder if that is empty. One that is not
// there is no error.
func (s *Store) Remove(uid string) error {
	s.setSize(uid, 0)
	dir := filepath.Join(s.dir, uid)
	if err := os.Remove(filepath.Join(dir, fileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record of pod %q: %w", uid, err)
	}
	if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return durable.Sync(s.dir)
	}
	return durable.Sync(dir)
}

// IsUID says whether a name has the form of the UIDs that the agent makes: lower-case hexadecimal
// digits in groups of 8, 4, 4, 4 and 12.
func IsUID(name string) bool {
	if len(name) != 36 {
		return false
	}
	for i, c := range []byte(name) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if dash != (c == '-') || !dash && !hex {
			return false
		}
	}
	return true
}
