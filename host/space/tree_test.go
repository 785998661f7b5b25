package space

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tower makes folders in folders, each with a file, and returns how many bytes a folder and a file
// take.
func tower(t *testing.T, dir string, height int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range height {
		file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(file)
		if err := unix.Mkdirat(fd, "folder", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "folder", unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// Deeper than a path can say, and deeper than a process may have files open.
func TestDeepFolders(t *testing.T) {
	const height = 2_000
	dir := filepath.Join(t.TempDir(), "deep")
	for _, towers := range []string{dir, filepath.Join(dir, "folder", "folder")} {
		if err := os.MkdirAll(towers, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	beside := filepath.Join(dir, "beside")
	if err := os.Mkdir(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	tower(t, beside, height)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = 300
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &small); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	var folder unix.Stat_t // in a tmpfs, folders take no blocks
	if err := unix.Stat(beside, &folder); err != nil {
		t.Fatal(err)
	}
	use, err := Used(t.Context(), dir)
	if want, least := int64(1+2+1+2*height), 512*folder.Blocks*height; err != nil || use.Inodes != want || use.Bytes < least {
		t.Errorf("measured: %+v, %v, want %d inodes and at least %d bytes", use, err, want, least)
	}
	var removals sync.WaitGroup
	for range 2 { // a collector may find what a request is removing
		removals.Go(func() {
			if err := Remove(dir); err != nil {
				t.Error(err)
			}
		})
	}
	removals.Wait()
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

func TestRemove(t *testing.T) {
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	dir := filepath.Join(t.TempDir(), "dir")
	for _, err := range []error{
		os.WriteFile(kept, nil, 0o600),
		os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755),
		os.Symlink(outside, filepath.Join(dir, "a", "link")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling")),
		os.Mkdir(filepath.Join(dir, ".deep-0"), 0o755),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what is not there is no error
		if err := Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if err := Remove(filepath.Join(dir, "below", "what", "is", "not", "there")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what a link led to: %v", err)
	}
}

func TestUsed(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(outside, "big"), make([]byte, 1<<20), 0o600),
		os.WriteFile(filepath.Join(dir, "file"), make([]byte, 100_000), 0o600),
		os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "again")),
		os.Mkdir(filepath.Join(dir, "folder"), 0o755),
		os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "folder", "third")),
		os.Symlink(outside, filepath.Join(dir, "folder", "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	use, err := Used(t.Context(), dir)
	if err != nil || use.Inodes != 4 || use.Bytes < 100_000 || use.Bytes > 200_000 {
		t.Errorf("%+v, %v, want 4 inodes and 100 kB", use, err)
	}
	if use, err := Used(t.Context(), filepath.Join(dir, "file")); err != nil || use.Inodes != 1 {
		t.Errorf("of a file: %+v, %v", use, err)
	}
	if _, err := Used(t.Context(), filepath.Join(dir, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Used(given, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("of a request that is given up: %v", err)
	}
}

// Trees of any form are measured as a plain walk does it.
func TestUsedAsAPlainWalk(t *testing.T) {
	for seed := range uint64(12) {
		random, dir := rand.New(rand.NewPCG(seed, 0)), t.TempDir()
		folders, files := []string{dir}, []string{}
		for i := range random.IntN(1500) {
			at := filepath.Join(folders[random.IntN(len(folders))], strconv.Itoa(i)+strings.Repeat("x", random.IntN(200)))
			var err error
			switch kind := random.IntN(8); {
			case kind == 0 && len(folders) < 1+int(seed):
				err = os.Mkdir(at, 0o755)
				folders = append(folders, at)
			case kind == 1 && len(files) > 0:
				err = os.Link(files[random.IntN(len(files))], at)
			default:
				err = os.WriteFile(at, make([]byte, random.IntN(10_000)), 0o600)
				files = append(files, at)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var want Use
		seen := map[uint64]bool{}
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err = errors.Join(err, unix.Lstat(path, &st)); err == nil && !seen[st.Ino] {
				seen[st.Ino] = true
				want.Inodes++
				want.Bytes += st.Blocks * 512
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if use, err := Used(t.Context(), dir); err != nil || use != want {
			t.Errorf("seed %d, %d folders: %+v, %v, want %+v", seed, len(folders), use, err, want)
		}
	}
}

// Measuring a tree writes nothing: the folders' access times stay, as the kernel would set them at
// the first look after a change.
func TestUsedWritesNothing(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	if err := os.MkdirAll(filepath.Join(inner, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	folders := []string{dir, inner, filepath.Join(inner, "deep")}
	old := []unix.Timeval{unix.NsecToTimeval(1e18), unix.NsecToTimeval(1e18 + 1e9)} // read before it was changed
	for _, folder := range folders {
		if err := unix.Utimes(folder, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Used(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		var st unix.Stat_t
		if err := unix.Stat(folder, &st); err != nil || unix.TimespecToNsec(st.Atim) != 1e18 {
			t.Errorf("%s was read at %v (%v), want as before", folder, st.Atim, err)
		}
	}
}

// A container goes on while its files are measured: it removes, replaces and moves folders.
func TestUsedWhileFilesChange(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{})
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() {
			own := filepath.Join(dir, strconv.Itoa(i))
			for {
				select {
				case <-done:
					return
				default:
				}
				deep := filepath.Join(own, "a", "b", "c", "d")
				if err := os.MkdirAll(deep, 0o755); err != nil {
					t.Error(err)
					return
				}
				for n := range 20 {
					_ = os.WriteFile(filepath.Join(deep, strconv.Itoa(n)), nil, 0o600)
				}
				_ = os.Rename(filepath.Join(own, "a", "b"), filepath.Join(dir, "moved-"+strconv.Itoa(i)))
				_ = os.Symlink("/proc", filepath.Join(own, "a", "b"))
				_ = os.RemoveAll(filepath.Join(dir, "moved-"+strconv.Itoa(i)))
				_ = os.RemoveAll(own)
			}
		})
	}
	for range 300 {
		use, err := Used(t.Context(), dir)
		if err != nil || use.Inodes < 1 || use.Inodes > 500 {
			t.Errorf("%+v, %v", use, err)
			break
		}
	}
	close(done)
	work.Wait()
}

// What is mounted in a folder takes its room elsewhere.
func TestUsedEntersNoMounts(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	folder, file := filepath.Join(dir, "folder"), filepath.Join(dir, "file")
	if err := errors.Join(
		os.Mkdir(folder, 0o755), os.WriteFile(file, nil, 0o600), os.WriteFile(filepath.Join(outside, "big"), make([]byte, 8<<20), 0o600),
		unix.Mount(outside, folder, "", unix.MS_BIND, ""), unix.Mount(filepath.Join(outside, "big"), file, "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	use, err := Used(t.Context(), dir)
	if err := errors.Join(unix.Unmount(folder, 0), unix.Unmount(file, 0)); err != nil {
		t.Error(err)
	}
	if err != nil || use.Bytes > 1<<20 || use.Inodes != 1 {
		t.Errorf("%+v, %v", use, err)
	}
	if use, err := Used(t.Context(), dir); err != nil || use.Inodes != 3 {
		t.Errorf("without the mounts: %+v, %v", use, err)
	}
}

// What is known of a tree is what another measuring would find, whatever has happened to it.
func TestKnown(t *testing.T) {
	for what, change := range map[string]struct {
		make   func(at func(string) string) error
		listed bool // the folders must be listed again
	}{
		"nothing": {func(func(string) string) error { return nil }, false},
		"grow":    {func(at func(string) string) error { return os.WriteFile(at("etc/hosts"), make([]byte, 1<<20), 0o600) }, false},
		"add":     {func(at func(string) string) error { return os.WriteFile(at("etc/deep/new"), make([]byte, 5000), 0o600) }, true},
		"unlink":  {func(at func(string) string) error { return os.Remove(at("etc/hosts")) }, true},
		"link":    {func(at func(string) string) error { return os.Link(at("etc/hosts"), at("etc/again")) }, true},
		"move":    {func(at func(string) string) error { return os.Rename(at("etc/deep"), at("moved")) }, true},
		"replace": {func(at func(string) string) error {
			return errors.Join(os.Symlink("/", at("etc/new")), os.Rename(at("etc/new"), at("etc/hosts")))
		}, true},
		"mount":  {func(at func(string) string) error { return unix.Mount("none", at("etc/deep"), "tmpfs", 0, "") }, true},
		"remove": {func(at func(string) string) error { return os.RemoveAll(at("etc")) }, true},
		"anew":   {func(at func(string) string) error { return errors.Join(os.RemoveAll(at("")), os.Mkdir(at(""), 0o700)) }, true},
		"many": {func(at func(string) string) (err error) {
			for n := range mostKnown {
				err = errors.Join(err, os.WriteFile(at(fmt.Sprint("etc/", n)), nil, 0o600))
			}
			return err
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "tree")
			at := func(name string) string { return filepath.Join(dir, name) }
			if err := errors.Join(os.MkdirAll(at("etc/deep"), 0o755), os.WriteFile(at("etc/hosts"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(at("etc/deep"), 0)
			var k Known
			as := func(when string) {
				want, err1 := Used(t.Context(), dir)
				if got, err2 := k.Used(t.Context(), dir); got != want || err1 != nil || err2 != nil {
					t.Errorf("%s: %+v, want %+v, %v, %v", when, got, want, err1, err2)
				}
			}
			as("at first")
			if _, known := k.again(dir); known {
				t.Error("folders that have just changed are relied upon")
			}
			time.Sleep(unsettled + 50*time.Millisecond)
			as("settled")
			if _, known := k.again(dir); !known {
				t.Error("nothing is known")
			}
			if err := change.make(at); err != nil {
				t.Fatal(err)
			}
			if _, known := k.again(dir); known == change.listed {
				t.Errorf("after the change all is known: %t", known)
			}
			as("changed")
			time.Sleep(unsettled + 50*time.Millisecond)
			as("changed and settled")
			if _, known := k.again(dir); known == (what == "many" || what == "mount" || what == "link") {
				t.Errorf("later all is known: %t", known)
			}
		})
	}
	var k Known
	if _, err := k.Used(t.Context(), filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) || len(k.files) > 0 {
		t.Errorf("of nothing: %v, %d files are known", err, len(k.files))
	}
}

// A container may make more folders and names than are kept in memory.
func TestUsedIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, strconv.Itoa(i), "below"), 0o755),
			os.WriteFile(filepath.Join(dir, strconv.Itoa(i), "a"), make([]byte, 1<<16), 0o600),
			os.Link(filepath.Join(dir, strconv.Itoa(i), "a"), filepath.Join(dir, strconv.Itoa(i), "b"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		folders, names int
		partial        bool
		inodes         int64
	}{{20, 10, false, 30}, {10, 10, false, 30}, {4, 10, true, 18}, {20, 3, false, 23}} {
		w := &walk{linked: map[inode]bool{}, left: tt.folders, names: tt.names}
		root, err := openFolder(unix.AT_FDCWD, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.all(t.Context(), root), unix.Close(root)); err != nil {
			t.Fatal(err)
		}
		if w.use.Partial != tt.partial || w.use.Inodes != tt.inodes || len(w.linked) > tt.names {
			t.Errorf("%d folders and %d names: %+v, want %d inodes", tt.folders, tt.names, w.use, tt.inodes)
		}
		if files := w.use.Bytes >> 16; !tt.partial && (files < 10 || files > 11) { // a name beyond the bound counts as its share
			t.Errorf("%d folders and %d names: %d bytes", tt.folders, tt.names, w.use.Bytes)
		}
	}
}

func TestRemoveStopsAtMounts(t *testing.T) {
	kept, dir := t.TempDir(), t.TempDir()
	point := filepath.Join(dir, "a", "b")
	if err := errors.Join(os.MkdirAll(point, 0o755), os.WriteFile(filepath.Join(kept, "file"), nil, 0o600), unix.Mount(kept, point, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	err := Remove(dir)
	if derr := unix.Unmount(point, unix.MNT_DETACH); derr != nil {
		t.Error(derr)
	}
	if _, serr := os.Stat(filepath.Join(kept, "file")); serr != nil || !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed: %v, what was mounted: %v", err, serr)
	}
}
