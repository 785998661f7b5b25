package atomic

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWriterLayout(t *testing.T) { // VO9
	dir := t.TempDir()
	w := Writer{Dir: dir, Now: func() time.Time { return time.Date(2026, 11, 22, 14, 0, 0, 123456789, time.UTC) }}
	c := Content{"a": {[]byte("1"), 0o644, 0}, "d/e/f": {[]byte("2"), 0o400, 7}}
	if changed, err := w.Write(c); !changed || err != nil {
		t.Fatal(changed, err)
	}
	want := `..2026_11_22_14_00_00.123456789/ 755 0 0
..2026_11_22_14_00_00.123456789/a 644 0 0 "1"
..2026_11_22_14_00_00.123456789/d/ 755 0 0
..2026_11_22_14_00_00.123456789/d/e/ 755 0 0
..2026_11_22_14_00_00.123456789/d/e/f 400 7 0 "2"
..data -> ..2026_11_22_14_00_00.123456789
a -> ..data/a
d -> ..data/d
`
	if got := list(t, dir); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if changed, err := w.Write(c); changed || err != nil {
		t.Errorf("written again: %v, %v", changed, err)
	}
	// The same moment again: another folder. A name that is gone, a folder that becomes a file.
	if changed, err := w.Write(Content{"d": {[]byte("3"), 0o644, 0}}); !changed || err != nil {
		t.Fatal(changed, err)
	}
	want = `..2026_11_22_14_00_00.123456790/ 755 0 0
..2026_11_22_14_00_00.123456790/d 644 0 0 "3"
..data -> ..2026_11_22_14_00_00.123456790
d -> ..data/d
`
	if got := list(t, dir); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// Changes of mode and owner alone are changes.
	for _, f := range []File{{[]byte("3"), 0o600, 0}, {[]byte("3"), 0o600, 5}} {
		if changed, err := w.Write(Content{"d": f}); !changed || err != nil {
			t.Errorf("%v: %v, %v", f, changed, err)
		}
	}
	if changed, err := w.Write(Content{}); !changed || err != nil || strings.Contains(list(t, dir), "d ->") {
		t.Errorf("empty: %v, %v, %s", changed, err, list(t, dir))
	}
}

// shown reads a volume as an application does.
func shown(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a link whose content is gone is no file
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Name()+"="+string(data))
	}
	return strings.Join(out, " ")
}

// killed is what a step panics with: what follows it does not happen, as after kill -9.
type killed struct{}

// TestWriterIsKilled kills a write before each of its steps, and the write that repairs it too.
func TestWriterIsKilled(t *testing.T) { // VO9
	before := Content{"a": {[]byte("1"), 0o644, 0}, "old": {[]byte("1"), 0o644, 0}}
	after := Content{"a": {[]byte("2"), 0o644, 0}, "new": {[]byte("2"), 0o644, 0}}
	const first, second = "a=1 old=1", "a=2 new=2"
	run := func(dir string, c Content, kill int) (ended bool, last string) {
		step := 0
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				panic(r)
			}
		}()
		w := Writer{Dir: dir, Now: time.Now, step: func(name string) {
			last = name
			if step++; step == kill {
				panic(killed{})
			}
		}}
		if _, err := w.Write(c); err != nil {
			t.Fatal(err)
		}
		return true, last
	}
	renamed := map[string]bool{}
	for kill := 1; ; kill++ {
		dir := t.TempDir()
		run(dir, before, 0)
		ended, step := run(dir, after, kill)
		if ended {
			if kill < 8 {
				t.Fatalf("there are only %d steps", kill-1)
			}
			break
		}
		got := shown(t, dir)
		// After the rename the new content is shown; names are added and removed one by one.
		switch got {
		case first:
			if renamed["new"] {
				t.Errorf("killed before %q: the old content is back", step)
			}
		case "a=2", second:
			renamed["new"] = true
		default:
			t.Errorf("killed before %q: %s", step, got)
		}
		for again := 1; ; again++ {
			ended, step := run(dir, after, again)
			if got := shown(t, dir); got != first && got != "a=2" && got != second {
				t.Errorf("killed again before %q: %s", step, got)
			}
			if ended {
				break
			}
		}
		if got := shown(t, dir); got != second {
			t.Errorf("after the repair: %s", got)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 4 {
			t.Errorf("killed before %q, repaired: something is left:\n%s", step, list(t, dir))
		}
	}
	if !renamed["new"] {
		t.Error("no step after the rename")
	}
}

// TestWriterIsAtomic reads while it is written: all of a content or nothing.
func TestWriterIsAtomic(t *testing.T) { // VO9
	dir := t.TempDir()
	version := func(i int) Content {
		c := Content{}
		for _, name := range []string{"a", "b", "sub/c"} {
			c[name] = File{[]byte(fmt.Sprint(i)), 0o644, 0}
		}
		return c
	}
	w := Writer{Dir: dir, Now: time.Now}
	if _, err := w.Write(version(0)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	seen := make([]int, 4)
	for r := range seen {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				folder, err := os.OpenRoot(filepath.Join(dir, dataLink))
				if _, gone := os.Lstat(filepath.Join(dir, dataLink)); errors.Is(err, fs.ErrNotExist) && gone == nil {
					continue // what the link named was replaced and removed meanwhile
				}
				if err != nil {
					t.Errorf("there is no content: %v", err)
					return
				}
				a, errA := folder.ReadFile("a")
				b, errB := folder.ReadFile("b")
				c, errC := folder.ReadFile("sub/c")
				folder.Close()
				if errors.Join(errA, errB, errC) != nil {
					continue // it was replaced and removed meanwhile
				}
				if string(a) != string(b) || string(b) != string(c) {
					t.Errorf("mixed: %s %s %s", a, b, c)
				}
				seen[r]++
			}
		})
	}
	for i := range 100 {
		if changed, err := w.Write(version(i + 1)); !changed || err != nil {
			t.Error(changed, err)
		}
	}
	close(done)
	readers.Wait()
	for r, n := range seen {
		if n == 0 {
			t.Errorf("reader %d never read a whole content", r)
		}
	}
}

func TestWriterReplacesStrangers(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "kept"), "kept")
	// Links that lead out, in all places that are written, replaced or removed.
	for _, name := range []string{"a", "gone", "..2025_01_01_00_00_00.1", newDataLink, dataLink} {
		if err := os.Symlink(outside, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w := Writer{Dir: dir, Now: time.Now}
	if _, err := w.Write(Content{"a": {[]byte("1"), 0o644, 0}}); err != nil {
		t.Fatal(err)
	}
	if shown(t, dir) != "a=1" || list(t, outside) != "kept 644 0 0 \"kept\"\n" {
		t.Errorf("%s\n%s", list(t, dir), list(t, outside))
	}
}

// stat answers mode (with the bits of the kernel), owner and group: "777 0 0".
func stat(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(path, err)
	}
	return fmt.Sprintf("%o %d %d", st.Mode&0o7777, st.Uid, st.Gid)
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// list lists what is below a folder: path, type, mode, owner and group, content or target.
func list(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch e.Type() {
		case fs.ModeDir:
			fmt.Fprintf(&out, "%s/ %s\n", name, stat(t, path))
		case fs.ModeSymlink:
			target, _ := os.Readlink(path)
			fmt.Fprintf(&out, "%s -> %s\n", name, target)
		default:
			fmt.Fprintf(&out, "%s %s %q\n", name, stat(t, path), read(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
