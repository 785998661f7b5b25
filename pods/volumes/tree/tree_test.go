package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func folder(t *testing.T, path string) int {
	t.Helper()
	fd, err := openFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestWalkIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root := folder(t, dir)
	for limit, want := range map[int64]int{999: 999, 1000: 1000, 0: 0} {
		visited := 0
		complete, err := walk(t.Context(), root, limit, func(int, string, *unix.Statx_t) error { visited++; return nil })
		if err != nil || visited != want || complete != (limit == 1000) {
			t.Errorf("limit %d: %d visited, complete %v, %v", limit, visited, complete, err)
		}
	}
	interrupted, stop := context.WithCancel(t.Context())
	stop()
	if _, err := walk(interrupted, root, 1000, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestWalkWhileItChanges walks while folders are renamed, replaced by links and removed.
func TestWalkWhileItChanges(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, link := filepath.Join(dir, "a"), filepath.Join(dir, "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(a, "b/c"), 0o755), os.Symlink(outside, link)); err != nil {
		t.Fatal(err)
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
			// Now and then the folder itself is removed and made again.
			os.Remove(filepath.Join(link, "b/c"))
			os.Mkdir(filepath.Join(link, "b/c"), 0o755)
		}
	}()
	root, folders := folder(t, dir), 0
	group := Group{true, 2000}
	for range 3000 {
		_, err := walk(t.Context(), root, 100, func(at int, name string, st *unix.Statx_t) error {
			if name == "secret" {
				t.Error("the walk left the tree")
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				folders++
			}
			return group.giveOne(at, name)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	<-stopped
	if folders == 0 {
		t.Error("no folder was ever seen")
	}
	for _, path := range []string{outside, filepath.Join(outside, "secret")} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Gid != 0 {
			t.Errorf("%s: group %d, %v", path, st.Gid, err)
		}
	}
}

func TestIsLocal(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "a/b": true, "a..b": true, "..a": true, ".": true, "a//b/": true,
		"": false, "/a": false, "..": false, "a/..": false, "../a": false, "a/../b": false, "a\x00": false, string(make([]byte, 5000)): false,
	} {
		if IsLocal(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
