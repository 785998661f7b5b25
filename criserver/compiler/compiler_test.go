package compiler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups/systemd"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
)

const patience = time.Minute

// TestMain makes the test binary have a compile face, which does what the name of its module says.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "compile" {
		os.Exit(compileFace(os.Args[len(os.Args)-1]))
	}
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests need root")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func compileFace(module string) int {
	switch filepath.Base(module) {
	case "stubborn": // it hears no signal, and has a child with a session of its own
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		child := exec.Command("/bin/sh", "-c", "trap '' TERM; while :; do sleep 1000; done")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return 1
		}
		_ = os.WriteFile(module+"-runs", nil, 0o600)
		for {
			time.Sleep(time.Hour)
		}
	case "hungry":
		var kept [][]byte
		for range 1 << 10 {
			page := make([]byte, 1<<20)
			for i := range page {
				page[i] = 1
			}
			kept = append(kept, page)
		}
		return len(kept) & 1
	case "refused":
		fmt.Fprintln(os.Stderr, "not a module")
		return 65
	case "written":
		return exitOf(os.WriteFile(module+"-out", make([]byte, 8<<20), 0o600))
	}
	return 0
}

func exitOf(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// eachDriver runs a test with both cgroup drivers, systemd's where it runs the machine.
func eachDriver(t *testing.T, test func(t *testing.T, c *Compiler, again func() *Compiler)) {
	drivers := []string{"cgroupfs"}
	if systemd.IsRunningSystemd() {
		drivers = append(drivers, "systemd")
	}
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			cgroups, err := cgroup.New(driver)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			make := func() *Compiler {
				c, err := New(Options{
					Cgroups: cgroups, Root: root, Shim: "/proc/self/exe", Cache: filepath.Join(root, "cache"),
					Limits: Limits{Parallel: 2, Memory: 64 << 20}, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			c := make()
			test(t, c, make)
			c.checkGone(t)
		})
	}
}

// checkGone makes sure that no cgroup is left.
func (c *Compiler) checkGone(t *testing.T) {
	t.Helper()
	for _, root := range c.o.Cgroups.Roots() {
		if _, err := os.Stat(filepath.Join(root, c.o.Cgroups.Path(c.parent))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the cgroup of compilations is left in %s: %v", root, err)
		}
	}
}

// pids are the processes of all compilations.
func (c *Compiler) pids(t *testing.T) int {
	t.Helper()
	n := 0
	for _, root := range c.o.Cgroups.Roots() {
		files, err := filepath.Glob(filepath.Join(root, c.o.Cgroups.Path(c.parent), "*", "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		var here int
		for _, file := range files {
			data, _ := os.ReadFile(file)
			here += len(strings.Fields(string(data)))
		}
		n = max(n, here)
	}
	return n
}

func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// TestCancel has more compilations than turns, all of which hear no signal, and cancels them.
func TestCancel(t *testing.T) {
	eachDriver(t, func(t *testing.T, c *Compiler, _ func() *Compiler) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		dirs := make([]string, 6)
		for i := range dirs {
			dirs[i] = t.TempDir()
			all.Go(func() {
				if err := c.Compile(ctx, filepath.Join(dirs[i], "stubborn"), fmt.Sprint("sha256:", i)); !errors.Is(err, context.Canceled) {
					t.Errorf("compilation %d: %v", i, err)
				}
			})
		}
		running := func() (n int) {
			for _, dir := range dirs {
				if _, err := os.Stat(filepath.Join(dir, "stubborn-runs")); err == nil {
					n++
				}
			}
			return n
		}
		within(t, "two compilations", func() bool { return running() == 2 && c.pids(t) >= 4 })
		for range 20 {
			time.Sleep(5 * time.Millisecond)
			if n := running(); n != 2 {
				t.Fatalf("%d compilations run at a time", n)
			}
		}
		cancel()
		all.Wait()
		if n := c.pids(t); n != 0 {
			t.Errorf("%d processes are left", n)
		}
		if err := c.Compile(t.Context(), "fine", "sha256:fine"); err != nil {
			t.Errorf("a compilation after those: %v", err)
		}
	})
}

// TestServerThatDied has a second server end what the first one left.
func TestServerThatDied(t *testing.T) {
	eachDriver(t, func(t *testing.T, c *Compiler, again func() *Compiler) {
		dir := t.TempDir()
		ended := make(chan error)
		go func() { ended <- c.Compile(t.Context(), filepath.Join(dir, "stubborn"), "sha256:1") }()
		within(t, "a compilation", func() bool {
			_, err := os.Stat(filepath.Join(dir, "stubborn-runs"))
			return err == nil
		})
		again()
		if n := c.pids(t); n != 0 {
			t.Errorf("%d processes are left", n)
		}
		if err := <-ended; err == nil {
			t.Error("a compilation that was killed told of success")
		}
	})
}

// TestMemory has a compilation want more memory than all may have.
func TestMemory(t *testing.T) {
	eachDriver(t, func(t *testing.T, c *Compiler, _ func() *Compiler) {
		if err := c.Compile(t.Context(), "hungry", "sha256:1"); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("beyond the memory of all: %v", err)
		}
		if err := c.Compile(t.Context(), "refused", "sha256:2"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("a module that is refused: %v", err)
		}
	})
}

// TestReady has a module made ready once, whoever asks for it.
func TestReady(t *testing.T) {
	eachDriver(t, func(t *testing.T, c *Compiler, _ func() *Compiler) {
		file := filepath.Join(t.TempDir(), "written")
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { c.Ready(t.Context(), file, "sha256:1") })
		}
		all.Wait()
		if c.count != 1 {
			t.Errorf("it was compiled %d times", c.count)
		}
		if _, err := os.Stat(file + "-out"); err != nil {
			t.Error(err)
		}
		c.Ready(t.Context(), "refused", "sha256:2")
		c.Ready(t.Context(), "refused", "sha256:2")
		if c.count != 2 {
			t.Errorf("what cannot be compiled was tried %d times", c.count-1)
		}
	})
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		given      Limits
		processors int
		memory     uint64
		want       Limits
	}{
		{Limits{}, 1, 512 << 20, Limits{2, 256 << 20}},
		{Limits{}, 2, 8 << 30, Limits{2, 2 << 30}},
		{Limits{}, 8, 3 << 30, Limits{4, 1 << 30}},
		{Limits{}, 96, 256 << 30, Limits{8, 64 << 30}},
		{Limits{Parallel: 1, Memory: 1 << 28}, 96, 256 << 30, Limits{1, 1 << 28}},
	} {
		if got := c.given.resolve(c.processors, c.memory); got != c.want {
			t.Errorf("%+v with %d processors and %d MiB: %+v, want %+v", c.given, c.processors, c.memory>>20, got, c.want)
		}
	}
}
