package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/guest"
)

// patience is how long is waited for what is to come. It only bounds a failure.
const patience = time.Minute

// world is what all tests share: one reaper, one cache of compiled modules and one of built guests.
type world struct {
	dir    string
	reaper *reaper.Reaper
	cgroup string // parent of all cgroups of this run
	// inherited are the descriptors that this run was started with, which guests have too.
	inherited map[string]int

	mu    sync.Mutex
	built map[string]string
}

var shared *world

// TestMain makes the test binary have the guest and compile faces.
func TestMain(m *testing.M) {
	if asTaken(os.Args) {
		return
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "guest":
			os.Exit(guest.Main(os.Args[2:]))
		case "compile":
			os.Exit(compile.Main(os.Args[2:]))
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests need root")
		return 1
	}
	inherited, err := descriptorKinds("self", isInherited)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "sunaba-wasm-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	r, err := reaper.New()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer r.Close()
	shared = &world{dir: dir, reaper: r, cgroup: fmt.Sprintf("/sunaba-wasm-test-%d", os.Getpid()), built: map[string]string{}, inherited: inherited}
	code := m.Run()
	for _, path := range groupDirs(shared.cgroup) {
		if err := os.Remove(path); err != nil {
			fmt.Fprintln(os.Stderr, "leftover cgroup:", err)
			code = 1
		}
	}
	return code
}

// bench is one bundle with what a test asked of it.
type bench struct {
	t      testing.TB
	engine *Engine
	bundle *shim.Bundle
	io     shim.IO
	stdout *output
	stderr *output
	stdin  *os.File // our end, if asked for
	way    way
	// meanwhile, if set, is called once the guest runs, and sees to it that it ends.
	meanwhile func(shim.Container)
}

// way is how a container's first process comes to be.
type way string

const (
	forked way = "forked"    // for its container
	warmed way = "prewarmed" // before it
)

// eachWay runs a test of what a guest process is, whichever way it came to be.
func eachWay(t *testing.T, test func(t *testing.T, w way)) {
	for _, w := range []way{forked, warmed} {
		t.Run(string(w), func(t *testing.T) { test(t, w) })
	}
}

// newBench is newBench for a guest that comes to be this way.
func (w way) newBench(t testing.TB, name string, args ...string) *bench {
	t.Helper()
	b := newBench(t, name, args...)
	b.way = w
	return b
}

// prepare makes a prewarmed process for the bundle and returns its pid.
func (b *bench) prepare() int {
	b.t.Helper()
	if err := b.engine.Prepare(context.Background(), b.preparation()); err != nil {
		b.t.Fatalf("prepare: %v", err)
	}
	b.t.Cleanup(func() {
		if err := b.engine.Close(); err != nil {
			b.t.Errorf("close engine: %v", err)
		}
		b.checkNonePrewarmed()
	})
	one := b.prewarmed()
	if one == nil {
		b.t.Fatal("there is no prewarmed process")
	}
	return one.child.Pid
}

func (b *bench) preparation() shim.Preparation {
	return shim.Preparation{Pod: b.pod(), Namespaces: b.bundle.Spec.Linux.Namespaces, Cgroup: b.bundle.Spec.Linux.CgroupsPath}
}

// prewarmed is the prewarmed process of the bundle's pod, nil if there is none.
func (b *bench) prewarmed() *prewarmed {
	s := b.engine.stock.slots[b.pod()]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prewarmed
}

// pod stands for the bundle's pod.
func (b *bench) pod() string { return filepath.Dir(b.bundle.Spec.Linux.CgroupsPath) }

func (b *bench) checkNonePrewarmed() {
	b.t.Helper()
	if one := b.prewarmed(); one != nil {
		b.t.Errorf("process %d is still kept for a container", one.child.Pid)
	}
}

// groupDirs are the folders of a cgroup.
func groupDirs(path string) []string {
	old, _ := filepath.Glob("/sys/fs/cgroup/*" + path)
	unified, _ := filepath.Glob("/sys/fs/cgroup" + path)
	return append(old, unified...)
}

// newBench makes a bundle that runs guest (a name for build) as /app.wasm of a root file system.
func newBench(t testing.TB, name string, args ...string) *bench {
	t.Helper()
	dir := t.TempDir()
	// A directory that any user may pass, as bundles are.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(dir))
	id := hex.EncodeToString(sum[:])
	rootfs := filepath.Join(dir, "rootfs")
	if err := os.Mkdir(rootfs, 0o755); err != nil {
		t.Fatal(err)
	}
	if name != "" {
		copyFile(t, shared.build(t, name), filepath.Join(rootfs, "app.wasm"))
	}
	return &bench{
		t:      t,
		engine: shared.engine(t),
		bundle: &shim.Bundle{
			ID: id, Namespace: "test", Path: dir, Rootfs: rootfs,
			Spec: &specs.Spec{
				Version: "1.0.2",
				Root:    &specs.Root{Path: "rootfs"},
				Process: &specs.Process{Args: append([]string{"/app.wasm"}, args...), Cwd: "/"},
				Linux: &specs.Linux{
					CgroupsPath: shared.cgroup + "/" + id,
					Namespaces: []specs.LinuxNamespace{
						{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
						{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
					},
				},
			},
		},
	}
}

// joinNetwork leaves the guest in this process's network namespace, as guests of a pod find one:
// making one takes long, and removing it longer.
func (b *bench) joinNetwork() {
	for i, ns := range b.bundle.Spec.Linux.Namespaces {
		if ns.Type == specs.NetworkNamespace {
			b.bundle.Spec.Linux.Namespaces[i].Path = "/proc/self/ns/net"
		}
	}
}

func (w *world) engine(t testing.TB) *Engine {
	t.Helper()
	return w.engineWith(t, skipped(t))
}

// skipped are the steps that these tests leave out: SUNABA_SKIP, a number, runs all of them that
// way.
func skipped(t testing.TB) compile.Steps {
	t.Helper()
	text := os.Getenv("SUNABA_SKIP")
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		t.Fatal(err)
	}
	return compile.Steps(n)
}

func (w *world) engineWith(t testing.TB, skip compile.Steps) *Engine {
	t.Helper()
	// The benchmarks are truer with the real binary than with this one, which links much more.
	e, err := New(Options{Self: os.Getenv("SUNABA_SHIM"), CacheDir: filepath.Join(w.dir, "cache"), Skip: skip}, w.reaper)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// output collects what a process writes.
type output struct {
	ours, theirs *os.File
	done         chan struct{}
	news         chan struct{} // has something after each write
	mu           sync.Mutex
	buffer       bytes.Buffer
}

func newOutput(t testing.TB) *output {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := &output{ours: r, theirs: w, done: make(chan struct{}), news: make(chan struct{}, 1)}
	go func() {
		defer close(o.done)
		defer r.Close()
		chunk := make([]byte, 4096)
		for {
			n, err := r.Read(chunk)
			o.mu.Lock()
			o.buffer.Write(chunk[:n])
			o.mu.Unlock()
			select {
			case o.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return o
}

// soFar is what has been written.
func (o *output) soFar() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// all is everything, once nobody can write any more.
func (o *output) all() string {
	<-o.done
	return o.soFar()
}

// await returns when the output contains text.
func (o *output) await(t testing.TB, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if strings.Contains(o.soFar(), text) {
			return
		}
		select {
		case <-o.news:
		case <-time.After(10 * time.Millisecond): // another one who waits has had the news
		}
	}
	t.Fatalf("output has no %q: %q", text, o.soFar())
}

// pipes gives the bundle output pipes and, with stdin, an input pipe.
func (b *bench) pipes(stdin bool) {
	b.t.Helper()
	b.stdout, b.stderr = newOutput(b.t), newOutput(b.t)
	b.io.Stdout, b.io.Stderr = b.stdout.theirs, b.stderr.theirs
	if stdin {
		r, w, err := os.Pipe()
		if err != nil {
			b.t.Fatal(err)
		}
		b.io.Stdin, b.stdin = r, w
		b.t.Cleanup(func() { w.Close() })
	}
}

// release closes the copies of the child's files, as the shim does once the child has its own.
func (b *bench) release() {
	for _, f := range []*os.File{b.io.Stdin, b.io.Stdout, b.io.Stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// timed creates and starts the container, and returns it with how long that took until it wrote a
// text.
func (b *bench) timed(t testing.TB, text string) (shim.Container, time.Duration) {
	t.Helper()
	began := time.Now()
	c, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.release()
	start(t, c.Init())
	b.stdout.await(t, text)
	return c, time.Since(began)
}

// create makes the container and has it deleted at the end of the test, with a look for leftovers.
func (b *bench) create() shim.Container {
	b.t.Helper()
	b.pipes(false)
	return b.createWith()
}

func (b *bench) createWith() shim.Container {
	b.t.Helper()
	pid := 0
	if b.way == warmed {
		pid = b.prepare()
	}
	c, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	b.release()
	if err != nil {
		b.t.Fatalf("create: %v", err)
	}
	if got := c.Init().Pid(); b.way == warmed && got != pid {
		b.t.Errorf("the first process is %d, not the prewarmed one, %d", got, pid)
	}
	b.t.Cleanup(func() { b.delete(c) })
	return c
}

func (b *bench) delete(c shim.Container) {
	b.t.Helper()
	for range 2 {
		if err := c.Delete(context.Background()); err != nil {
			b.t.Errorf("delete: %v", err)
		}
	}
	b.checkGone(c.Init().Pid())
}

// checkGone looks for what a container may leave: its process, its cgroups, its mounts.
func (b *bench) checkGone(pid int) {
	b.t.Helper()
	if pid != 0 && unix.Kill(pid, 0) == nil {
		b.t.Errorf("process %d is still there", pid)
	}
	if found := groupDirs(b.bundle.Spec.Linux.CgroupsPath); len(found) > 0 {
		b.t.Errorf("cgroups are still there: %v", found)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), b.bundle.Path) {
		b.t.Errorf("mounts are still there: %v", err)
	}
	entries, err := os.ReadDir(b.bundle.Path)
	if err != nil || len(entries) != 1 {
		b.t.Errorf("bundle directory holds %v, %v", entries, err)
	}
}

func start(t testing.TB, p shim.Process) {
	t.Helper()
	if err := p.Start(context.Background()); err != nil {
		t.Fatalf("start: %v", err)
	}
}

// ended waits for the end.
func ended(t testing.TB, p shim.Process) shim.Exit {
	t.Helper()
	select {
	case <-p.Exited():
		return p.Exit()
	case <-time.After(patience):
		t.Fatal("process does not end")
		return shim.Exit{}
	}
}

// runToEnd creates, starts and waits.
func (b *bench) runToEnd() shim.Exit {
	b.t.Helper()
	c := b.create()
	start(b.t, c.Init())
	return ended(b.t, c.Init())
}

// runFurther runs one more process in a container to its end.
func runFurther(t testing.TB, c shim.Container, p *specs.Process) (exit shim.Exit, stdout, stderr string) {
	t.Helper()
	o, e := newOutput(t), newOutput(t)
	process, err := c.Exec(context.Background(), "x", p, shim.IO{Stdout: o.theirs, Stderr: e.theirs})
	if err == nil {
		err = process.Start(context.Background())
	}
	o.theirs.Close()
	e.theirs.Close()
	if err != nil {
		t.Fatalf("exec %v: %v", p.Args, err)
	}
	exit = ended(t, process)
	return exit, o.all(), e.all()
}
