package crilog

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/host/regular"
)

// maxTries bounds how often the file that follows is looked for while logs are being rotated.
const maxTries = 20

// advance continues with the file that follows if the log was rotated. What was written to the old one
// until then is read first: its writer changes files at once, so that nothing comes after.
func (r *reader) advance(ctx context.Context) (bool, error) {
	own, err := r.file.Stat()
	if err != nil {
		return false, fmt.Errorf("read log %q: %w", r.path, err)
	}
	now, err := os.Stat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // it is being rotated
	case err != nil:
		return false, fmt.Errorf("read log: %w", err)
	case os.SameFile(own, now) && now.Size() < r.offset: // it was cut
		r.offset, r.rest = 0, nil
		_, err := r.file.Seek(0, io.SeekStart)
		return true, err
	case os.SameFile(own, now):
		return false, nil
	}
	if err := r.drain(ctx); err != nil {
		return false, err
	}
	return r.open(own)
}

// open opens the file after one that was read.
func (r *reader) open(own os.FileInfo) (bool, error) {
	for range maxTries {
		next, err := r.successor(own)
		if err != nil {
			return false, err
		}
		f, err := regular.Open(next)
		if errors.Is(err, fs.ErrNotExist) { // rotated or packed just now
			continue
		}
		if err != nil {
			return false, fmt.Errorf("open log: %w", err)
		}
		// The log itself may have been rotated, and others between, before it was opened.
		if same, err := r.stillNext(own, f); err != nil || !same {
			f.Close()
			if err != nil {
				return false, err
			}
			continue
		}
		var content io.Reader = f
		if strings.HasSuffix(next, ".gz") {
			if content, err = gzip.NewReader(f); err != nil {
				f.Close()
				return false, fmt.Errorf("unpack log %q: %w", next, err)
			}
		}
		r.file.Close()
		r.file, r.content, r.offset, r.rest, r.skip = f, content, 0, nil, false
		return true, nil
	}
	return false, nil // at the next look
}

// parts are the names of the files that the log became by rotation, the oldest first.
func (r *reader) parts() ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(r.path))
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	part := regexp.MustCompile(`^` + regexp.QuoteMeta(filepath.Base(r.path)) + `\.[0-9]{8}-[0-9]{6}(-[0-9]+)?(\.gz)?$`)
	var names []string
	for _, e := range entries {
		if part.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return slices.CompactFunc(names, func(name, before string) bool { return name == before+".gz" }), nil // it is being packed
}

// rotated says whether the log was rotated: then it may be missing for a moment.
func (r *reader) rotated() bool {
	parts, err := r.parts()
	return err == nil && len(parts) > 0
}

// stillNext says whether an open file is the one that follows.
func (r *reader) stillNext(own os.FileInfo, f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("read log: %w", err)
	}
	next, err := r.successor(own)
	if err != nil {
		return false, err
	}
	now, err := os.Stat(next)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read log: %w", err)
	}
	return os.SameFile(opened, now), nil
}

// successor is the path of the file that was written after one: the next of the rotated ones, whose
// names sort by time, or the log itself.
func (r *reader) successor(own os.FileInfo) (string, error) {
	names, err := r.parts()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(r.path)
	after := slices.IndexFunc(names, func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && os.SameFile(own, info)
	}) + 1
	starts := func(name string) time.Time { return startOf(filepath.Join(dir, name)) }
	if after == 0 { // it was packed
		first := firstTime(r.file, r.content != r.file)
		after = slices.IndexFunc(names, func(name string) bool { return starts(name).Equal(first) }) + 1
	}
	if after == 0 { // it was removed: the first that is newer than what was read
		after = slices.IndexFunc(names, func(name string) bool { return starts(name).After(r.last) })
	}
	if after < 0 || after == len(names) {
		return r.path, nil
	}
	return filepath.Join(dir, names[after]), nil
}

// startOf is the time of the first record of a file, zero if it has none.
func startOf(path string) time.Time {
	f, err := regular.Open(path)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	return firstTime(f, strings.HasSuffix(path, ".gz"))
}

func firstTime(f io.ReaderAt, packed bool) time.Time {
	var content io.Reader = io.NewSectionReader(f, 0, math.MaxInt64)
	if packed {
		unpacked, err := gzip.NewReader(content)
		if err != nil {
			return time.Time{}
		}
		content = unpacked
	}
	text, err := bufio.NewReader(io.LimitReader(content, 64)).ReadString(' ')
	if err != nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSuffix(text, " "))
	if err != nil {
		return time.Time{}
	}
	return at
}
