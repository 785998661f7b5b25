package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"first", "second, longer", ""} {
		if err := Write(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("content %q, %v; want %q", got, err, content)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// A target that cannot be replaced: nothing is left beside it.
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "folder"), []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if err := Write(filepath.Join(dir, "absent", "file"), nil, 0o600); err == nil {
		t.Error("no error without the folder")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("entries %v, %v; want the file and the folder", entries, err)
	}
	// What a crash leaves goes, and nothing else.
	left, err := os.CreateTemp(dir, ".file"+unfinished+"*")
	if err != nil {
		t.Fatal(err)
	}
	left.Close()
	if err := errors.Join(Sweep(dir), Sweep(filepath.Join(dir, "absent"))); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("entries %v, %v after sweeping; want the file and the folder", entries, err)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Replace(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	is := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		entries, derr := os.ReadDir(dir)
		if err := errors.Join(err, derr); err != nil || string(got) != want || len(entries) != 1 {
			t.Errorf("content %q in %v, %v; want %q alone", got, entries, err, want)
		}
	}
	for _, commit := range []bool{false, true} {
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if !Unfinished(filepath.Base(f.Name())) || Unfinished(filepath.Base(path)) {
			t.Errorf("file %q is not unfinished, or %q is", f.Name(), path)
		}
		if commit {
			err = f.Commit()
		} else {
			err = f.Discard()
		}
		if err != nil {
			t.Fatal(err)
		}
		is(map[bool]string{false: "old", true: "new"}[commit])
	}
	if err := Sync(dir); err != nil {
		t.Error(err)
	}
}

func TestFull(t *testing.T) {
	for err, want := range map[error]bool{
		&os.PathError{Err: unix.ENOSPC}: true, fmt.Errorf("write: %w", unix.EDQUOT): true, unix.EIO: false, nil: false,
		&os.PathError{Err: unix.EROFS}: false,
	} {
		if Full(err) != want {
			t.Errorf("Full(%v) is not %v", err, want)
		}
		if readOnly := errors.Is(err, unix.EROFS); ReadOnly(err) != readOnly || Refused(err) != (want || readOnly) {
			t.Errorf("ReadOnly(%v) is %v, Refused %v", err, ReadOnly(err), Refused(err))
		}
	}
}
