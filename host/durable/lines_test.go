package durable

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNewestFirst(t *testing.T) {
	for file, want := range map[string][]string{
		"": nil, "torn": nil, "one\n": {"one"}, "\n": {""}, "one\n\ntwo\ntorn": {"two", "", "one"},
	} {
		var got []string
		for line := range NewestFirst([]byte(file)) {
			got = append(got, string(line))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

// A file that is nothing but newlines costs no more memory than it has.
func TestNewestFirstOfManyLines(t *testing.T) {
	file := bytes.Repeat([]byte("\n"), 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for range NewestFirst(file) {
		n++
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; n != len(file) || got > uint64(len(file)) {
		t.Errorf("%d lines of %d, and %d bytes for them", n, len(file), got)
	}
}

// Nothing is added to a file that is not there, or to a full disk; and what was added of a line
// that has not enough room is taken back.
func TestPutAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Put(path, []byte("x"), Mode{Append: true, Sync: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := Put("/dev/full", []byte("x"), Mode{Append: true}); !Full(err) {
		t.Errorf("a full device: %v", err)
	}
	if err := os.WriteFile(path, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	add := func(line string, sync, done bool, want string) {
		t.Helper()
		if err := Put(path, []byte(line), Mode{Append: true, Sync: sync}); (err == nil) != done {
			t.Errorf("add %q: %v", line, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	add("two\n", true, true, "one\ntwo\n")
	add("three\n", false, true, "one\ntwo\nthree\n")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 17, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Error(err)
		}
	}()
	add("four and more\n", true, false, "one\ntwo\nthree\n")
	add("4\n", true, true, "one\ntwo\nthree\n4\n")
}
