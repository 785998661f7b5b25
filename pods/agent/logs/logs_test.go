package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// LG1: rotated above the limit, older parts compressed, a number of files with the current one.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	l := Limits{Size: 10, Files: 3}
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func(context.Context) error { write(""); return nil }
	write("short")
	if rotated, err := Rotate(t.Context(), path, l, now, reopen); rotated || err != nil {
		t.Errorf("a short log: %v, %v", rotated, err)
	}
	for i := range 4 {
		write(fmt.Sprintf("long enough %d", i))
		if rotated, err := Rotate(t.Context(), path, l, now.Add(time.Duration(i)*time.Minute), reopen); !rotated || err != nil {
			t.Errorf("rotation %d: %v, %v", i, rotated, err)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"0.log", "0.log.20261123-120200", "0.log.20261123-120300"}) {
		t.Errorf("files %v", got)
	}
	l.Files = 5
	write("long enough 4")
	if err := os.WriteFile(path+".20261123-120000.gz.tmp", []byte("x"), 0o640); err != nil {
		t.Fatal(err)
	}
	if rotated, err := Rotate(t.Context(), path, l, now.Add(4*time.Minute), reopen); !rotated || err != nil {
		t.Errorf("rotation: %v, %v", rotated, err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"0.log", "0.log.20261123-120200.gz", "0.log.20261123-120300", "0.log.20261123-120400"}) {
		t.Errorf("files %v", got)
	}
	if text := decompressed(t, filepath.Join(dir, "0.log.20261123-120200.gz")); text != "long enough 2" {
		t.Errorf("compressed part %q", text)
	}
	write("long enough 5")
	bad := errors.New("server is away")
	if _, err := Rotate(t.Context(), path, l, now.Add(5*time.Minute), func(context.Context) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("a failed rotation: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "long enough 5" {
		t.Errorf("log after a failed rotation %q, %v", text, err)
	}
	if err := RemoveFile(path); err != nil || len(names(t, dir)) != 0 {
		t.Errorf("%v is left, %v", names(t, dir), err)
	}
	if err := RemoveFile(filepath.Join(dir, "none", "0.log")); err != nil {
		t.Error(err)
	}
}

func decompressed(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A log that is a link, as a container with its log folder could make it, is left alone.
// Parts are named in the order in which they were written, also if the clock was set back or stands
// still: the oldest one is removed, and the newest is not compressed.
func TestRotateWithTheClockSetBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	now := time.Date(2026, 11, 23, 12, 59, 59, 0, time.UTC)
	for i, at := range []time.Time{now, now.Add(-time.Hour), now.Add(-time.Hour), now.Add(time.Hour)} {
		if err := os.WriteFile(path, fmt.Appendf(nil, "long enough %d", i), 0o640); err != nil {
			t.Fatal(err)
		}
		if rotated, err := Rotate(t.Context(), path, Limits{Size: 10, Files: 4}, at, func(context.Context) error { return nil }); !rotated || err != nil {
			t.Errorf("rotation %d: %v, %v", i, rotated, err)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"0.log.20261123-130000.gz", "0.log.20261123-130001", "0.log.20261123-135959"}) {
		t.Errorf("files %v", got)
	}
	for name, want := range map[string]string{"0.log.20261123-130001": "long enough 2", "0.log.20261123-135959": "long enough 3"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v; want %q", name, text, err, want)
		}
	}
}

func TestRotateLink(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "0.log")
	if err := os.WriteFile(target, []byte(strings.Repeat("x", 100)), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if rotated, err := Rotate(t.Context(), path, Limits{Size: 10, Files: 2}, time.Now(), func(context.Context) error { return nil }); rotated || err != nil {
		t.Errorf("%v, %v", rotated, err)
	}
}

// A rotation that was killed before the container wrote to a new file is ended by the next look. A
// new file stays if only the answer to its making was lost.
func TestRotateInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	put := func(text string) error { return os.WriteFile(path, []byte(text), 0o640) }
	if rotated, err := Rotate(t.Context(), path, Limits{Size: 10, Files: 3}, time.Now(), func(context.Context) error { return put("new and long") }); rotated || err != nil {
		t.Errorf("without a log: %v, %v", rotated, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "new and long" {
		t.Errorf("after a rotation that was killed %q, %v", text, err)
	}
	rotated, err := Rotate(t.Context(), path, Limits{Size: 10, Files: 3}, time.Now(), func(context.Context) error { return errors.Join(put("newer"), errors.New("no answer")) })
	if text, rerr := os.ReadFile(path); rerr != nil || !rotated || err != nil || string(text) != "newer" || len(names(t, dir)) != 2 {
		t.Errorf("without an answer: %v, %v, log %q, %v, of %v", rotated, err, text, rerr, names(t, dir))
	}
	gone := func(context.Context) error { return errdefs.ErrFailedPrecondition }
	if _, err := Rotate(t.Context(), filepath.Join(dir, "1.log"), Limits{}, time.Now(), gone); err != nil {
		t.Errorf("of a container that has ended: %v", err)
	}
}

// GC4, GC5: only folders with the agent's mark, of pods that are gone.
func TestSweep(t *testing.T) {
	root := t.TempDir()
	for name, mark := range map[string]string{"default_web_1": "mark", "default_old_2": "mark", "default_crictl_3": "", "default_other_4": "another", "odd": "mark"} {
		if mark == "" {
			if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for range 2 {
			if err := Make(filepath.Join(root, name), mark); err != nil {
				t.Fatal(err)
			}
		}
	}
	known := func(uid types.UID) bool { return uid == "1" }
	if err := Sweep(root, "mark", known); err != nil {
		t.Fatal(err)
	}
	if got := names(t, root); !slices.Equal(got, []string{"default_crictl_3", "default_other_4", "default_web_1", "odd"}) {
		t.Errorf("left %v", got)
	}
	if err := Sweep(filepath.Join(root, "none"), "mark", known); err != nil {
		t.Error(err)
	}
}
