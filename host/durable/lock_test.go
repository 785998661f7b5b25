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
