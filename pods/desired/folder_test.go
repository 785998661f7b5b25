package desired

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/inotify"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// B.2: names that are read, and what is no file.
func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a.yaml": true, "a.yml": true, "a.json": true, "a.b.yaml": true,
		"a.yaml~": false, "a.yaml.bak": false, ".a.yaml": false, ".a.yaml.swp": false, "#a.yaml#": false,
		"a": false, "a.YAML": false, "a.yaml.swp": false, "..data": false, "a.toml": false,
	} {
		if manifestName(name) != want {
			t.Errorf("manifestName(%q) is not %v", name, want)
		}
	}
}

func TestWhatIsNoFile(t *testing.T) {
	n := newNode(t)
	n.check(os.Mkdir(n.path("folder.yaml"), 0o755))
	n.check(os.WriteFile(n.path("folder.yaml/inner.yaml"), []byte(pod("inner", "i:1")), 0o644))
	n.check(unix.Mkfifo(n.path("pipe.yaml"), 0o644))
	n.check(unix.Mknod(n.path("device.yaml"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5)))) // zeroes without end
	n.check(os.Symlink("/dev/zero", n.path("zero.yaml")))
	n.check(os.Symlink("nowhere", n.path("dangles.yaml")))
	n.check(os.Symlink("loop.yaml", n.path("loop.yaml")))
	n.check(os.Symlink(n.path("folder.yaml/inner.yaml"), n.path("link.yaml")))
	n.start()
	n.until("only the link is read", n.has("pod default/inner i:1 link.yaml"))
	n.check(unix.Mkfifo(n.path("later.yaml"), 0o644))
	n.put("z.yaml", pod("z", "i:1"))
	n.until("the pipe holds nothing up", n.has("pod default/inner i:1 link.yaml", "pod default/z i:1 z.yaml"))
	if all := n.Files(); len(all) != 2 {
		t.Errorf("files %+v", all)
	}
}

// B.2: at most 10 MiB.
func TestLargeFile(t *testing.T) {
	n := newNode(t).start()
	large := pod("a", "i:1") + strings.Repeat("# comment\n", manifest.MaxFile/10)
	n.put("a.yaml", large[:manifest.MaxFile])
	n.until("10 MiB are taken", n.has("pod default/a i:1 a.yaml"))
	n.put("b.yaml", pod("b", "i:1")+strings.Repeat("#", manifest.MaxFile))
	n.until("more are refused", n.is("b.yaml", Refused, "is longer than 10485760 bytes"))
	sparse := n.path("c.yaml")
	n.check(os.WriteFile(sparse, nil, 0o644))
	n.check(os.Truncate(sparse, 1<<40))
	n.Reload()
	n.until("a terabyte is refused", n.is("c.yaml", Refused, "is longer than 10485760 bytes"))
}

// B.2: a file takes effect when it was closed or moved in, at once.
func TestWaysOfSaving(t *testing.T) {
	n := newNode(t).start()
	const bound = soon
	atOnce := func(way string, condition func() bool) {
		t.Helper()
		if took := n.until(way, condition); took > bound {
			t.Errorf("%s: effect after %v", way, took)
		}
	}
	n.check(os.WriteFile(n.path("a.yaml"), []byte(pod("a", "i:1")), 0o644))
	atOnce("a new file", n.has("pod default/a i:1 a.yaml"))
	n.put("a.yaml", pod("a", "i:2"))
	atOnce("moved over the old one", n.has("pod default/a i:2 a.yaml"))
	n.check(os.WriteFile(n.path("a.yaml"), []byte(pod("a", "i:3")), 0o644))
	atOnce("truncated and written", n.has("pod default/a i:3 a.yaml"))
	n.check(os.Rename(n.path("a.yaml"), n.path("a.yaml~")))
	n.check(os.WriteFile(n.path("a.yaml"), []byte(pod("a", "i:4")), 0o644))
	atOnce("old one moved away, written anew", n.has("pod default/a i:4 a.yaml"))
	elsewhere := filepath.Join(t.TempDir(), "target.yaml")
	n.check(os.WriteFile(elsewhere, []byte(pod("l", "i:1")), 0o644))
	n.check(os.Chtimes(elsewhere, time.Now(), time.Now().Add(-time.Hour)))
	time.Sleep(1100 * time.Millisecond) // the target is not young any more
	n.check(os.Symlink(elsewhere, n.path("l.yaml")))
	atOnce("a link", n.has("pod default/a i:4 a.yaml", "pod default/l i:1 l.yaml"))
	n.check(os.Remove(n.path("a.yaml~")))
}

// A file that is open for writing is not half a file, whatever asks for a listing.
func TestSlowWriter(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"), pod("b", "i:1"))
	n.start()
	both := n.has("pod default/a i:1 a.yaml", "pod default/b i:1 a.yaml")
	n.until("loaded", both)
	f, err := os.OpenFile(n.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	n.check(err)
	_, err = f.WriteString(pod("a", "i:2") + "---\n")
	n.check(err)
	for range 3 { // longer than a file is young
		n.Reload()
		n.during(600*time.Millisecond, "the old version goes on", func() bool { return both() && n.file("a.yaml").Status == Loaded })
	}
	_, err = f.WriteString(pod("b", "i:2"))
	n.check(err)
	n.check(f.Close())
	if took := n.until("the whole file is taken", n.has("pod default/a i:2 a.yaml", "pod default/b i:2 a.yaml")); took > soon {
		t.Errorf("effect %v after the file was closed", took)
	}
}

// A file that somebody keeps open for writing is shown, and goes on with its last version.
func TestFileThatIsNeverClosed(t *testing.T) {
	n := newNode(t)
	n.options.times = usual()
	n.options.times.young = 20 * time.Millisecond
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml"))
	f, err := os.OpenFile(n.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	n.check(err)
	_, err = f.WriteString(pod("a", "i:2"))
	n.check(err)
	n.Reload()
	n.until("shown", n.is("a.yaml", Refused, "is being written; the version of"))
	if !n.has("pod default/a i:1 a.yaml")() {
		t.Errorf("objects %v", n.have())
	}
	n.check(f.Close())
	n.until("taken when it is closed", n.has("pod default/a i:2 a.yaml"))
	n.until("loaded", n.is("a.yaml", Loaded, ""))
}

// What is read is one version as a whole, however fast another process writes.
func TestReadIsWhole(t *testing.T) {
	dir := t.TempDir()
	write := func(b byte) error {
		return os.WriteFile(filepath.Join(dir, "a.yaml"), bytes.Repeat([]byte{b}, 1<<20), 0o644)
	}
	if err := write('a'); err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for b := byte('b'); err == nil; b = 'a' + (b-'a'+1)%26 {
			select {
			case <-stop:
				ended <- nil
				return
			default:
				err = write(b)
			}
		}
		ended <- err
	}()
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	reads := 0
	for start := time.Now(); time.Since(start) < time.Second || reads == 0 && time.Since(start) < soon; {
		data, _, err := d.read("a.yaml")
		switch {
		case errors.Is(err, errWriting):
		case err != nil:
			t.Fatal(err)
		default:
			reads++
			if len(data) != 1<<20 || bytes.Count(data, data[:1]) != len(data) {
				t.Fatalf("read %d bytes, of more than one version", len(data))
			}
		}
	}
	close(stop)
	if err := <-ended; err != nil || reads == 0 {
		t.Errorf("%d whole versions were read, %v", reads, err)
	}
}

// B.2: a file that is gone takes effect after 1 s in which it stayed away.
func TestRemoval(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.put("b.yaml", pod("b", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml", "pod default/b i:1 b.yaml"))
	n.check(os.Remove(n.path("a.yaml")))
	n.until("shown as gone", n.is("a.yaml", Gone, "is not in its folder; the version of"))
	if took := n.until("removed", n.has("pod default/b i:1 b.yaml")); took < 900*time.Millisecond || took > soon {
		t.Errorf("effect %v after the file was gone", took)
	}
	if f := n.file("a.yaml"); f.Path != "" {
		t.Errorf("file %+v", f)
	}
	n.check(os.Rename(n.path("b.yaml"), n.path("b.off")))
	if took := n.until("moved away", n.has()); took < 900*time.Millisecond || took > soon {
		t.Errorf("effect %v after the file was moved away", took)
	}
	if left, err := os.ReadDir(filepath.Join(n.options.Store, "manifests")); err != nil || len(left) != 0 {
		t.Errorf("records %v, %v", left, err)
	}
}

// B.2: git checkout removes and writes again. No object is away at any moment.
func TestCheckout(t *testing.T) {
	n := newNode(t)
	var before, after []string
	for i := range 20 {
		name := fmt.Sprintf("p%02d", i)
		n.put(name+".yaml", pod(name, "i:1"))
		before, after = append(before, "pod default/"+name+" i:1 "+name+".yaml"), append(after, "pod default/"+name+" i:2 "+name+".yaml")
	}
	n.start()
	n.until("loaded", n.has(before...))
	go func() {
		for i := range 20 {
			path := n.path(fmt.Sprintf("p%02d.yaml", i))
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
			if err := os.WriteFile(path, []byte(pod(fmt.Sprintf("p%02d", i), "i:2")), 0o644); err != nil {
				t.Error(err)
			}
		}
	}()
	n.during(1500*time.Millisecond, "all objects are there", func() bool { return len(n.have()) == 20 })
	n.until("the new version", n.has(after...))
}

// B.2: a renamed file changes nothing if the object is the same, nor does another form of it.
func TestRename(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"), pod("b", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml", "pod default/b i:1 a.yaml"))
	first, _ := n.Get(key(manifest.KindPod, "a"))
	same := func() bool {
		e, ok := n.Get(key(manifest.KindPod, "a"))
		return ok && e.Source.Hash == first.Source.Hash && e.Seen.Equal(first.Seen) && e.Value == first.Value
	}
	n.check(os.Rename(n.path("a.yaml"), n.path("b.yaml")))
	n.during(1500*time.Millisecond, "the object stays", same)
	n.until("in the other file", n.has("pod default/a i:1 b.yaml", "pod default/b i:1 b.yaml"))
	n.put("b.yaml", "# a comment\n"+pod("b", "i:1"), "\n"+pod("a", "i:1"))
	n.until("another order", n.has("pod default/b i:1 b.yaml", "pod default/a i:1 b.yaml"))
	if !same() {
		t.Error("the object changed with the form of its file")
	}
	n.start()
	n.until("after a restart", n.has("pod default/b i:1 b.yaml", "pod default/a i:1 b.yaml"))
	if e, ok := n.Get(key(manifest.KindPod, "a")); !ok || !e.Seen.Equal(first.Seen) || e.Source.Hash != first.Source.Hash {
		t.Errorf("after a restart: %+v", e)
	}
}

// B.2: a folder that does not exist is waited for, as are those above it.
func TestFolderThatDoesNotExist(t *testing.T) {
	n := newNode(t)
	n.check(os.Remove(n.dir))
	n.options.Folders = []string{filepath.Join(n.dir, "inner")}
	n.start()
	n.until("shown", n.is(filepath.Join(n.dir, "inner"), Gone, "the folder does not exist; it is waited for"))
	n.check(os.MkdirAll(filepath.Join(n.dir, "inner"), 0o755))
	n.check(os.WriteFile(n.path("inner/a.yaml"), []byte(pod("a", "i:1")), 0o644))
	if took := n.until("read", n.has("pod default/a i:1 a.yaml")); took > soon {
		t.Errorf("read %v after the folder was made", took)
	}
	if all := n.Files(); len(all) != 1 {
		t.Errorf("files %+v", all)
	}
}

// B.2: a folder that disappears changes nothing until it is back.
func TestFolderThatDisappears(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	there := n.has("pod default/a i:1 a.yaml")
	n.until("loaded", there)
	n.check(os.Rename(n.dir, n.dir+".away"))
	n.until("shown", n.is(n.dir, Gone, "the folder does not exist"))
	n.during(1500*time.Millisecond, "the object stays", there)
	if f := n.file("a.yaml"); f.Status != Gone || !strings.HasPrefix(f.Message, "its folder cannot be listed; the version of") {
		t.Errorf("file %+v", f)
	}
	n.start() // RB8: also if it is away at the start
	n.during(1500*time.Millisecond, "the object stays over a restart", there)
	n.check(os.Rename(n.dir+".away", n.dir))
	n.until("back", n.is("a.yaml", Loaded, ""))
	n.put("a.yaml", pod("a", "i:2"))
	n.until("watched again", n.has("pod default/a i:2 a.yaml"))
}

// B.2: the mount point of a disk that is not mounted is an empty folder, and proves nothing.
func TestUnmountedFolder(t *testing.T) {
	n := newNode(t)
	mount := func() { n.check(unix.Mount("manifests", n.dir, "tmpfs", 0, "")) }
	unmount := func() { n.check(unix.Unmount(n.dir, 0)) }
	mount()
	t.Cleanup(func() { _ = unix.Unmount(n.dir, unix.MNT_DETACH) })
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	there := n.has("pod default/a i:1 a.yaml")
	n.until("loaded", there)
	unmount() // which the watcher does not hold up
	n.until("shown", n.is(n.dir, Gone, "is empty (is a disk not mounted?)"))
	n.during(1500*time.Millisecond, "the object stays", there)
	n.start()
	n.during(1500*time.Millisecond, "the object stays over a restart", there)
	n.until("shown", n.is(n.dir, Gone, "is empty (is a disk not mounted?)"))
	n.put("b.yaml", pod("b", "i:1"))
	n.until("a manifest in it proves that it is the folder", n.has("pod default/b i:1 b.yaml"))
}

// A folder whose files were seen to be deleted may be another one afterwards.
func TestFolderMadeAnew(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml"))
	n.check(os.Mkdir(n.dir+".new", 0o755)) // so that it has another inode
	n.check(os.RemoveAll(n.dir))
	n.check(os.Rename(n.dir+".new", n.dir))
	n.until("the object is gone", n.has())
	n.put("b.yaml", pod("b", "i:1"))
	n.until("the new folder is watched", n.has("pod default/b i:1 b.yaml"))
}

// RB8: what vanished while nobody watched is gone.
func TestFileThatVanishedMeanwhile(t *testing.T) {
	n := newNode(t)
	n.put("a.yaml", pod("a", "i:1"))
	n.put("b.yaml", pod("b", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/a i:1 a.yaml", "pod default/b i:1 b.yaml"))
	n.stop()
	n.check(os.Remove(n.path("a.yaml")))
	n.put("b.yaml", pod("b", "i:2"))
	n.check(os.Chtimes(n.path("b.yaml"), time.Now(), time.Now().Add(-time.Hour)))
	n.start()
	n.until("gone and edited", n.has("pod default/b i:2 b.yaml"))
}

// B.2: trees of links as Kubernetes writes them: all changes with one rename.
func TestTreeOfLinks(t *testing.T) {
	n := newNode(t)
	write := func(version, image string) {
		n.check(os.Mkdir(n.path(version), 0o755))
		n.check(os.WriteFile(n.path(version+"/a.yaml"), []byte(pod("a", image)), 0o644))
		n.check(os.Symlink(version, n.path("..data_tmp")))
		n.check(os.Rename(n.path("..data_tmp"), n.path("..data")))
	}
	write("..1", "i:1")
	n.check(os.Symlink("..data/a.yaml", n.path("a.yaml")))
	n.start()
	n.until("the first version", n.has("pod default/a i:1 a.yaml"))
	write("..2", "i:2")
	n.until("the second version", n.has("pod default/a i:2 a.yaml"))
	n.check(os.RemoveAll(n.path("..2")))
	n.Reload()
	n.until("a link that leads nowhere keeps the last version", n.is("a.yaml", Refused, "is a link that leads nowhere; the version of"))
	if !n.has("pod default/a i:2 a.yaml")() {
		t.Errorf("objects %v", n.have())
	}
}

// B.2: without inotify, listings see all changes; a young file is read one second later.
func TestListingsAlone(t *testing.T) {
	n := newNode(t)
	n.options.times = usual()
	n.options.times.relist = 50 * time.Millisecond
	s, err := Open(n.options)
	n.check(err)
	n.Set = s
	f := s.folders[0]
	names, _ := f.book.known(f.path)
	if len(names) != 0 {
		t.Fatalf("known %v", names)
	}
	now := time.Now()
	step := func(d time.Duration) {
		now = now.Add(d)
		f.step(now)
		f.book.publish()
	}
	aged := func(name string, d time.Duration) { // what is written here looks d older to the folder
		n.put(name, pod(strings.TrimSuffix(name, ".yaml"), "i:1"))
		now = time.Now().Add(d)
	}
	aged("a.yaml", 500*time.Millisecond)
	step(0)
	if !n.has()() || f.next().Sub(now) > time.Second {
		t.Errorf("a young file was read: %v; next %v", n.have(), f.next())
	}
	step(900 * time.Millisecond)
	if !n.has()() {
		t.Errorf("a young file was read after 900 ms: %v", n.have())
	}
	step(150 * time.Millisecond)
	if !n.has("pod default/a i:1 a.yaml")() {
		t.Errorf("a file was not read after a second: %v", n.have())
	}
	aged("b.yaml", 10*time.Second)
	step(0)
	if !n.has("pod default/a i:1 a.yaml", "pod default/b i:1 b.yaml")() {
		t.Errorf("an old file was not read at once: %v", n.have())
	}
	aged("c.yaml", -time.Hour) // RB6: a file of the future, since the clock was set back
	step(100 * time.Millisecond)
	f.nextList = now
	step(0)
	if len(n.have()) != 3 {
		t.Errorf("a file of the future was not read: %v", n.have())
	}
	n.check(os.Remove(n.path("a.yaml")))
	f.nextList = now
	step(0)
	step(900 * time.Millisecond)
	if len(n.have()) != 3 {
		t.Errorf("a file was gone before it was away for a second: %v", n.have())
	}
	step(100 * time.Millisecond)
	if !n.has("pod default/b i:1 b.yaml", "pod default/c i:1 c.yaml")() {
		t.Errorf("a file that is gone: %v", n.have())
	}
	if f.handle(inotify.Notice{WD: -1, Mask: unix.IN_Q_OVERFLOW}, now); !f.nextList.Equal(now) {
		t.Error("an overflow of the queue does not have the folder listed")
	}
	if usual().relist != 20*time.Second || usual().gone != time.Second {
		t.Error("times differ from the design's")
	}
}
