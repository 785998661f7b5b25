package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/regular"
)

// LockRange locks the file of a range of user ids in a folder that all agents and runs of a machine
// share. The lock ends with the process. The range of a pod that has a record is not free then: the
// file names the record's folder, "" for a pod that ends with the process.
//
// # Errors
//
// durable.ErrLocked if somebody else has the range.
func LockRange(folder string, first uint32, record string) (*os.File, error) {
	path := filepath.Join(folder, strconv.FormatUint(uint64(first), 10))
	for {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make folder of locks: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the folder was removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("make lock: %w", err)
		}
		if err := durable.Lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// A file that its owner removed before it was locked here locks nothing.
		named, err := durable.Named(f)
		if named {
			if err := claim(f, record); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
	}
}

// claim writes a record's folder into a locked file, unless that names another one that is there,
// or may be: only one that is known not to exist has no pod.
func claim(f *os.File, record string) error {
	data, err := regular.Read(f.Name(), 4096)
	if err != nil {
		return fmt.Errorf("read lock: %w", err)
	}
	other := strings.TrimSpace(string(data))
	if other == record {
		return nil
	}
	if other != "" {
		if _, err := os.Stat(other); err == nil {
			return durable.ErrLocked
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for the record that has range %q: %w: %w", f.Name(), err, durable.ErrLocked)
		}
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	if _, err := f.WriteAt([]byte(record), 0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}
