// Package logs keeps the logs of pods in bounds: it rotates those of running containers, compresses
// older parts and removes what is left of removed containers and pods.
package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	stamp      = "20060102-150405"
	compressed = ".gz"
	unfinished = ".tmp"
)

// Limits are how much of a container's log is kept.
type Limits struct {
	// Size is from where on a log is rotated, in bytes; Files is how many are kept with the current
	// one, at least 2.
	Size  int64
	Files int
}

// Rotate rotates the log of a running container, if it is larger than it may be. reopen makes the
// container write to a new file of the same name; it is called for a log that is not there too, as
// after a rotation that was killed. Rotate reports whether it rotated the log.
//
// # Errors
//
// Those of the file system and of reopen; the log is then as it was.
func Rotate(ctx context.Context, path string, l Limits, now time.Time, reopen func(context.Context) error) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) { // the container writes to a part, or to a file without a name
		if err := reopen(ctx); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
			return false, fmt.Errorf("reopen log %q: %w", path, err)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("rotate log: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() < l.Size {
		return false, nil
	}
	if err := tidy(path, l); err != nil {
		return false, fmt.Errorf("rotate log %q: %w", path, err)
	}
	rotated, err := nextPart(path, now)
	if err != nil {
		return false, fmt.Errorf("rotate log %q: %w", path, err)
	}
	if err := os.Rename(path, rotated); err != nil {
		return false, fmt.Errorf("rotate log: %w", err)
	}
	if err := reopen(ctx); err != nil {
		// The container still writes to the old file, which takes its name back. If only the answer
		// was lost, there is a new one.
		back := unix.Renameat2(unix.AT_FDCWD, rotated, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
		if errors.Is(back, unix.EEXIST) {
			return true, nil
		}
		return false, errors.Join(fmt.Errorf("reopen log %q: %w", path, err), back)
	}
	return true, nil
}

// tidy removes what a killed rotation left, then the oldest parts, so that there is room for one
// more, and compresses all but the newest: to that the container may still write.
func tidy(path string, l Limits) error {
	parts, err := partsOf(path)
	if err != nil {
		return err
	}
	parts = slices.DeleteFunc(parts, func(p string) bool {
		twin := strings.HasSuffix(p, compressed) && slices.Contains(parts, strings.TrimSuffix(p, compressed))
		if strings.HasSuffix(p, unfinished) || twin {
			err = errors.Join(err, os.Remove(p))
			return true
		}
		return false
	})
	if err != nil {
		return err
	}
	for len(parts) > max(l.Files-2, 0) {
		if err := os.Remove(parts[0]); err != nil {
			return err
		}
		parts = parts[1:]
	}
	for i, p := range parts {
		if i == len(parts)-1 || strings.HasSuffix(p, compressed) {
			continue
		}
		if err := compress(p); err != nil {
			return err
		}
	}
	return nil
}

// partsOf are the rotated parts of a log, from the oldest to the newest.
func partsOf(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, e := range entries {
		suffix, found := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if !found || !e.Type().IsRegular() || len(suffix) < len(stamp) {
			continue
		}
		if _, err := time.Parse(stamp, suffix[:len(stamp)]); err == nil {
			parts = append(parts, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(parts) // the times are in the names
	return parts, nil
}

// nextPart is the name of a new part: that of now, or of the second after the newest part, if the
// clock was set back or it was rotated twice in one second.
func nextPart(path string, now time.Time) (string, error) {
	parts, err := partsOf(path)
	if len(parts) > 0 {
		newest, _ := strings.CutPrefix(parts[len(parts)-1], path+".")
		if at, err := time.Parse(stamp, newest[:len(stamp)]); err == nil && now.Before(at.Add(time.Second)) {
			now = at.Add(time.Second)
		}
	}
	return path + "." + now.UTC().Format(stamp), err
}

// compress replaces a file by its gzip.
func compress(path string) (err error) {
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	temporary := path + compressed + unfinished
	out, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, info.Mode().Perm())
	if err != nil {
		return err
	}
	writer := gzip.NewWriter(out)
	if _, err = io.Copy(writer, in); err == nil {
		err = writer.Close()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(temporary, path+compressed)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Remove(path)
}
