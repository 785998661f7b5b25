package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	expect := func(f *os.File, want bool) {
		t.Helper()
		if got, err := Locked(f); got != want || err != nil {
			t.Fatalf("locked: %v, %v, want %v", got, err, want)
		}
	}
	holder, other, third := open(), open(), open()
	expect(other, false)
	if err := Lock(holder); err != nil {
		t.Fatal(err)
	}
	expect(other, true)
	expect(third, true)
	if err := Lock(other); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second lock: %v, want ErrLocked", err)
	}
	holder.Close()
	expect(other, false)
	expect(third, false)
	if err := Lock(third); err != nil {
		t.Fatalf("lock after the holder's end, and after two have asked: %v", err)
	}
}

// A lock's end removes its file and the folder with the last one, but no file that another has made
// by the same name.
func TestRemoveLock(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "locks")
	create := func(name string) *os.File {
		t.Helper()
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	remove := func(f *os.File) {
		t.Helper()
		if err := RemoveLock(f); err != nil {
			t.Error(err)
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the file is not closed: %v", err)
		}
	}
	there := func(path string, want bool) {
		t.Helper()
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
	old, second := create("a"), create("b")
	if err := os.Remove(old.Name()); err != nil {
		t.Fatal(err)
	}
	made := create("a")
	remove(old)
	there(made.Name(), true)
	remove(made)
	there(made.Name(), false)
	there(second.Name(), true)
	remove(second)
	there(folder, false)
	gone := create("c")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	remove(gone)
}
