package desired

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// B.2: a file is taken whole or not at all, and the last good version goes on, over a restart too.
func TestLastGoodVersion(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"), config("c", "1"))
	n.start()
	good := n.has("pod default/a i:1 a.yaml", "configmap default/c 1 a.yaml")
	n.until("loaded", good)
	n.put("a.yaml", pod("a", "i:2"), config("c", "2")+"imagePolicy: x\n")
	n.put("new.yaml", "kind: [\n")
	n.until("refused", n.is("a.yaml", Refused, "the version of"))
	n.until("refused without a good version", func() bool { return n.file("new.yaml").Status == Refused })
	f := n.file("a.yaml")
	if !good() || f.Objects != 2 || strings.HasPrefix(f.Message, n.dir) || !strings.HasPrefix(f.Message, "document 2") ||
		!strings.Contains(f.Message, "imagePolicy") || strings.Contains(f.Message, "invalid argument") || strings.Contains(f.Message, "\n") {
		t.Errorf("objects %v, file %+v", n.have(), f)
	}
	if f := n.file("new.yaml"); strings.Contains(f.Message, "stays in use") {
		t.Errorf("file %+v", f)
	}
	n.start()
	if !good() {
		t.Errorf("after a restart: %v", n.have())
	}
	n.until("refused after a restart", n.is("a.yaml", Refused, "imagePolicy"))
	n.check(os.Truncate(n.path("a.yaml"), 0)) // a full disk while it is copied
	n.check(os.WriteFile(n.path("a.yaml"), []byte("apiVersion: v1\nkind: Pod\nmeta"), 0o644))
	n.until("cut off", n.is("a.yaml", Refused, "document 1"))
	if !good() {
		t.Errorf("with a file that is cut off: %v", n.have())
	}
	n.put("a.yaml", pod("a", "i:1"), config("c", "1"))
	n.until("loaded again", n.is("a.yaml", Loaded, ""))
	n.put("a.yaml", config("c", "3"))
	n.until("an object less", n.has("configmap default/c 3 a.yaml"))
}

// A message is bounded, whatever is in the file.
func TestMessageIsBounded(t *testing.T) {
	n := newNode(t)
	text := pod("a", "i:1")
	for i := range 3000 {
		text += fmt.Sprintf("föld%d: x\n", i)
	}
	n.put("a.yaml", text)
	n.start()
	n.until("refused", func() bool {
		return n.file("a.yaml").Status == Refused && n.file("a.yaml").Message != "was not read yet"
	})
	if m := n.file("a.yaml").Message; len(m) > 1200 || len(m) < 50 {
		t.Errorf("%d bytes: %s", len(m), m)
	}
	if got := reason("/f", errors.New("/f: "+strings.Repeat("ö", 2000))); len(got) > longestMessage+3 || !strings.HasSuffix(got, "ö…") {
		t.Errorf("%d bytes: …%q", len(got), got[len(got)-8:])
	}
}

// What is on record is in force after a crash, whenever it came.
func TestCrashBetweenRecordAndEffect(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml"))
	n.stop()
	b := n.book
	reopened := func(want ...string) {
		t.Helper()
		s, err := Open(n.options)
		n.check(err)
		n.Set = s
		if !n.has(want...)() {
			t.Errorf("objects %v, want %v", n.have(), want)
		}
	}
	objects, _, err := manifest.Parse(n.path("a.yaml"), []byte(pod("a", "i:2")), manifest.Options{})
	n.check(err)
	v := &version{hash: "x", taken: time.Now(), entries: b.entries(objects, fileSource(n.path("a.yaml")))}
	temporary := filepath.Join(b.manifests(), "."+recordName(n.path("a.yaml"))+".tmp-1")
	n.check(os.WriteFile(temporary, []byte("half a reco"), 0o600)) // killed while the record is written
	reopened("pod default/a i:1 a.yaml")
	if _, err := os.Stat(temporary); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished record is left: %v", err)
	}
	n.check(b.record(n.path("a.yaml"), v)) // killed before the effect
	reopened("pod default/a i:2 a.yaml")
	// A rename: the object is on record of both files until the first one is gone.
	objects[0].File = n.path("b.yaml")
	later := &version{hash: "y", taken: time.Now().Add(time.Second), entries: b.entries(objects, fileSource(n.path("b.yaml")))}
	n.check(b.record(n.path("b.yaml"), later))
	reopened("pod default/a i:2 b.yaml")
	n.check(os.Remove(n.path("a.yaml")))
	n.put("b.yaml", pod("a", "i:2"))
	n.start()
	n.until("the first file is forgotten", func() bool { return len(n.Files()) == 1 && n.is("b.yaml", Loaded, "")() })
	n.check(b.unrecord(n.path("b.yaml"))) // killed before a removal took effect
	reopened()
}

// B.2: one object in two files.
func TestOneObjectInTwoFiles(t *testing.T) {
	n := newNode(t)
	n.put("b.yaml", pod("web", "i:1"), pod("x", "i:1"))
	n.put("c.yaml", pod("web", "i:2"), pod("y", "i:2"))
	n.start()
	first := n.has("pod default/web i:1 b.yaml", "pod default/x i:1 b.yaml")
	n.until("the first by name has it", first)
	n.until("the second is refused", n.is("c.yaml", Refused, "pod default/web: stands in b.yaml already"))
	n.put("a.yaml", pod("web", "i:3"))
	n.until("who had it keeps it", n.is("a.yaml", Refused, "pod default/web: stands in b.yaml already"))
	n.start()
	n.until("also over a restart", n.is("a.yaml", Refused, "stands in b.yaml already"))
	if !first() {
		t.Errorf("objects %v", n.have())
	}
	n.put("b.yaml", pod("x", "i:1"))
	if took := n.until("what is free is taken at once", n.has("pod default/web i:3 a.yaml", "pod default/x i:1 b.yaml")); took > soon {
		t.Errorf("taken after %v", took)
	}
	n.until("the last one waits for another", n.is("c.yaml", Refused, "pod default/web: stands in a.yaml already"))
	n.check(os.Remove(n.path("a.yaml")))
	n.until("until that is gone", n.has("pod default/x i:1 b.yaml", "pod default/web i:2 c.yaml", "pod default/y i:2 c.yaml"))
}

// Objects that Kubernetes does not let be edited (B.3, AD14).
func TestImmutable(t *testing.T) {
	n := newNode(t)
	fixed := func(value string) string { return config("c", value) + "immutable: true\n" }
	secret := func(value string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {k: " + value + "}\nimmutable: true\n"
	}
	n.put("c.yaml", fixed("1"))
	n.put("s.yaml", secret("YQ=="))
	n.put("r.yaml", class("wasm", "wasm"))
	n.start()
	n.until("loaded", func() bool { return len(n.have()) == 3 })
	n.put("c.yaml", fixed("2"))
	n.until("refused", n.is("c.yaml", Refused, "configmap default/c: it is immutable: remove it, or give the new one another name; the version of"))
	n.put("c.yaml", config("c", "1"))
	n.until("also to make it mutable", n.is("c.yaml", Refused, "it is immutable"))
	n.put("s.yaml", secret("Yg=="))
	n.until("refused", n.is("s.yaml", Refused, "secret default/s: it is immutable"))
	n.put("r.yaml", class("wasm", "runc"))
	n.until("refused", n.is("r.yaml", Refused, `its handler was "wasm" and is "runc" now`))
	n.until("the first versions go on", n.has("configmap default/c 1 c.yaml", "runtimeclass wasm r.yaml", "secret default/s s.yaml"))
	n.put("c.yaml", strings.Replace(fixed("1"), "name: c", "name: c, labels: {a: b}", 1))
	n.until("labels may be edited", n.is("c.yaml", Loaded, ""))
	n.check(os.Remove(n.path("c.yaml")))
	n.until("removal is no edit", n.has("runtimeclass wasm r.yaml", "secret default/s s.yaml"))
	n.put("c.yaml", fixed("2"))
	n.until("and it may be made anew", n.has("configmap default/c 2 c.yaml", "runtimeclass wasm r.yaml", "secret default/s s.yaml"))
}

// IM1: a pull policy that is a default is set once, over a restart too.
func TestPullPolicyIsSetOnce(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	policy := func() string {
		e, _ := n.Get(key(manifest.KindPod, "a"))
		return e.Pod().Spec.Containers[0].Image + " " + string(e.Pod().Spec.Containers[0].ImagePullPolicy)
	}
	n.until("loaded", func() bool { return len(n.have()) == 1 })
	n.start()
	n.put("a.yaml", pod("a", "i:latest"))
	n.until("edited", func() bool { return policy() == "i:latest IfNotPresent" })
	if e, _ := n.Get(key(manifest.KindPod, "a")); e.Source.Hash != e.Object.Hash() {
		t.Error("the hash is not the object's")
	}
}

// An edit or a new file that cannot be recorded is not acted on, and tried again before the next
// listing, in pauses that grow.
func TestFullDisk(t *testing.T) {
	n := newNode(t)
	n.options.times = usual()
	n.options.times.relist, n.options.times.young = time.Hour, 10*time.Millisecond
	var late atomic.Int32
	n.options.parse = func(file string, data []byte, o manifest.Options) ([]manifest.Object, []string, error) {
		if filepath.Base(file) == "late.yaml" {
			late.Add(1)
		}
		return manifest.Parse(file, data, o)
	}
	n.check(os.Mkdir(n.options.Store, 0o700))
	n.check(unix.Mount("store", n.options.Store, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(n.options.Store, unix.MNT_DETACH) })
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml"))
	filler := filepath.Join(n.options.Store, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	n.put("a.yaml", pod("a", "i:2"))
	n.until("refused", n.is("a.yaml", Refused, "has no room"))
	if f := n.file("a.yaml"); !n.has("pod default/a i:1 a.yaml")() || !strings.Contains(f.Message, "no space left on device") || !strings.Contains(f.Message, "stays in use") {
		t.Errorf("objects %v, file %+v", n.have(), f)
	}
	_, _, err := n.Apply("x.yaml", []byte(pod("b", "i:1")), "", false)
	if !errdefs.IsResourceExhausted(err) || !strings.HasPrefix(fmt.Sprint(err), "apply pod default/b: write ") {
		t.Errorf("Apply: %v", err)
	}
	if len(n.have()) != 1 {
		t.Errorf("objects %v", n.have())
	}
	n.put("late.yaml", pod("late", "i:1"))
	n.until("refused", n.is("late.yaml", Refused, "has no room"))
	refused := n.file("late.yaml")
	n.until("tried again", func() bool { return late.Load() > 3 })
	time.Sleep(time.Second)
	if f := n.file("late.yaml"); f.Since != refused.Since || f.Message != refused.Message {
		t.Errorf("told as %+v, and again as %+v", refused, f)
	}
	if got := late.Load(); got > 12 { // 10 ms, 20 ms, 40 ms, …: 7 in the first second, 10 in ten
		t.Errorf("read %d times", got)
	}
	n.check(os.Remove(filler))
	n.until("loaded", n.has("pod default/a i:2 a.yaml", "pod default/late i:1 late.yaml"))
	n.until("told", func() bool { return n.file("a.yaml").Status == Loaded && n.file("late.yaml").Status == Loaded })
	read := late.Load()
	time.Sleep(300 * time.Millisecond)
	if got := late.Load(); got != read {
		t.Errorf("read %d times more when it was loaded", got-read)
	}
}

// A quiet folder writes nothing, and what says the same is not an edit.
func TestNothingIsWrittenTwice(t *testing.T) {
	n := newNode(t)
	n.options.times = usual()
	n.options.times.relist = 20 * time.Millisecond
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml"))
	var before, after unix.Stat_t
	record := filepath.Join(n.book.manifests(), recordName(n.path("a.yaml")))
	n.check(unix.Stat(record, &before))
	n.check(os.Chtimes(n.path("a.yaml"), time.Now(), time.Now()))
	n.put("a.yaml", pod("a", "i:1"))
	n.during(1500*time.Millisecond, "the object stays", n.has("pod default/a i:1 a.yaml"))
	n.start()
	n.during(100*time.Millisecond, "the object stays", n.has("pod default/a i:1 a.yaml"))
	n.check(unix.Stat(record, &after))
	if before.Ino != after.Ino || before.Mtim != after.Mtim {
		t.Error("the record was written again")
	}
	if before.Mode&0o777 != 0o600 {
		t.Errorf("mode of the record %o", before.Mode)
	}
}

// Records that cannot be read are put aside; one of a newer program is an error.
func TestRecords(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml"))
	n.stop()
	record := filepath.Join(n.book.manifests(), recordName(n.path("a.yaml")))
	data, err := os.ReadFile(record)
	n.check(err)
	for name, content := range map[string]string{
		"cut": string(data[:len(data)/2]), "another name": string(data), "kind": strings.Replace(string(data), `"kind":"Pod","document"`, `"kind":"Job","document"`, 1),
		"no format": "{}",
	} {
		path := filepath.Join(n.book.manifests(), name)
		if name == "kind" {
			path = record
		}
		n.check(os.WriteFile(path, []byte(content), 0o600))
		s, err := Open(n.options)
		n.check(err)
		if len(s.Objects()) != map[bool]int{true: 0, false: 1}[name == "kind" || len(s.Objects()) == 0] {
			t.Errorf("%s: %v", name, s.Objects())
		}
		if _, err := os.Stat(filepath.Join(n.options.Store, "broken", filepath.Base(path))); err != nil {
			t.Errorf("%s: not put aside: %v", name, err)
		}
	}
	n.check(os.WriteFile(record, []byte(strings.Replace(string(data), `"version":1`, `"version":2`, 1)), 0o600))
	if _, err := Open(n.options); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "its format is 2, of a newer version of the program") {
		t.Errorf("a newer format: %v", err)
	}
	// A folder that is not configured any more takes its objects along.
	n.check(os.WriteFile(record, data, 0o600))
	n.options.Folders = nil
	s, err := Open(n.options)
	n.check(err)
	if _, err := os.Stat(record); len(s.Objects()) != 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("objects %v, record %v", s.Objects(), err)
	}
}

// 10,000 files are listed, recorded and watched in bounds; more are refused as a whole.
func TestManyFiles(t *testing.T) {
	n := newNode(t)
	const most = 500
	n.options.times = usual()
	n.options.times.most = most
	n.check(os.Mkdir(n.options.Store, 0o700))
	for _, dir := range []string{n.options.Store, n.dir} { // fsync of a disk is not what is measured
		n.check(unix.Mount("many", dir, "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	for i := range most {
		n.check(os.WriteFile(n.path(fmt.Sprintf("c%05d.yaml", i)), []byte(config(fmt.Sprintf("c%05d", i), "1")), 0o644))
	}
	s, err := Open(n.options)
	n.check(err)
	n.Set = s
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() {}) }()
	start := time.Now()
	for len(n.Objects()) < most {
		if time.Sleep(10 * time.Millisecond); time.Since(start) > 5*time.Minute {
			t.Fatalf("%d objects after %v", len(n.Objects()), time.Since(start))
		}
	}
	t.Logf("%d files after %v", most, time.Since(start))
	n.put("c00300.yaml", config("c00300", "2"))
	n.until("an edit among many", func() bool { c, _ := n.ConfigMap("default", "c00300"); return c.Data["k"] == "2" })
	n.put("one-more.yaml", config("one-more", "1"))
	n.until("too many are refused", n.is(n.dir, Gone, "it holds more than 500 manifests"))
	if len(n.Objects()) != most {
		t.Errorf("%d objects", len(n.Objects()))
	}
	n.check(os.Remove(n.path("one-more.yaml")))
	n.until("and so again", func() bool { return n.file(n.dir).Path == "" })
	cancel()
	n.check(<-ended)
	start = time.Now()
	if s, err = Open(n.options); err != nil || len(s.Objects()) != most {
		t.Errorf("opened again after %v: %v", time.Since(start), err)
	}
}
