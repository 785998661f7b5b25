package unpack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

// recordFile holds, in the folder of a layer, what metadata.db says about it. A folder in
// "snapshots" has this file only while it is whole: the file is on disk before the folder is moved
// there, and its removal is on disk before anything else in the folder is deleted. So layers can be
// restored without metadata.db, see restore.
const recordFile = "record"

const (
	recordVersion = 1
	maxRecord     = 32 << 10 // bytes; it is also what bolt takes as a key
)

// record is what a layer's record file holds after a line with its digest.
type record struct {
	Version       int
	Chain, Parent digest.Digest
	Labels        map[string]string `json:",omitempty"`
	Bytes, Inodes int64
}

func (g staged) record(l Layer) record {
	return record{
		Version: recordVersion, Chain: l.Chain, Parent: l.Parent,
		Labels: g.labels(), Bytes: g.print.Room, Inodes: g.print.Inodes,
	}
}

func (r record) encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append([]byte(digest.FromBytes(data).String()+"\n"), data...), nil
}

// writeRecord writes the record file of a layer's folder. The caller syncs.
func writeRecord(dir string, r record) error {
	data, err := r.encode()
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, recordFile), data, 0o600)
}

// readRecord reads the record file of a layer's folder.
//
// # Errors
//
// fs.ErrNotExist without one; any other says why the folder cannot be used.
func readRecord(dir string) (r record, err error) {
	path := filepath.Join(dir, recordFile)
	data, err := regular.Read(path, maxRecord)
	if err != nil {
		return r, err
	}
	line, data, _ := bytes.Cut(data, []byte("\n"))
	if string(line) != digest.FromBytes(data).String() {
		return r, fmt.Errorf("read %q: its content does not match its digest: %w", path, errdefs.ErrDataLoss)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read %q: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	if r.Version != recordVersion {
		return r, fmt.Errorf("read %q: it has version %d, this program reads %d: %w", path, r.Version, recordVersion, errdefs.ErrDataLoss)
	}
	err = r.Chain.Validate()
	if err == nil && r.Parent != "" {
		err = r.Parent.Validate()
	}
	if _, ok := r.Labels[""]; err == nil && ok {
		err = errors.New("a label has no name")
	}
	if err != nil {
		return r, fmt.Errorf("read %q: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	return r, nil
}

// keepRecords makes the record file of each layer say what metadata.db says: a layer may come from
// a program that wrote none, or its labels have changed. A layer whose file cannot be written
// works, and is lost with metadata.db.
func (s *records) keepRecords(ctx context.Context) {
	if err := s.tryKeepRecords(s.quiet(ctx)); err != nil {
		s.logger.Warn("failed to write records of layers into their folders: layers are lost if metadata.db is", "error", err)
	}
}

func (s *records) tryKeepRecords(ctx context.Context) error {
	s.folders.Lock()
	defer s.folders.Unlock()
	layers, err := s.recorded(ctx)
	if err != nil {
		return err
	}
	var errs []error
	written := false
	for id, r := range layers {
		dir := filepath.Join(s.layersDir(), id)
		data, err := r.encode()
		if err != nil {
			return err
		}
		if had, err := regular.Read(filepath.Join(dir, recordFile), maxRecord); err == nil && bytes.Equal(had, data) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "fs")); errors.Is(err, fs.ErrNotExist) {
			continue // the layer is not there, see Has
		}
		errs = append(errs, durable.Sweep(dir), writeRecord(dir, r))
		written = true
	}
	if written {
		errs = append(errs, s.Sync())
	}
	return errors.Join(errs...)
}

// recorded returns what metadata.db says about layers, by the names of their folders.
func (s *records) recorded(ctx context.Context) (map[string]record, error) {
	layers := make(map[string]record)
	err := s.meta.WithTransaction(ctx, false, func(ctx context.Context) error {
		return storage.WalkInfo(ctx, func(ctx context.Context, info snapshots.Info) error {
			if info.Kind != snapshots.KindCommitted {
				return nil
			}
			id, info, usage, err := storage.GetInfo(ctx, info.Name)
			layers[id] = record{
				Version: recordVersion, Chain: digest.Digest(info.Name), Parent: digest.Digest(info.Parent),
				Labels: info.Labels, Bytes: usage.Size, Inodes: usage.Inodes,
			}
			return err
		})
	})
	if errdefs.IsNotFound(err) {
		return nil, nil // a store that has never held anything
	}
	return layers, err
}

// removeRecords removes the record files of folders that are about to be deleted, durably. It
// returns the folders that may be.
func removeRecords(dirs []string) (ready []string, err error) {
	var errs []error
	var changed []string
	for _, dir := range dirs {
		err := os.Remove(filepath.Join(dir, recordFile))
		switch {
		case err == nil:
			changed = append(changed, dir)
		case errors.Is(err, fs.ErrNotExist) || !isDir(dir):
			ready = append(ready, dir) // of a container, or deleted in part before
		default:
			errs = append(errs, err)
		}
	}
	for _, dir := range changed { // the first brings the others to disk too, with most filesystems
		if err := durable.Sync(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		ready = append(ready, dir)
	}
	return ready, errors.Join(errs...)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
