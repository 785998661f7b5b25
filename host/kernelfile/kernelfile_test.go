package kernelfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		path, want := filepath.Join(dir, "file"), strings.Repeat("x", size)
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func(string) (string, error){"Read": Read, "ReadRecord": ReadRecord} {
			if got, err := read(path); err != nil || got != want {
				t.Errorf("%s: %d bytes of %d, %v", name, len(got), size, err)
			}
		}
		for _, room := range []int{0, 1, 64, 4096, 1 << 20} {
			got, err := AppendRecord(append(make([]byte, 0, room), 'a'), path)
			if err != nil || string(got) != "a"+want {
				t.Errorf("AppendRecord: %d bytes of %d, %v", len(got)-1, size, err)
			}
		}
	}
	for name, read := range map[string]func(string) (string, error){"Read": Read, "ReadRecord": ReadRecord} {
		for _, path := range []string{"", filepath.Join(dir, "missing")} {
			if _, err := read(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s of %q: %v", name, path, err)
			}
		}
		// The kernel writes it in many pieces, each of which may be shorter than what there is room
		// for.
		if got, err := Read("/proc/self/maps"); err != nil || !strings.Contains(got, "[stack]") {
			t.Errorf("%s of a long file: %d bytes, %v", name, len(got), err)
		}
	}
}

// A path is what its parts are together, however long, and none that a zero byte would cut short.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	deep := dir
	for range 8 {
		deep = filepath.Join(deep, strings.Repeat("d", 100))
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{dir, deep} {
		if err := os.WriteFile(filepath.Join(folder, "file"), []byte("7"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := AppendRecord(nil, folder, "/", "", "file"); err != nil || string(got) != "7" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got, err := AppendRecord(nil, dir, "/file", "\x00", "more"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a path with a zero byte: %q, %v", got, err)
	}
	var path *os.PathError
	if _, err := AppendRecord(nil, dir, "/", "none"); !errors.As(err, &path) || path.Path != dir+"/none" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := AppendRecord(nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no path: %v", err)
	}
}
