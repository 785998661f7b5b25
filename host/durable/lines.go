package durable

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"
)

// NewestFirst are the lines of a file to which versions are appended, the last before the others.
// What follows the last newline is no line: its write was cut short.
func NewestFirst(file []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for end := bytes.LastIndexByte(file, '\n'); end >= 0; {
			before := bytes.LastIndexByte(file[:end], '\n')
			if !yield(file[before+1 : end]) {
				return
			}
			end = before
		}
	}
}

// Mode says how Put writes a file.
type Mode struct {
	// Append adds to the file, which is there, else it is replaced as a whole.
	Append bool
	// Sync makes what was written durable before the write returns, if the name of a file that is
	// added to is durable. Else a power cut may lose it.
	Sync bool
}

// Put writes a file. If it cannot be added to, it is as it was, unless the disk refuses that too:
// so the next write is to replace it. Errors name the path.
func Put(path string, data []byte, m Mode) error {
	switch {
	case m.Append:
		if err := add(path, data, m.Sync); err != nil {
			return fmt.Errorf("add to %q: %w", path, err)
		}
		return nil
	case m.Sync:
		return Write(path, data, 0o600)
	}
	return Replace(path, data, 0o600)
}

func add(path string, data []byte, sync bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Write(data)
		if err == nil && sync {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err != nil && info.Mode().IsRegular() {
			err = errors.Join(err, f.Truncate(info.Size()))
		}
	}
	return errors.Join(err, f.Close())
}
