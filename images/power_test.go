package images

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/images/manifest"
)

// crashImages pushes images that share layers, have many files and are of
// several kinds, and returns their references.
func crashImages(t *testing.T, r *testRegistry) []string {
	t.Helper()
	base := gzipLayer(t, file{name: "d/"}, file{name: "d/base", content: strings.Repeat("base", 20000)})
	var refs []string
	for i := range 3 {
		name := fmt.Sprint("app", i)
		layers := []layer{base}
		for n := range 3 + 2*i {
			var files []file
			for f := range 15 {
				files = append(files, file{name: fmt.Sprintf("d/%d-%d-%d", i, n, f), content: strings.Repeat(fmt.Sprint(f), 3000)})
			}
			layers = append(layers, zstdLayer(t, files...))
		}
		host := r.image(name, "", hostPlatform, ocispec.ImageConfig{}, layers...)
		wasm := r.artifact(name, "", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes(name))
		r.index(name, "v1", host, wasm)
		refs = append(refs, r.host+"/"+name+":v1")
	}
	return refs
}

const (
	envChildRoot = "SUNABA_TEST_IMAGES_ROOT"
	envChildRefs = "SUNABA_TEST_IMAGES_REFS"
	envChildSeed = "SUNABA_TEST_IMAGES_SEED"
)

// TestChildPull is no test: it is the process that is killed.
func TestChildPull(t *testing.T) {
	root := os.Getenv(envChildRoot)
	if root == "" {
		return
	}
	var seed uint64
	if _, err := fmt.Sscan(os.Getenv(envChildSeed), &seed); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 1))
	refs := strings.Fields(os.Getenv(envChildRefs))
	s, err := Open(Options{Root: root, Handlers: testHandlers(t)})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		ref := refs[random.IntN(len(refs))]
		img, err := s.Pull(t.Context(), PullRequest{Ref: ref})
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint("c", n)
		if _, err := s.PrepareRootFS(t.Context(), key, img); err != nil {
			t.Fatal(err)
		}
		if random.IntN(2) == 0 {
			if err := s.Remove(t.Context(), img.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.RemoveRootFS(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if random.IntN(3) == 0 {
			if err := s.Remove(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// startChild runs TestChildPull on a store.
func startChild(t *testing.T, root string, refs []string, seed int) (cmd *exec.Cmd, output *bytes.Buffer) {
	t.Helper()
	output = new(bytes.Buffer)
	cmd = exec.Command(os.Args[0], "-test.run=^TestChildPull$")
	cmd.Env = append(os.Environ(), envChildRoot+"="+root, envChildRefs+"="+strings.Join(refs, " "), envChildSeed+"="+fmt.Sprint(seed))
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, output
}

// kill kills a child, which is to have worked until then.
func kill(t *testing.T, cmd *exec.Cmd, output *bytes.Buffer) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // tells that it was killed; anything else shows in the status
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() {
		t.Fatalf("the child ended by itself with %d:\n%s", ws.ExitStatus(), output)
	}
}

// inspectWhole checks that every image that is listed is whole: its content and
// layers are those that came, and its root can be mounted and read.
func (ts *testService) inspectWhole() (images int) {
	ts.t.Helper()
	ts.check()
	report, err := ts.Check(ts.t.Context(), false)
	if err != nil || len(report.Damaged) > 0 || len(report.Records) > 0 {
		ts.t.Errorf("Check: %+v, %v", report, err)
	}
	list, err := ts.List(ts.t.Context())
	if err != nil {
		ts.t.Fatal(err)
	}
	for _, img := range list {
		if img.Kind == Module {
			if data, err := os.ReadFile(ts.ModulePath(img)); err != nil || !bytes.HasPrefix(data, []byte("\x00asm")) {
				ts.t.Errorf("module of %s: %q, %v", img.RepoTags, data, err)
			}
			continue
		}
		if n := len(ts.tree("inspect", img)); n < 46 {
			ts.t.Errorf("%s holds %d files", img.RepoTags, n)
		}
		if err := ts.RemoveRootFS(ts.t.Context(), "inspect"); err != nil {
			ts.t.Error(err)
		}
	}
	return len(list)
}

// removeRoots removes the roots that a killed process left.
func (ts *testService) removeRoots() {
	ts.t.Helper()
	keys := ts.RootFSKeys()
	for _, k := range keys {
		if err := ts.RemoveRootFS(ts.t.Context(), k); err != nil {
			ts.t.Error(err)
		}
	}
}

// A process that pulls and removes is killed at whatever it is doing, a hundred
// times; the next one finds every image whole, and the store in order.
//
// It has a disk of its own: an ext4 without a journal, as some machines' own is, looks for each new
// file at all that were removed in the last minutes, and this test removes many. That was nearly
// half of its processor time, and other tests would look at them too.
func TestKill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	r, d := newTestRegistry(t), newDisk(t, 96)
	d.mount()
	s := openTestService(t, filepath.Join(d.dir, "images"))
	s.close()
	refs := crashImages(t, r)
	random := rand.New(rand.NewPCG(4, 4))
	found := 0
	kills := 100
	if testing.Short() {
		kills = 10
	}
	for n := range kills {
		cmd, output := startChild(t, s.root, refs, n)
		time.Sleep(time.Duration(30+random.IntN(270)) * time.Millisecond)
		kill(t, cmd, output)
		s.open()
		found += s.inspectWhole()
		s.removeRoots()
		if n%10 == 9 { // and all can be removed, without a trace
			for _, ref := range refs {
				s.mustPull(ref, "")
			}
			if images := s.inspectWhole(); images != 2*len(refs) {
				t.Errorf("%d images", images)
			}
			for _, ref := range refs {
				if err := s.Remove(t.Context(), ref); err != nil {
					t.Error(err)
				}
			}
			if g, err := s.GC(t.Context(), false); err != nil {
				t.Errorf("GC: %+v, %v", g, err)
			}
			if b, l := s.blobs(), s.layerDirs(); b != 0 || l != 0 {
				t.Errorf("%d blobs and %d layers left", b, l)
			}
		}
		s.close()
		if t.Failed() {
			t.Fatalf("at kill %d", n)
		}
	}
	d.unmount()
	if found == 0 {
		t.Error("no kill left an image")
	}
}

// ext4Disk is a filesystem in a file.
type ext4Disk struct {
	t         *testing.T
	file, dir string
	cuts      int
}

// newDisk makes a disk of so many MiB with an ext4 on it.
func newDisk(t *testing.T, mib int64) *ext4Disk {
	t.Helper()
	d := &ext4Disk{t: t, file: filepath.Join(t.TempDir(), "disk"), dir: t.TempDir()}
	f, err := os.Create(d.file)
	if err == nil {
		err = f.Truncate(mib << 20)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.file).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return d
}

// mount mounts the disk; what is not synced stays in memory for long.
func (d *ext4Disk) mount() {
	d.t.Helper()
	if out, err := exec.Command("mount", "-o", "loop,commit=300", d.file, d.dir).CombinedOutput(); err != nil {
		d.t.Fatalf("mount: %v: %s", err, out)
	}
	d.t.Cleanup(func() { unix.Unmount(d.dir, unix.MNT_DETACH) })
}

func (d *ext4Disk) unmount() {
	d.t.Helper()
	unmount(d.t, d.dir)
}

// unmount unmounts what this process does not use any more.
func unmount(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC() // containerd's probe for fs-verity leaves a file to its finalizer
		left := openBelow(t, dir)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("left open: %q", left)
			break
		}
	}
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount: %v", err)
	}
}

// openBelow are the files in or below a folder that this process has open.
func openBelow(t *testing.T, dir string) (left []string) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if file, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(file, dir) {
			left = append(left, file)
		}
	}
	return left
}

// cut is what a loss of power leaves of the disk: what has reached it at one moment. The kernel may
// write by itself at any time, and a copy of which one part is older than another is what no loss
// of power leaves: then it is made again.
//
// Each copy has a file of its own. A process with mounts of its own, of somebody else, may have
// come to have this one's while it was mounted: then the file system writes to it when that process
// ends.
func (d *ext4Disk) cut() *ext4Disk {
	d.t.Helper()
	d.cuts++
	c := &ext4Disk{t: d.t, file: fmt.Sprint(d.file, "-cut", d.cuts), dir: fmt.Sprint(d.dir, "-cut", d.cuts)}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		d.t.Fatal(err)
	}
	for range 100 {
		before := d.writes()
		d.copy(c.file)
		if d.writes() == before && !strings.HasSuffix(before, " under way") {
			return c
		}
		time.Sleep(20 * time.Millisecond)
	}
	d.t.Fatal("the kernel writes to the disk all the time")
	return nil
}

// copy copies the disk's file.
func (d *ext4Disk) copy(file string) {
	d.t.Helper()
	from, err := os.Open(d.file)
	if err != nil {
		d.t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(file)
	if err == nil {
		_, err = io.Copy(to, from)
		to.Close()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// writes tells how many writes the disk has taken, and whether there are some under way.
func (d *ext4Disk) writes() string {
	d.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(d.dir, &st); err != nil {
		d.t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		d.t.Fatal(err)
	}
	fields := strings.Fields(string(data)) // Documentation/block/stat.rst
	if len(fields) < 9 {
		d.t.Fatalf("unknown form of a block device's counts: %q", data)
	}
	if fields[8] != "0" {
		return fields[4] + " under way"
	}
	return fields[4]
}

// stopped waits until no thread of a process that was told to stop runs or waits
// for a disk: then nothing is on its way there.
func stopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		running := 0
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("no threads (%v)", err)
		}
		for _, f := range threads {
			data, err := os.ReadFile(f)
			if err != nil {
				continue // it has ended
			}
			rest := data[bytes.LastIndexByte(data, ')')+2:]
			if rest[0] != 'T' && rest[0] != 't' {
				running++
			}
		}
		if running == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the process does not stop")
}

// The power goes while a process pulls and removes: the disk then holds what was synced and, of the
// rest, anything or nothing. What is listed afterwards is whole, and what is missing can be pulled.
func TestPowerLoss(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	r := newTestRegistry(t)
	refs := crashImages(t, r)
	d := newDisk(t, 96)
	d.mount()
	random := rand.New(rand.NewPCG(7, 7))
	cmd, output := startChild(t, filepath.Join(d.dir, "images"), refs, 7)
	found := 0
	for n := range 20 {
		time.Sleep(time.Duration(40+random.IntN(200)) * time.Millisecond)
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		stopped(t, cmd.Process.Pid)
		c := d.cut()
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		c.mount()
		s := openTestService(t, filepath.Join(c.dir, "images"))
		found += s.inspectWhole()
		s.removeRoots()
		s.mustPull(refs[n%len(refs)], "")
		s.inspectWhole()
		s.close()
		c.unmount()
		if err := os.Remove(c.file); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("at cut %d", n)
		}
	}
	kill(t, cmd, output)
	d.unmount()
	if found == 0 {
		t.Error("no cut left an image")
	}
}

// A disk that is full in the middle of a pull: the pull says so, and the store is
// whole and goes on once there is room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	r := newTestRegistry(t)
	small := gzipLayer(t, file{name: "d/"}, file{name: "d/a", content: "1"})
	r.image("small", "v1", hostPlatform, ocispec.ImageConfig{}, small)
	noise := make([]byte, 5<<20)
	random := rand.NewChaCha8([32]byte{1})
	var layers []layer
	for i := range 4 {
		random.Read(noise)
		layers = append(layers, plainLayer(t, file{name: fmt.Sprint("large", i), content: string(noise)}))
	}
	r.image("large", "v1", hostPlatform, ocispec.ImageConfig{}, layers...)
	r.image("zeros", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "z", content: string(make([]byte, 40<<20))}))
	var many []file
	for i := range 3000 {
		many = append(many, file{name: fmt.Sprint("f", i)})
	}
	r.image("files", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, many...))
	for _, kind := range []string{"ext4", "tmpfs"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			if kind == "ext4" {
				d := newDisk(t, 24)
				d.mount()
				dir = d.dir
			} else {
				if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=20m,nr_inodes=2000"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
			}
			s := openTestService(t, filepath.Join(dir, "images"))
			s.mustPull(r.host+"/small:v1", "")
			for _, name := range []string{"large", "zeros", "files"} {
				_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/" + name + ":v1"})
				if kind == "ext4" && name == "files" && err == nil {
					continue // it has inodes enough
				}
				if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "no room") {
					t.Errorf("%s: %v", name, err)
				}
				s.check()
				if report, err := s.Check(t.Context(), false); err != nil || report.Images == 0 || len(report.Damaged) > 0 {
					t.Errorf("after %s: %+v, %v", name, report, err)
				}
			}
			equal(t, "tree", s.tree("c", s.mustFind(r.host+"/small:v1", "")), []string{"d/", "d/a=1"})
			if err := s.RemoveRootFS(t.Context(), "c"); err != nil {
				t.Error(err)
			}
			s.close()
			s.open()
			s.mustPull(r.host+"/small:v1", "")
			s.close()
			unmount(t, dir)
		})
	}
}

func TestBudget(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	s.close()
	s.options.Budget = 1 << 20
	s.open()
	zeros := string(make([]byte, 900<<10))
	r.image("small", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.image("half", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "z", content: zeros}))
	r.image("other", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "y", content: zeros}))
	random := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{}).Read(random)
	r.image("large", "v1", hostPlatform, ocispec.ImageConfig{}, plainLayer(t, file{name: "z", content: string(random)}))
	refused := func(name string) {
		t.Helper()
		_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/" + name + ":v1"})
		if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "their budget is 1048576") {
			t.Errorf("%s: %v", name, err)
		}
		s.check()
	}
	r.asked()
	refused("large") // by what the manifest says: nothing of it is fetched
	if n := countBlobs(r.asked()); n != 1 {
		t.Errorf("%d blobs fetched, want the configuration alone", n)
	}
	s.mustPull(r.host+"/small:v1", "")
	s.mustPull(r.host+"/half:v1", "")
	refused("other") // by what it unpacks to
	if err := s.Remove(t.Context(), r.host+"/half:v1"); err != nil {
		t.Fatal(err)
	}
	s.mustPull(r.host+"/other:v1", "")
	if pulls, taken := s.puller.Room.Taken(); pulls != 0 || taken != 0 {
		t.Errorf("left: %d pulls, %d bytes", pulls, taken)
	}
}
