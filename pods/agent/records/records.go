// Package records keeps what the agent decided about pods in one JSON file for each pod, so that
// the agent can be killed at any instruction and go on.
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
)

// Record is the file of one pod: the cycle's record, and what the agent itself must know.
type Record struct {
	cycle.Record
	// Manifest is the object as it stands in its source, in the version that is in force: what an
	// edit is compared with. Pod has the effects of admission too.
	Manifest *corev1.Pod `json:"manifest"`
	// Inputs are the hashes of the ConfigMaps and Secrets that the pod uses, by key, if it is to be
	// restarted when they change.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Evicted is the last eviction of the pod, or of the one in whose place it is.
	Evicted *pressure.Eviction `json:"evicted,omitempty"`
	// Resizing are the containers whose resources in Pod were not applied yet.
	Resizing []string `json:"resizing,omitempty"`
}

// UID is that of the pod.
func (r *Record) UID() string { return string(r.Pod.UID) }

// Broken is a record that could not be read.
type Broken struct {
	// UID is the name of its folder, Path is where the file was moved.
	UID, Path string
	Err       error
}

// Write replaces a file as a whole. With sync it is durable before it returns, else a power cut may
// lose it.
type Write func(path string, data []byte, sync bool) error

// Store is the folder of all records. Its methods may be called at the same time for different
// pods.
type Store struct {
	dir   string
	write Write
}

// Open returns the store in dir, which is made if it is not there. A nil write is package
// durable's.
func Open(dir string, write Write) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create folder of pod records: %w", err)
	}
	if write == nil {
		write = replaceFile
	}
	return &Store{dir, write}, nil
}

// Replace writes another file of the agent as records are written.
func (s *Store) Replace(path string, data []byte, sync bool) error { return s.write(path, data, sync) }

func replaceFile(path string, data []byte, sync bool) error {
	if sync {
		return durable.Write(path, data, 0o600)
	}
	return durable.Replace(path, data, 0o600)
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
	return decode(data, path, uid)
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

// Encode is the content of a record's file.
func Encode(r *Record) ([]byte, error) {
	r.Version = cycle.RecordVersion
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of pod %q: %w", r.UID(), err)
	}
	return data, nil
}

// Write replaces the record of a pod. Without sync a power cut may lose what changed: that is for
// what can be observed anew.
func (s *Store) Write(uid string, data []byte, sync bool) error {
	dir := filepath.Join(s.dir, uid)
	if err := os.Mkdir(dir, 0o700); err == nil {
		if err := durable.Sync(s.dir); err != nil {
			return fmt.Errorf("create folder of pod %q: %w", uid, err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create folder of pod %q: %w", uid, err)
	}
	return s.write(filepath.Join(dir, fileName), data, sync)
}

// Remove deletes the record of a pod, durably, and its folder if that is empty. One that is not
// there is no error.
func (s *Store) Remove(uid string) error {
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
