package unpack

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
)

// lossy is a store whose folders are damaged between two processes.
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
	return s
}

func (s *lossy) open() {
	s.t.Helper()
	s.log.Reset()
	o := testOptions(s.root)
	o.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	var err error
	if s.Store, err = Open(o); err != nil {
		s.t.Fatalf("%v, log %s", err, &s.log)
	}
}

// again opens the store as another process does.
func (s *lossy) again() {
	s.t.Helper()
	s.Close()
	s.open()
}

// reboot makes the next process the first of this boot.
func (s *lossy) reboot() {
	s.t.Helper()
	s.check(os.Rename(s.asideDir(), filepath.Join(filepath.Dir(s.asideDir()), "another boot")))
}

func (s *lossy) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v, log %s", err, &s.log)
	}
}

// known returns all that is recorded.
func (s *lossy) known() map[string]folder {
	known := map[string]folder{}
	layers, roots := s.all()
	for _, f := range append(layers, roots...) {
		known[f.Chain.String()+f.Key] = f
	}
	return known
}

// dirOf returns the folder of a layer.
func (s *lossy) dirOf(chain digest.Digest) string {
	s.t.Helper()
	f, err := s.layer(chain)
	s.check(err)
	return s.dir(f)
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

// aside returns what was set aside in this boot.
func (s *lossy) aside(pattern string) []string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.asideDir(), pattern))
	s.check(err)
	return found
}

// sweep removes all layers except some.
func (s *lossy) sweep(keep ...digest.Digest) {
	s.t.Helper()
	chains := map[digest.Digest]bool{}
	for _, c := range keep {
		chains[c] = true
	}
	s.Sweep(chains)
	s.check(s.Cleanup())
}

// holds wants a chain to be whole, with what was unpacked.
func (s *lossy) holds(what string, chain digest.Digest, want string) {
	s.t.Helper()
	if !s.Whole(chain) {
		s.t.Errorf("%s: layer %s is missing, log %s", what, chain, &s.log)
		return
	}
	chains, err := s.Chain(chain)
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

// All that was recorded is there in the next process, under the same paths.
func TestRecordsStay(t *testing.T) {
	s := newLossy(t)
	base := tarOf(t, dir("d/"), text("d/a", "1"))
	x, y := apply(t, s.Store, base, tarOf(t, text("x", "2"))), apply(t, s.Store, base, tarOf(t, text("d/y", "3")))
	s.check(s.MarkDamaged(y))
	labels := MapLabels("0:70000:65536", "0:80000:65536")
	labels["sunaba/image"] = "i"
	prepare := func() (all []any) {
		root, err := s.Prepare("c", x, labels)
		s.check(err)
		view, err := s.View("v", x, nil)
		s.check(err)
		empty, err := s.Prepare("e", "", nil)
		s.check(err)
		return append(all, root, view, empty)
	}
	mounts, before := prepare(), s.known()
	for range 2 {
		s.again()
		if after := s.known(); !reflect.DeepEqual(after, before) || len(after) != 6 {
			t.Errorf("there are %v, there were %v", after, before)
		}
		if after := prepare(); !reflect.DeepEqual(after, mounts) {
			t.Errorf("mounts are %v, were %v", after, mounts)
		}
		s.holds("x", x, "d/ d/a=1 x=2")
		if s.Has(y) || s.Lost() || s.log.Len() > 0 {
			t.Errorf("damaged there: %v, lost %v, log %s", s.Has(y), s.Lost(), &s.log)
		}
	}
	// What is damaged is replaced where it is.
	at := s.dirOf(y)
	apply(t, s.Store, base, tarOf(t, text("d/y", "3")))
	s.again()
	s.holds("y", y, "d/ d/a=1 d/y=3")
	if s.dirOf(y) != at || len(s.aside("*.damaged.*/fs/d/y")) != 1 {
		t.Errorf("in %s, was in %s, aside %q", s.dirOf(y), at, s.aside("*"))
	}
	glanced, err := GlanceRoots(s.root)
	if keys := []string{"c", "e", "v"}; err != nil || len(glanced) != 3 || !slices.EqualFunc(s.Roots(), keys, func(r Root, k string) bool { return r.Key == k }) {
		t.Errorf("roots %v, seen from outside: %v, %v", s.Roots(), glanced, err)
	}
}

// A layer whose folder is not whole, or whose record cannot be read, is lost. The others stay, and
// the next pull completes the image.
func TestDamagedFolders(t *testing.T) {
	replace := func(with func(path string) error) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, recordFile)
			return errors.Join(os.Remove(path), with(path))
		}
	}
	edit := func(change func(r *record)) func(dir string) error {
		return func(dir string) error {
			r, err := readRecord(dir)
			change(&r)
			return errors.Join(err, r.write(dir, durable.Replace))
		}
	}
	for name, damage := range map[string]func(dir string) error{
		"flipped": func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, recordFile))
			if err == nil {
				data[len(data)-2] ^= 1 // a number
				err = os.WriteFile(filepath.Join(dir, recordFile), data, 0o600)
			}
			return err
		},
		"none":                  replace(func(string) error { return nil }),
		"cut":                   func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 100) },
		"emptied":               func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 0) },
		"huge":                  func(dir string) error { return os.Truncate(filepath.Join(dir, recordFile), 1<<40) },
		"pipe":                  replace(func(path string) error { return unix.Mkfifo(path, 0o600) }),
		"folder":                replace(func(path string) error { return os.Mkdir(path, 0o700) }),
		"loop":                  replace(func(path string) error { return os.Symlink(path, path) }),
		"device":                replace(func(path string) error { return os.Symlink("/dev/zero", path) }),
		"a chain that is none":  edit(func(r *record) { r.Chain = "root/c" }),
		"a parent that is none": edit(func(r *record) { r.Parent = "../.." }),
		"no chain":              edit(func(r *record) { r.Chain = "" }),
		"chain and key":         edit(func(r *record) { r.Key = "c" }),
		"files missing":         func(dir string) error { return os.RemoveAll(filepath.Join(dir, "fs")) },
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
		for _, rebooted := range []bool{false, true} {
			what := fmt.Sprint(name, ", rebooted ", rebooted)
			s := newLossy(t)
			one, two, three := tarOf(t, text("1", "")), tarOf(t, text("2", "")), tarOf(t, text("3", ""))
			top, other := apply(t, s.Store, one, two, three), apply(t, s.Store, tarOf(t, text("other", "")))
			chains, err := s.Chain(top)
			s.check(err)
			middle, above := s.dirOf(chains[1]), s.dirOf(top)
			s.Close()
			s.check(damage(middle))
			if rebooted {
				s.reboot()
			}
			s.open()
			s.holds(what, other, "other=")
			s.holds(what, chains[2], "1=")
			if s.Has(chains[1]) || s.Whole(top) {
				t.Errorf("%s: it is there", what)
			}
			if _, err := s.Prepare("c", top, nil); !errdefs.IsNotFound(err) {
				t.Errorf("%s: a root upon what is not whole: %v", what, err)
			}
			missing := name == "folder missing"
			if s.Lost() == missing || missing == strings.Contains(s.log.String(), "failed to use folder") {
				t.Errorf("%s: lost %v, log %s", what, s.Lost(), &s.log)
			}
			if left := len(s.aside("*")); len(s.names()) != 3 || left != 1 && !rebooted && !missing || left > 0 && rebooted {
				t.Errorf("%s: folders %q, aside %q", what, s.names(), s.aside("*"))
			}
			if got := apply(t, s.Store, one, two, three); got != top {
				t.Fatal(got)
			}
			s.holds(what, top, "1= 2= 3=")
			s.again()
			s.holds(what+", in the next process", top, "1= 2= 3=")
			if s.Lost() || s.dirOf(top) != above || len(s.names()) != 4 {
				t.Errorf("%s: lost %v, the layer above is in %s, was in %s, folders %q", what, s.Lost(), s.dirOf(top), above, s.names())
			}
		}
	}
}

// A record of a newer release is no damage, and neither is a lack of file descriptors: the store
// does not open, and all stays.
func TestRecordsThatAreNotJudged(t *testing.T) {
	s := newLossy(t)
	top := apply(t, s.Store, tarOf(t, text("1", "")))
	at := s.dirOf(top)
	r, err := readRecord(at)
	s.check(err)
	newer := r
	newer.Version = recordVersion + 1
	s.check(newer.write(at, durable.Replace))
	if _, err := Open(testOptions(s.root)); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "newer release") {
		t.Errorf("a newer record: %v", err)
	}
	s.check(r.write(at, durable.Replace))
	s.again()
	s.holds("", top, "1=")
	var had unix.Rlimit
	s.check(unix.Getrlimit(unix.RLIMIT_NOFILE, &had))
	few := had
	few.Cur = 3
	s.check(unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	_, err = readRecord(at)
	s.check(unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
	if err == nil || errdefs.IsDataLoss(err) {
		t.Errorf("without file descriptors: %v", err)
	}
	// A record is as long as it may be.
	if _, err := s.Prepare("long", top, map[string]string{"sunaba/x": strings.Repeat("x", maxRecord)}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a record that cannot be read again: %v", err)
	}
	if len(s.Roots()) != 0 || len(s.names()) != 1 {
		t.Errorf("roots %v, folders %q", s.Roots(), s.names())
	}
}

// A layer that was removed does not come back once the deletion of its folder has started. Before,
// it is whole, and removed again.
func TestRemovedLayersStayRemoved(t *testing.T) {
	setup := func() (*lossy, digest.Digest, digest.Digest) {
		s := newLossy(t)
		return s, apply(t, s.Store, tarOf(t, text("1", ""), text("d/2", ""))), apply(t, s.Store, tarOf(t, text("kept", "")))
	}
	s, gone, kept := setup()
	s.sweep(kept)
	if names := s.names(); len(names) != 1 {
		t.Errorf("folders %q", names)
	}
	s.again()
	if s.Has(gone) {
		t.Error("a layer that was deleted is there")
	}
	s.holds("kept", kept, "kept=")

	s, gone, kept = setup()
	s.Sweep(map[digest.Digest]bool{kept: true})
	ready, err := s.removed()
	s.check(err)
	if len(ready) != 1 {
		t.Fatalf("ready to be deleted: %q", ready)
	}
	s.check(os.RemoveAll(filepath.Join(ready[0], "fs", "d")))
	s.again()
	if s.Has(gone) || s.Lost() || len(s.names()) != 1 || len(s.aside("*")) != 0 {
		t.Errorf("a layer that was deleted in part: there %v, folders %q", s.Has(gone), s.names())
	}
	s.holds("kept", kept, "kept=")

	s, gone, kept = setup()
	s.Sweep(map[digest.Digest]bool{kept: true})
	s.again()
	s.holds("not deleted yet", gone, "1= d/ d/2=")
	s.sweep(kept)
	s.again()
	if s.Has(gone) {
		t.Error("a layer that was deleted the second time is there")
	}

	// It was removed, and unpacked once more before its folder was deleted.
	s, gone, kept = setup()
	older := s.dirOf(gone)
	s.Sweep(map[digest.Digest]bool{kept: true})
	apply(t, s.Store, tarOf(t, text("1", ""), text("d/2", "")))
	newer := s.dirOf(gone)
	s.again()
	s.holds("unpacked again", gone, "1= d/ d/2=")
	if s.dirOf(gone) != newer || newer == older || len(s.names()) != 2 {
		t.Errorf("folder %s of %s and %s, all %q", s.dirOf(gone), older, newer, s.names())
	}
}

// A container whose record is lost goes on with the layers that it has mounted, also when they are
// removed. In the next boot all is deleted at once.
func TestLayersInUseOfALostRoot(t *testing.T) {
	for i := range 4 {
		rebooted, restarted := i%2 == 1, i >= 2
		s := newLossy(t)
		chain := apply(t, s.Store, tarOf(t, text("1", "one")))
		file, err := os.Stat(filepath.Join(s.dirOf(chain), "fs", "1"))
		s.check(err)
		_, err = s.Prepare("c", chain, nil)
		s.check(err)
		f, err := s.folder("c")
		s.check(err)
		s.check(os.Truncate(filepath.Join(s.dir(f), recordFile), 0))
		if rebooted {
			s.reboot()
		}
		s.again()
		if len(s.Roots()) != 0 || len(s.aside(f.name+".lost-1.*/fs")) == 1 == rebooted {
			t.Errorf("rebooted %v: roots %v, aside %q", rebooted, s.Roots(), s.aside("*"))
		}
		if restarted { // another process of this boot
			if s.again(); s.Lost() {
				t.Error("it is lost twice")
			}
		}
		s.sweep()
		aside := s.aside("1.removed.*/fs/1")
		if len(s.names()) != 0 || len(aside) == 1 == rebooted {
			t.Errorf("rebooted %v: folders %q, set aside: %q", rebooted, s.names(), aside)
		}
		if len(aside) == 1 {
			if now, err := os.Stat(aside[0]); err != nil || !os.SameFile(file, now) {
				t.Errorf("the file that a container has: %v, %v", now, err)
			}
		}
		later := apply(t, s.Store, tarOf(t, text("2", "")))
		if name := filepath.Base(s.dirOf(later)); name == "1" && !rebooted {
			t.Error("an id is used again")
		}
		s.sweep()
		if len(s.names()) != 0 || len(s.aside("2.removed.*")) != 0 {
			t.Errorf("rebooted %v: a later layer was kept", rebooted)
		}
	}
}

const (
	envChildStore = "SUNABA_TEST_UNPACK_STORE"
	childKept     = "kept"
)

// Calls side by side set aside what was removed once, and none of them fails.
func TestCleanupsAtOnce(t *testing.T) {
	s := newLossy(t)
	s.held = maxID
	for i := range 200 {
		s.check(os.Mkdir(filepath.Join(s.layersDir(), fmt.Sprint(i+1, whyRemoved)), 0o700))
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := s.Cleanup(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left := s.names(); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
	if kept := s.aside("*" + whyRemoved + "*"); len(kept) != 200 {
		t.Errorf("%d are set aside", len(kept))
	}
}

// TestChildStore is no test: it is the process that is killed while it unpacks, removes and makes
// roots.
func TestChildStore(t *testing.T) {
	root := os.Getenv(envChildStore)
	if root == "" {
		return
	}
	s, err := Open(testOptions(root))
	if err != nil {
		t.Fatal(err)
	}
	base := tarOf(t, text(childKept, "1"))
	for i := 0; ; i++ {
		chain := apply(t, s, base, tarOf(t, text("passing", fmt.Sprint(os.Getpid(), i)), text("d/more", "1")))
		if _, err := s.Prepare("c", chain, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove("c"); err != nil {
			t.Fatal(err)
		}
		s.Sweep(map[digest.Digest]bool{digest.FromBytes(base): true})
		if err := s.Cleanup(); err != nil {
			t.Fatal(err)
		}
	}
}

// Processes are killed at any moment: every layer that is there is whole, nothing is lost, and the
// one that is needed stays.
func TestKilled(t *testing.T) {
	s := newLossy(t)
	kept := apply(t, s.Store, tarOf(t, text(childKept, "1")))
	_, err := s.Prepare("kept", kept, nil)
	s.check(err)
	random := rand.New(rand.NewPCG(1, 2))
	layers := 0
	for range 20 {
		s.Close()
		var output bytes.Buffer
		cmd := exec.Command(os.Args[0], "-test.run=^TestChildStore$")
		cmd.Env = append(os.Environ(), envChildStore+"="+s.root)
		cmd.Stdout, cmd.Stderr = &output, &output
		s.check(cmd.Start())
		time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
		s.check(cmd.Process.Kill())
		cmd.Wait() // says that it was killed
		if output.Len() > 0 {
			t.Fatalf("the child said %s", &output)
		}
		s.open()
		if s.Lost() || s.log.Len() > 0 {
			t.Errorf("log %s", &s.log)
		}
		s.holds("kept", kept, "kept=1")
		for _, f := range s.known() {
			if f.Key == "" {
				layers++
				s.check(s.Check(t.Context(), f.Chain))
			}
		}
		s.check(s.Remove("c"))
		s.sweep()
		if names := s.names(); len(names) != 2 || len(s.aside("*")) > 0 {
			t.Errorf("folders %q, aside %q", names, s.aside("*"))
		}
	}
	t.Logf("%d layers were there", layers)
}
