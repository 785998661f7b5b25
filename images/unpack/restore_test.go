package unpack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// lossy is a store whose records are damaged between two processes.
type lossy struct {
	*Store
	t    *testing.T
	root string
	log  bytes.Buffer
}

func newLossy(t *testing.T) *lossy {
	t.Helper()
	s := &lossy{t: t, root: t.TempDir()}
	s.open()
	t.Cleanup(func() { s.close() })
	return s
}

func (s *lossy) open() {
	s.t.Helper()
	s.log.Reset()
	o := testOptions(s.root)
	o.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	var err error
	if s.Store, err = Open(context.Background(), o); err != nil {
		s.t.Fatalf("%v, log %s", err, &s.log)
	}
}

func (s *lossy) close() {
	s.t.Helper()
	s.check(s.Store.Close())
}

// lose opens the store anew, with its records lost.
func (s *lossy) lose() {
	s.t.Helper()
	s.close()
	s.check(os.Remove(s.recordsFile()))
	s.open()
}

func (s *lossy) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v, log %s", err, &s.log)
	}
}

// known returns what the records say about layers.
func (s *lossy) known() map[string]record {
	s.t.Helper()
	layers, err := s.recorded(s.t.Context())
	s.check(err)
	return layers
}

// dir returns the folder of a layer.
func (s *lossy) dir(chain digest.Digest) string {
	s.t.Helper()
	info, err := s.snapshots.Stat(s.t.Context(), chain.String())
	s.check(err)
	return filepath.Dir(info.Labels[upperLabel])
}

// names returns the names of the folders that there are.
func (s *lossy) names() []string {
	s.t.Helper()
	entries, err := os.ReadDir(s.layersDir())
	s.check(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// holds wants a chain to be whole, with what was unpacked.
func (s *lossy) holds(what string, chain digest.Digest, want string) {
	s.t.Helper()
	if !s.Whole(s.t.Context(), chain) {
		s.t.Errorf("%s: layer %s is missing, log %s", what, chain, &s.log)
		return
	}
	chains, err := s.Chain(s.t.Context(), chain)
	s.check(err)
	for _, c := range chains {
		if err := s.Check(s.t.Context(), c); err != nil {
			s.t.Errorf("%s: %v", what, err)
		}
	}
	if got := strings.Join(tree(s.t, s.Store, chain), " "); got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (s *lossy) says(what, text string) {
	s.t.Helper()
	if strings.Count(s.log.String(), text) != 1 {
		s.t.Errorf("%s: log lacks %q:\n%s", what, text, &s.log)
	}
}

// Layers are there again, with their ids and all that was recorded about them, however their
// records were lost, and each time. What a container had as its root is put aside, and its id is
// not used again.
func TestLayersAreRestored(t *testing.T) {
	ctx := t.Context()
	for name, damage := range map[string]func(path string) error{
		"lost": os.Remove,
		"a text": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("no records\n", 1000)), 0o600)
		},
		"cut":     func(path string) error { return os.Truncate(path, 9000) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"a label that is none": func(path string) error {
			db, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				return err
			}
			err = db.Update(func(tx *bolt.Tx) error {
				all := tx.Bucket([]byte("v1")).Bucket([]byte("snapshots"))
				name, _ := all.Cursor().First()
				return all.Bucket(name).Put([]byte("createdat"), []byte("x"))
			})
			return errors.Join(err, db.Close())
		},
	} {
		s := newLossy(t)
		base := tarOf(t, dir("d/"), text("d/a", "1"))
		x, y := apply(t, s.Store, base, tarOf(t, text("x", "2"))), apply(t, s.Store, base, tarOf(t, text("d/y", "3")))
		s.check(s.MarkDamaged(ctx, y))
		before := s.known()
		for round := range 2 {
			what := fmt.Sprint(name, " ", round)
			key := fmt.Sprint("c", round)
			mounts, err := s.Prepare(ctx, key, x, nil)
			s.check(err)
			last := slices.MaxFunc(s.names(), func(a, b string) int { return len(a)*1000 - len(b)*1000 + strings.Compare(a, b) })
			if !strings.Contains(fmt.Sprint(mounts), "/"+last+"/fs") {
				t.Fatalf("%s: root %v, last folder %s", what, mounts, last)
			}
			s.close()
			s.check(damage(s.recordsFile()))
			s.open()
			if after := s.known(); !reflect.DeepEqual(after, before) {
				t.Errorf("%s: there are %v, there were %v", what, after, before)
			}
			s.holds(what, x, "d/ d/a=1 x=2")
			if s.Has(ctx, y) {
				t.Errorf("%s: a layer that was marked as damaged counts as whole", what)
			}
			s.says(what, "layers were restored from their folders\" restored=3 unusable=0 put_aside=1 folder=")
			if roots, err := s.Roots(ctx); err != nil || len(roots) != 0 || !s.Restored() {
				t.Errorf("%s: roots %v, %v", what, roots, err)
			}
			if aside, err := filepath.Glob(filepath.Join(s.asideDir(), "all-*", last, "fs")); err != nil || len(aside) != 1 {
				t.Errorf("%s: put aside: %q, %v", what, aside, err)
			}
			s.check(s.Remove(ctx, key))
			mounts, err = s.Prepare(ctx, key, x, nil)
			s.check(err)
			if strings.Contains(fmt.Sprint(mounts), "/"+last+"/") {
				t.Errorf("%s: id %s is used again", what, last)
			}
			s.check(s.Remove(ctx, key))
			if names := s.names(); len(names) != 3 {
				t.Errorf("%s: folders %q", what, names)
			}
		}
		// What is damaged is replaced where it is.
		apply(t, s.Store, base, tarOf(t, text("d/y", "3")))
		s.lose()
		s.holds(name, y, "d/ d/a=1 d/y=3")
		s.close()
		s.open()
		if s.Restored() || s.log.Len() > 0 {
			t.Errorf("%s: whole records are restored, log %s", name, &s.log)
		}
	}
}

// A layer whose folder is not whole, or whose record cannot be read, is not restored, nor are those
// upon it. They are put aside, and the next pull completes the image.
func TestDamagedFoldersAreNotRestored(t *testing.T) {
	flip := func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, recordFile))
		if err == nil {
			data[len(data)-2] ^= 1 // a number
			err = os.WriteFile(filepath.Join(dir, recordFile), data, 0o600)
		}
		return err
	}
	replace := func(with func(path string) error) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, recordFile)
			return errors.Join(os.Remove(path), with(path))
		}
	}
	for name, damage := range map[string]func(dir string) error{
		"flipped": flip,
		"none":    replace(func(string) error { return nil }),
		"cut":     func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 100) },
		"emptied": func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 0) },
		"huge":    func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 1<<40) },
		"pipe":    replace(func(path string) error { return unix.Mkfifo(path, 0o600) }),
		"folder":  replace(func(path string) error { return os.Mkdir(path, 0o700) }),
		"loop":    replace(func(path string) error { return os.Symlink(path, path) }),
		"device":  replace(func(path string) error { return os.Symlink("/dev/zero", path) }),
		"later": replace(func(path string) error {
			data, err := record{Version: 99, Chain: digest.FromString("x")}.encode()
			return errors.Join(err, os.WriteFile(path, data, 0o600))
		}),
		"a key that is no chain": replace(func(path string) error {
			data, err := record{Version: recordVersion, Chain: "root/c"}.encode()
			return errors.Join(err, os.WriteFile(path, data, 0o600))
		}),
		"files missing": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "fs")) },
		"files a link": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "fs")), os.Symlink("/", filepath.Join(dir, "fs")))
		},
		"folder missing": os.RemoveAll,
		"another name": func(dir string) error {
			return os.Rename(dir, filepath.Join(filepath.Dir(dir), "0"+filepath.Base(dir)))
		},
		"beyond all ids": func(dir string) error {
			return os.Rename(dir, filepath.Join(filepath.Dir(dir), "18446744073709551615"))
		},
	} {
		s := newLossy(t)
		one, two, three := tarOf(t, text("1", "")), tarOf(t, text("2", "")), tarOf(t, text("3", ""))
		top := apply(t, s.Store, one, two, three)
		other := apply(t, s.Store, tarOf(t, text("other", "")))
		chains, err := s.Chain(t.Context(), top)
		s.check(err)
		middle := s.dir(chains[1])
		s.close()
		s.check(errors.Join(os.Remove(s.recordsFile()), damage(middle)))
		s.open()
		s.holds(name, other, "other=")
		s.holds(name, chains[2], "1=")
		if s.Has(t.Context(), chains[1]) || s.Has(t.Context(), top) || s.Whole(t.Context(), top) {
			t.Errorf("%s: it is there", name)
		}
		s.says(name, "restored from their folders\" restored=2 unusable=")
		if len(s.names()) != 2 {
			t.Errorf("%s: folders %q", name, s.names())
		}
		if got := apply(t, s.Store, one, two, three); got != top {
			t.Fatal(got)
		}
		s.holds(name, top, "1= 2= 3=")
		s.lose()
		s.holds(name+", lost again", top, "1= 2= 3=")
	}
}

// Without any record file all is as before there were any: the store starts empty.
func TestNothingToRestore(t *testing.T) {
	s := newLossy(t)
	top := apply(t, s.Store, tarOf(t, text("1", "")))
	s.close()
	s.check(errors.Join(os.Remove(s.recordsFile()), os.Remove(filepath.Join(s.layersDir(), "1", recordFile))))
	s.open()
	s.says("", "no layer could be restored: pull images again\" restored=0 unusable=0 put_aside=1")
	if s.Has(t.Context(), top) || s.Restored() || len(s.names()) != 0 {
		t.Errorf("folders %q", s.names())
	}
	s.holds("pulled again", apply(t, s.Store, tarOf(t, text("1", ""))), "1=")
	if s.names()[0] == "1" {
		t.Error("id 1 is used again")
	}
}

// Layers of a program that wrote no record files get them when the store is opened.
func TestOlderLayersAreRestored(t *testing.T) {
	s := newLossy(t)
	top := apply(t, s.Store, tarOf(t, text("1", "")), tarOf(t, text("2", "")))
	s.close()
	s.check(errors.Join(os.Remove(filepath.Join(s.layersDir(), "1", recordFile)), os.Truncate(filepath.Join(s.layersDir(), "2", recordFile), 3)))
	s.open()
	s.lose()
	s.holds("", top, "1= 2=")
}

// A layer that was removed does not come back once the deletion of its folder has started. Before,
// it is whole, and removed again.
func TestRemovedLayersAreNotRestored(t *testing.T) {
	ctx := t.Context()
	setup := func() (*lossy, digest.Digest, digest.Digest) {
		s := newLossy(t)
		return s, apply(t, s.Store, tarOf(t, text("1", ""), text("d/2", ""))), apply(t, s.Store, tarOf(t, text("kept", "")))
	}
	s, gone, kept := setup()
	folder := s.dir(gone)
	_, err := s.Sweep(ctx, map[digest.Digest]bool{kept: true})
	s.check(errors.Join(err, s.Cleanup(ctx)))
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a layer that was removed: %v", err)
	}
	s.lose()
	if s.Has(ctx, gone) {
		t.Error("a layer that was deleted is there")
	}
	s.holds("kept", kept, "kept=")

	s, gone, kept = setup()
	folder = s.dir(gone)
	_, err = s.Sweep(ctx, map[digest.Digest]bool{kept: true})
	s.check(err)
	ready, err := removeRecords([]string{folder})
	s.check(errors.Join(err, os.RemoveAll(filepath.Join(folder, "fs", "d"))))
	if len(ready) != 1 {
		t.Errorf("ready to be deleted: %q", ready)
	}
	s.lose()
	if _, err := os.Stat(folder); s.Has(ctx, gone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a layer that was deleted in part is there: %v", err)
	}
	s.holds("kept", kept, "kept=")

	s, gone, kept = setup()
	_, err = s.Sweep(ctx, map[digest.Digest]bool{kept: true})
	s.check(err)
	s.lose()
	s.holds("not deleted yet", gone, "1= d/ d/2=")
	_, err = s.Sweep(ctx, map[digest.Digest]bool{kept: true})
	s.check(errors.Join(err, s.Cleanup(ctx)))
	s.lose()
	if s.Has(ctx, gone) {
		t.Error("a layer that was deleted the second time is there")
	}

	// It was removed, and unpacked once more before its folder was deleted.
	s, gone, kept = setup()
	older := s.dir(gone)
	_, err = s.Sweep(ctx, map[digest.Digest]bool{kept: true})
	s.check(err)
	apply(t, s.Store, tarOf(t, text("1", ""), text("d/2", "")))
	newer := s.dir(gone)
	s.lose()
	s.holds("unpacked again", gone, "1= d/ d/2=")
	if s.dir(gone) != newer || newer == older || len(s.names()) != 2 {
		t.Errorf("folder %s of %s and %s, all %q", s.dir(gone), older, newer, s.names())
	}
}

// A container that runs goes on with the layers that it has mounted, also when they are removed: no
// record says that it needs them. In the next boot they are deleted at once.
func TestRestoredLayersInUse(t *testing.T) {
	for _, rebooted := range []bool{false, true} {
		s := newLossy(t)
		chain := apply(t, s.Store, tarOf(t, text("1", "one")))
		file, err := os.Stat(filepath.Join(s.dir(chain), "fs", "1"))
		s.check(err)
		s.close()
		s.check(os.Remove(s.recordsFile()))
		if rebooted {
			s.check(os.WriteFile(s.bootFile(), []byte("01234567-89ab-cdef-0123-456789abcdef\n"), 0o600))
		}
		s.open()
		s.close()
		s.open() // another process of this boot
		_, err = s.Sweep(t.Context(), nil)
		s.check(errors.Join(err, s.Cleanup(t.Context())))
		aside, err := filepath.Glob(filepath.Join(s.asideDir(), "removed-1", "fs", "1"))
		s.check(err)
		if len(s.names()) != 0 || len(aside) == 1 == rebooted {
			t.Errorf("rebooted %v: folders %q, put aside: %q", rebooted, s.names(), aside)
		}
		if len(aside) == 1 {
			if now, err := os.Stat(aside[0]); err != nil || !os.SameFile(file, now) {
				t.Errorf("the file that a container has: %v, %v", now, err)
			}
		}
		for range 2 { // lost again, first without any layer
			s.lose()
			one := apply(t, s.Store, tarOf(t, text("1", "one")))
			s.lose()
			s.holds("lost again", one, "1=one")
			_, err = s.Sweep(t.Context(), nil)
			s.check(errors.Join(err, s.Cleanup(t.Context())))
		}
		later := apply(t, s.Store, tarOf(t, text("2", "")))
		folder := s.dir(later)
		_, err = s.Sweep(t.Context(), nil)
		s.check(errors.Join(err, s.Cleanup(t.Context())))
		if _, err := os.Stat(filepath.Join(s.asideDir(), "removed-"+filepath.Base(folder))); len(s.names()) != 0 || err == nil {
			t.Errorf("rebooted %v: a later layer was kept", rebooted)
		}
	}
}

// A restore that was stopped somewhere is made again.
func TestRestoreIsRepeated(t *testing.T) {
	for name, stop := range map[string]func(s *lossy, layers []folder) error{
		"some put aside": func(s *lossy, layers []folder) error {
			entries, err := os.ReadDir(s.layersDir())
			if err == nil {
				_, _, err = s.putOthersAside(entries[:len(entries)/2], layers)
			}
			return err
		},
		"records begun": func(s *lossy, layers []folder) error {
			err := s.rebuildRecords(s.t.Context(), layers[:1], 1)
			return errors.Join(err, os.Rename(s.recordsFile(), s.recordsFile()+".new"))
		},
		"records torn": func(s *lossy, layers []folder) error {
			return os.WriteFile(s.recordsFile()+".new", make([]byte, 3000), 0o600)
		},
		"not in place": func(s *lossy, layers []folder) error {
			err := s.rebuildRecords(s.t.Context(), layers, 99)
			return errors.Join(err, os.Rename(s.recordsFile(), s.recordsFile()+".new"))
		},
	} {
		s := newLossy(t)
		top := apply(t, s.Store, tarOf(t, text("1", "")), tarOf(t, text("2", "")))
		for i := range 3 {
			_, err := s.Prepare(t.Context(), fmt.Sprint("c", i), top, nil)
			s.check(err)
		}
		before := s.known()
		s.close()
		s.check(os.Remove(s.recordsFile()))
		entries, err := os.ReadDir(s.layersDir())
		s.check(err)
		layers, _ := s.findLayers(entries)
		s.check(stop(s, layers))
		s.open()
		if after := s.known(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: there are %v, there were %v", name, after, before)
		}
		s.holds(name, top, "1= 2=")
		mounts, err := s.Prepare(t.Context(), "new", top, nil)
		s.check(err)
		for i := range 6 {
			if strings.Contains(fmt.Sprint(mounts), fmt.Sprintf("upperdir=%s/%d/", s.layersDir(), i)) {
				t.Errorf("%s: id %d is used again", name, i)
			}
		}
		if left, err := filepath.Glob(s.recordsFile() + ".new"); err != nil || len(left) > 0 {
			t.Errorf("%s: left: %q, %v", name, left, err)
		}
	}
}

const envChildStore = "SUNABA_TEST_UNPACK_STORE"

// TestChildRestore is no test: it is the process that is killed while it restores, removes and
// unpacks.
func TestChildRestore(t *testing.T) {
	root := os.Getenv(envChildStore)
	if root == "" {
		return
	}
	s, err := Open(t.Context(), testOptions(root))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		chain := apply(t, s, tarOf(t, text("kept", "1")), tarOf(t, text("passing", fmt.Sprint(os.Getpid(), i)), text("d/more", "1")))
		if _, err := s.Prepare(t.Context(), "c", chain, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sweep(t.Context(), map[digest.Digest]bool{digest.FromBytes(tarOf(t, text("kept", "1"))): true}); err != nil {
			t.Fatal(err)
		}
		if err := s.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Processes are killed at any moment, and the records are lost each time: every layer that is there
// is whole, and the one that is needed stays.
func TestKilledAndLost(t *testing.T) {
	s := newLossy(t)
	kept := apply(t, s.Store, tarOf(t, text("kept", "1")))
	random := rand.New(rand.NewPCG(1, 2))
	restored := 0
	for range 20 {
		s.close()
		if err := os.Remove(s.recordsFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		var output bytes.Buffer
		cmd := exec.Command(os.Args[0], "-test.run=^TestChildRestore$")
		cmd.Env = append(os.Environ(), envChildStore+"="+s.root)
		cmd.Stdout, cmd.Stderr = &output, &output
		s.check(cmd.Start())
		time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
		s.check(cmd.Process.Kill())
		cmd.Wait() // says that it was killed
		if output.Len() > 0 {
			t.Fatalf("the child said %s", &output)
		}
		if err := os.Remove(s.recordsFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		s.open()
		s.holds("kept", kept, "kept=1")
		layers := s.known()
		restored += len(layers)
		for _, l := range layers {
			if err := s.Check(t.Context(), l.Chain); err != nil {
				t.Error(err)
			}
		}
		_, err := s.Sweep(t.Context(), map[digest.Digest]bool{kept: true})
		s.check(errors.Join(err, s.Cleanup(t.Context())))
		if names := s.names(); len(names) != 1 {
			t.Errorf("folders %q", names)
		}
	}
	t.Logf("%d layers were restored", restored)
}
