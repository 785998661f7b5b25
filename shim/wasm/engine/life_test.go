package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/tests/pty"
)

func TestTrap(t *testing.T) {
	b := newBench(t, "probe", "trap")
	exit := b.runToEnd()
	if exit.Code != 134 || !strings.HasPrefix(exit.Message, "wasm trap: unreachable, in ") {
		t.Errorf("exit %+v", exit)
	}
	if text := b.stderr.all(); !strings.Contains(text, "unreachable") || !strings.Contains(text, "wasm stack trace") {
		t.Errorf("stderr %q", text)
	}
}

func signal(t *testing.T, p shim.Process, sig syscall.Signal) {
	t.Helper()
	if err := p.Signal(context.Background(), sig, false); err != nil {
		t.Fatalf("signal %v: %v", sig, err)
	}
}

func stillRuns(t *testing.T, p shim.Process) {
	t.Helper()
	select {
	case <-p.Exited():
		t.Fatalf("ended with %+v", p.Exit())
	case <-time.After(150 * time.Millisecond):
	}
}

func TestStop(t *testing.T) {
	for _, c := range []struct {
		name, program string
		wait          bool
		code          uint32 // after SIGTERM; 0 = it runs on
	}{
		{"sleeping", "sleep", false, 143},
		{"computing", "spin", false, 143},
		{"told to wait", "sleep", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "probe", c.program)
			if c.wait {
				b.bundle.Facts.StopWait = true
			}
			container := b.create()
			p := container.Init()
			start(t, p)
			b.stdout.await(t, c.program+"=on")
			signal(t, p, unix.SIGUSR1)
			signal(t, p, unix.SIGWINCH)
			stillRuns(t, p)
			begin := time.Now()
			signal(t, p, unix.SIGTERM)
			if c.code == 0 {
				stillRuns(t, p)
				signal(t, p, unix.SIGKILL)
				c.code = 137
			}
			if exit := ended(t, p); exit.Code != c.code || exit.OOMKilled {
				t.Errorf("exit %+v, want %d", exit, c.code)
			}
			if took := time.Since(begin); took > patience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestStopBeforeStart(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	c := b.create()
	signal(t, c.Init(), unix.SIGTERM)
	if exit := ended(t, c.Init()); exit.Code != 143 {
		t.Errorf("exit %+v", exit)
	}
}

func TestStopEndsStdin(t *testing.T) {
	b := newBench(t, "suite", "cat")
	b.pipes(true)
	c := b.createWith()
	start(t, c.Init())
	if _, err := b.stdin.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	b.stdout.await(t, "before\n")
	signal(t, c.Init(), unix.SIGTERM)
	if exit := ended(t, c.Init()); exit.Code != 0 {
		t.Errorf("exit %+v, want the guest's own 0", exit)
	}
}

func TestKillPaused(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM} {
		b := newBench(t, "probe", "sleep")
		c := b.create()
		start(t, c.Init())
		b.stdout.await(t, "sleep=on")
		if err := c.Pause(context.Background()); err != nil {
			t.Fatal(err)
		}
		signal(t, c.Init(), sig)
		if exit := ended(t, c.Init()); exit.Code != 128+uint32(sig) {
			t.Errorf("%v: exit %+v", sig, exit)
		}
	}
}

// TestDeletedContainer has requests come after Delete, as one that began before it may.
func TestDeletedContainer(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	c := b.create()
	start(t, c.Init())
	if err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	limit := int64(1 << 30)
	for name, err := range map[string]error{
		"update": c.Update(t.Context(), &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}),
		"pause":  c.Pause(t.Context()),
		"resume": c.Resume(t.Context()),
	} {
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Errorf("delete it again: %v", err)
	}
}

func TestConfiguredStopSignal(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	b.bundle.Facts.StopSignal = "SIGUSR2"
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	signal(t, c.Init(), unix.SIGUSR2)
	if exit := ended(t, c.Init()); exit.Code != 143 {
		t.Errorf("exit %+v", exit)
	}
}

func TestKilledFromOutside(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	if err := unix.Kill(c.Init().Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, c.Init()); exit.Code != 137 || exit.OOMKilled {
		t.Errorf("exit %+v", exit)
	}
}

// TestGuestEndsWithoutShim breaks the link, as the shim's end does.
func TestGuestEndsWithoutShim(t *testing.T) {
	for _, started := range []bool{false, true} {
		b := newBench(t, "probe", "spin")
		c := b.create()
		if started {
			start(t, c.Init())
			b.stdout.await(t, "spin=on")
		}
		c.Init().(*process).link.Close()
		ended(t, c.Init())
	}
}

func TestMemoryGrowthEndsAtLimit(t *testing.T) {
	const tries = 200 // the ceiling travels beside standard input, and may come later
	b := newBench(t, "probe", append([]string{"grow"}, slices.Repeat([]string{"line", "grow"}, tries)...)...)
	limit := int64(32 << 20)
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	b.pipes(true)
	c := b.createWith()
	start(t, c.Init())
	b.stdout.await(t, "grow=31\n") // whole MiB beyond what it begins with
	limit = 64 << 20
	if err := c.Update(context.Background(), &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}); err != nil {
		t.Fatal(err)
	}
	for try := 1; try <= tries && !strings.Contains(b.stdout.soFar(), "grow=63\n"); try++ {
		if _, err := b.stdin.WriteString("go on\n"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it grows once more", func() bool { return strings.Count(b.stdout.soFar(), "\n") > try })
	}
	b.stdin.Close() // which ends every line
	if exit := ended(t, c.Init()); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	out := b.stdout.all()
	if before := strings.Count(out, "grow=31\n"); before > tries || out != strings.Repeat("grow=31\n", before)+strings.Repeat("grow=63\n", tries+1-before) {
		t.Errorf("got %q", out)
	}
	d := c.Details()
	if d.LinearBase == 0 || d.LinearSize < 64<<20 || d.EngineCPU <= 0 || d.Exit == nil {
		t.Errorf("details %+v", d)
	}
}

func TestModuleLargerThanLimit(t *testing.T) {
	b := newBench(t, "probe", "sleep")
	limit := int64(1 << 20) // it starts with more: a static block of 1 MiB beside stack and data
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	b.pipes(false)
	_, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	b.release()
	if !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("got %v", err)
	}
	b.checkGone(0)
}

func TestOOMKill(t *testing.T) {
	b := newBench(t, "probe", "fill:/tmp/x")
	limit := int64(24 << 20)
	b.bundle.Spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "tmpfs", Destination: "/tmp"}}
	exit := b.runToEnd()
	if exit.Code != 137 || !exit.OOMKilled {
		t.Errorf("exit %+v; stdout %q", exit, b.stdout.all())
	}
}

// TestStaleEntryIsMadeAgain takes the machine code out of an entry in a way that verifies.
func TestStaleEntryIsMadeAgain(t *testing.T) {
	b := newBench(t, "hello")
	e, err := New(Options{Self: os.Getenv("SUNABA_SHIM"), CacheDir: t.TempDir()}, shared.reaper)
	if err != nil {
		t.Fatal(err)
	}
	b.engine = e
	entry, err := e.ensure(context.Background(), filepath.Join(b.bundle.Rootfs, "app.wasm"), "", compile.StepFold)
	if err != nil {
		t.Fatal(err)
	}
	code, err := filepath.Glob(filepath.Join(entry.Dir, "wazero-*", "*"))
	if err != nil || len(code) != 1 {
		t.Fatalf("machine code: %v, %v", code, err)
	}
	record := filepath.Join(entry.Dir, "entry.json")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	renamed := filepath.Join(filepath.Dir(code[0]), strings.Repeat("0", 64))
	if err := os.Rename(code[0], renamed); err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), filepath.Base(code[0]), filepath.Base(renamed), 1))
	if err := os.WriteFile(record, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if exit := b.runToEnd(); exit.Code != 0 || b.stdout.all() != "hello\n" {
		t.Errorf("exit %+v", exit)
	}
	if _, err := os.Stat(code[0]); err != nil {
		t.Errorf("entry was not made again: %v", err)
	}
	if err := compile.Drop(e.options.CacheDir, entry.Digest); err != nil {
		t.Error(err)
	}
}

func TestTerminal(t *testing.T) {
	master, slave := pty.Open(t)
	b := newBench(t, "suite", "cat")
	b.io = shim.IO{Stdin: slave, Stdout: slave, Stderr: slave, Terminal: true, Console: master}
	c, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.delete(c) })
	start(t, c.Init())
	if err := c.Init().Resize(99, 44); err != nil {
		t.Error(err)
	}
	if size, err := unix.IoctlGetWinsize(int(master.Fd()), unix.TIOCGWINSZ); err != nil || size.Col != 99 || size.Row != 44 {
		t.Errorf("size %+v, %v", size, err)
	}
	if _, err := master.WriteString("line\n\x04"); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, c.Init()); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	text := make([]byte, 100)
	got, err := io.ReadAtLeast(master, text, len("line\r\nline\r\n")) // the echo and the answer
	if err != nil || !strings.HasPrefix(string(text[:got]), "line\r\nline\r\n") {
		t.Errorf("terminal shows %q, %v", text[:got], err)
	}
}

// TestTerminalKeys types keys that end programs: a guest ends with the signal's code, and one that
// listens by itself.
func TestTerminalKeys(t *testing.T) {
	cat := func() *bench { return newBench(t, "suite", "cat") }
	greeter := func() *bench {
		b := newBench(t, "greeter")
		b.inPod(newPod(t))
		b.bundle.Facts.Listeners = []annotation.Listener{{Name: "http", Port: 8080}}
		return b
	}
	http := func() *bench { return newHTTPBench(t, annotation.HTTP{}, 8080).bench }
	for _, test := range []struct {
		bench func() *bench
		key   string
		early bool // before the start, when no guest listens yet
		code  uint32
	}{
		{cat, "\x1a\x03", false, 130}, {cat, "\x1c", false, 131}, {greeter, "\x03", false, 0}, {http, "\x03", false, 0},
		{cat, "\x03", true, 130}, {greeter, "\x03", true, 130}, {http, "\x03", true, 130},
	} {
		master, slave := pty.Open(t)
		b := test.bench()
		b.io = shim.IO{Stdin: slave, Stdout: slave, Stderr: slave, Terminal: true, Console: master}
		c, err := b.engine.Create(t.Context(), b.bundle, b.io, shim.Options{})
		slave.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !test.early {
			start(t, c.Init())
		}
		if _, err := master.WriteString(test.key); err != nil {
			t.Fatal(err)
		}
		if exit := ended(t, c.Init()); exit.Code != test.code {
			t.Errorf("%q, early %v: exit %+v, want %d", test.key, test.early, exit, test.code)
		}
		b.delete(c)
	}
}

// TestSharedPIDNamespace lets a container join another's, as a pod with a shared one does.
func TestSharedPIDNamespace(t *testing.T) {
	holder := newBench(t, "probe", "sleep")
	h := holder.create()
	b := newBench(t, "probe", "sleep")
	b.bundle.Spec.Linux.Namespaces[1].Path = fmt.Sprintf("/proc/%d/ns/pid", h.Init().Pid())
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "sleep=on")
	if namespaceOf(t, c.Init().Pid(), "pid") != namespaceOf(t, h.Init().Pid(), "pid") {
		t.Error("PID namespace is another")
	}
	further := startFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "sleep"}, Cwd: "/"}, "sleep=on")
	if err := c.Init().Signal(context.Background(), unix.SIGKILL, true); err != nil {
		t.Error(err)
	}
	ended(t, c.Init())
	ended(t, further)
	stillRuns(t, h.Init())
}
