package unpack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/regular"
)

// recordFile holds, in the folder of a layer or a root, all that is recorded about it. A folder is
// made elsewhere and moved to "snapshots" when it is complete, with this file; and it has another
// name before anything in it is deleted. So each folder in "snapshots" that has a record is whole.
const recordFile = "record"

const (
	recordVersion = 1
	maxRecord     = 32 << 10 // bytes
)

// record is what a record file holds after a line with its digest.
type record struct {
	Version int
	Chain   digest.Digest `json:",omitempty"` // of a layer; "" for a root
	Key     string        `json:",omitempty"` // of a root; "" for a layer
	View    bool          `json:",omitempty"` // a root that nobody writes to
	Parent  digest.Digest
	Labels  map[string]string `json:",omitempty"`
	Bytes   int64             // a layer takes
	Inodes  int64
}

// folder is the folder of a layer, whose name is a number, or of a root.
type folder struct {
	name string
	record
}

// write writes the record file of a folder by write.
//
// # Errors
//
// ErrInvalidArgument for a record that is too long.
func (r record) write(dir string, write func(path string, data []byte, mode os.FileMode) error) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	data = append([]byte(digest.FromBytes(data).String()+"\n"), data...)
	if len(data) > maxRecord {
		return fmt.Errorf("record %q: it has more than %d bytes: %w", r.Key, maxRecord, errdefs.ErrInvalidArgument)
	}
	return write(filepath.Join(dir, recordFile), data, 0o600)
}

// readRecord reads the record of a folder.
//
// # Errors
//
// ErrDataLoss for a folder that is not whole; ErrFailedPrecondition for a record that a newer
// release wrote; any other says nothing of the folder.
func readRecord(dir string) (r record, err error) {
	path := filepath.Join(dir, recordFile)
	data, err := regular.Read(path, maxRecord)
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, fs.ErrPermission):
		return r, err
	case err != nil:
		return r, fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
	}
	line, data, _ := bytes.Cut(data, []byte("\n"))
	if string(line) != digest.FromBytes(data).String() {
		return r, fmt.Errorf("read %q: its content does not match its digest: %w", path, errdefs.ErrDataLoss)
	}
	if err = json.Unmarshal(data, &r); err == nil && r.Version > recordVersion {
		return r, fmt.Errorf("record %q is of format %d, which a newer release of sunaba wrote: start that release, or remove all pods with it before you go back to this one: %w",
			path, r.Version, errdefs.ErrFailedPrecondition)
	}
	for _, d := range []digest.Digest{r.Chain, r.Parent} {
		if err == nil && d != "" {
			err = d.Validate()
		}
	}
	if err == nil && (r.Chain == "") == (r.Key == "") {
		err = errors.New("it is neither of a layer nor of a root")
	}
	if err == nil && !isDir(filepath.Join(dir, "fs")) {
		err = errors.New("the files are missing")
	}
	if err != nil {
		return r, fmt.Errorf("read %q: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	return r, nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
