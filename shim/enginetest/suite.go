package enginetest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim"
)

// Run runs the whole suite; with Harness.Launch, both ways.
func Run(t *testing.T, h Harness) {
	NeedRoot(t)
	t.Cleanup(RemoveCgroupParent)
	cases := []struct {
		name  string
		test  func(*testing.T, Harness)
		apart bool // it is about what is between Create and Start
	}{
		{"a created program has not started", testCreated, true},
		{"exit codes are verbatim", testExitCodes, false},
		{"output is byte for byte", testOutput, false},
		{"much output is complete", testLines, false},
		{"input reaches the program", testInput, false},
		{"environment", testEnvironment, false},
		{"kill", testKill, false},
		{"kill before start", testKillCreated, true},
		{"kill all", testKillAll, false},
		{"processes are listed", testPids, false},
		{"limits are updated", testUpdate, false},
		{"pause and resume", testPause, false},
		{"execute", testExec, false},
		{"a missing program", testMissing, false},
		{"one after the other", testSequence, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
	if !h.Launch {
		return
	}
	h.launcher = h.Engine.(shim.Launcher)
	for _, c := range cases {
		if !c.apart {
			t.Run("launched: "+c.name, func(t *testing.T) { c.test(t, h) })
		}
	}
}

func testCreated(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Echo, Text: "too early"})
	time.Sleep(100 * time.Millisecond)
	if c.streams.stdout.has("too") {
		t.Error("the program ran before its start")
	}
	if d := c.Details(); d.PID != c.Init().Pid() {
		t.Errorf("details say pid %d, it is %d", d.PID, c.Init().Pid())
	}
	select {
	case <-c.Init().Exited():
		t.Errorf("exited with %+v before its start", c.Init().Exit())
	default:
	}
}

func testExitCodes(t *testing.T, h Harness) {
	for _, code := range []int{0, 1, 7, 42, 126, 127, 128, 137, 255} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			c := create(t, h, Program{Kind: Exit, Code: code})
			before := time.Now()
			c.start(t)
			exit := wait(t, c.Init())
			if exit.Code != uint32(code) {
				t.Errorf("code %d, want %d; stderr %q", exit.Code, code, c.streams.stderr.text(t))
			}
			if exit.At.Before(before) || exit.At.After(time.Now()) {
				t.Errorf("ended at %v, started at %v", exit.At, before)
			}
			if err := c.Init().Signal(within(t), syscall.SIGTERM, false); !errdefs.IsNotFound(err) {
				t.Errorf("signal after the end: %v, want not found", err)
			}
		})
	}
}

func testOutput(t *testing.T, h Harness) {
	text := "first\n\ttabs, \"quotes\" and no last newline: ü"
	c := create(t, h, Program{Kind: Echo, Text: text})
	c.start(t)
	if exit := wait(t, c.Init()); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if got := c.streams.stdout.text(t); got != text {
		t.Errorf("stdout %q, want %q", got, text)
	}
	if got := c.streams.stderr.text(t); got != "" {
		t.Errorf("stderr %q", got)
	}
}

func testLines(t *testing.T, h Harness) {
	const n = 20000
	c := create(t, h, Program{Kind: Lines, N: n})
	c.start(t)
	var want strings.Builder
	for i := range n {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if exit := wait(t, c.Init()); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if got := c.streams.stdout.text(t); got != want.String() {
		t.Errorf("%d bytes of output, want %d", len(got), want.Len())
	}
}

func testInput(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Cat})
	c.start(t)
	if _, err := c.streams.stdin.WriteString("through and through\n"); err != nil {
		t.Fatal(err)
	}
	c.streams.stdin.Close()
	if err := c.Init().CloseStdin(); err != nil {
		t.Error(err)
	}
	if exit := wait(t, c.Init()); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if got := c.streams.stdout.text(t); got != "through and through\n" {
		t.Errorf("stdout %q", got)
	}
}

func testEnvironment(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Env, Text: "GREETING", Env: []string{"GREETING=a value = with signs"}})
	c.start(t)
	wait(t, c.Init())
	if got := c.streams.stdout.text(t); got != "a value = with signs\n" {
		t.Errorf("stdout %q", got)
	}
}

func testKill(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Sleep})
	c.ready(t)
	if err := c.Init().Signal(within(t), syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, c.Init()); exit.Code != 137 {
		t.Errorf("exit %+v, want 137", exit)
	}
}

func testKillCreated(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Sleep})
	if err := c.Init().Signal(within(t), syscall.SIGKILL, false); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, c.Init()); exit.Code != 137 {
		t.Errorf("exit %+v, want 137", exit)
	}
}

func testKillAll(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Sleep})
	c.ready(t)
	if err := c.Init().Signal(within(t), syscall.SIGKILL, true); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, c.Init()); exit.Code != 137 {
		t.Errorf("exit %+v, want 137", exit)
	}
}

func testPids(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Sleep})
	c.ready(t)
	pids, err := c.Pids(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if pid == c.Init().Pid() {
			return
		}
	}
	t.Errorf("init %d is not among %v", c.Init().Pid(), pids)
}

func testUpdate(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Sleep})
	c.ready(t)
	limit, shares := int64(128<<20), uint64(512)
	err := c.Update(within(t), &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &limit},
		CPU:    &specs.LinuxCPU{Shares: &shares},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.wantLimit(t, c.Cgroup(), limit)
}

// wantLimit checks the memory limit of a container's cgroup.
func (h Harness) wantLimit(t *testing.T, path string, limit int64) {
	t.Helper()
	group, err := cgroup.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, dir := range group.Dirs() {
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			if data, err := os.ReadFile(dir + "/" + name); err == nil {
				found = true
				got, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
				if err != nil || got < limit || got > limit+h.Beside {
					t.Errorf("%s is %d, want %d and at most %d more, %v", name, got, limit, h.Beside, err)
				}
			}
		}
	}
	if !found {
		t.Errorf("cgroup %q has no memory limit", path)
	}
}

func testPause(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Cat})
	c.start(t)
	if !h.CanPause {
		if err := c.Pause(within(t)); !errdefs.IsNotImplemented(err) {
			t.Errorf("pause: %v, want not implemented", err)
		}
		return
	}
	if err := c.Pause(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.streams.stdin.WriteString("frozen\n"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if c.streams.stdout.has("frozen") {
		t.Error("a paused program continued")
	}
	if err := c.Resume(within(t)); err != nil {
		t.Fatal(err)
	}
	c.streams.stdin.Close()
	wait(t, c.Init())
	if got := c.streams.stdout.text(t); got != "frozen\n" {
		t.Errorf("stdout %q", got)
	}
}

func testExec(t *testing.T, h Harness) {
	c := create(t, h, Program{Kind: Sleep})
	c.ready(t)
	if h.Process == nil {
		_, files := open(t)
		if _, err := c.Exec(within(t), "x", &specs.Process{Args: []string{"x"}, Cwd: "/"}, files); !errdefs.IsNotImplemented(err) {
			t.Errorf("exec: %v, want not implemented", err)
		}
		return
	}
	run := func(id string, p Program) (shim.Process, *streams) {
		s, files := open(t)
		e, err := c.Exec(within(t), id, h.Process(t, p), files)
		if err != nil {
			t.Fatalf("exec: %v", err)
		}
		if err := e.Start(within(t)); err != nil {
			t.Fatalf("start exec: %v", err)
		}
		s.handOver()
		return e, s
	}
	e, s := run("first", Program{Kind: Echo, Text: "from inside"})
	if exit := wait(t, e); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if got := s.stdout.text(t); got != "from inside" {
		t.Errorf("stdout %q", got)
	}
	for _, code := range []int{0, 3, 255} {
		e, _ := run(fmt.Sprint("code", code), Program{Kind: Exit, Code: code})
		if exit := wait(t, e); exit.Code != uint32(code) {
			t.Errorf("code %d, want %d", exit.Code, code)
		}
	}
	// All of a further process is what it started itself, never the container.
	for _, all := range []bool{false, true} {
		e, _ = run(fmt.Sprint("killed", all), Program{Kind: Sleep})
		if err := e.Signal(within(t), syscall.SIGKILL, all); err != nil {
			t.Error(err)
		}
		if exit := wait(t, e); exit.Code != 137 {
			t.Errorf("exit %+v, want 137", exit)
		}
	}
	if err := e.Signal(within(t), syscall.SIGKILL, false); !errdefs.IsNotFound(err) {
		t.Errorf("signal after the end: %v, want not found", err)
	}
	select {
	case <-c.Init().Exited():
		t.Errorf("init ended with %+v", c.Init().Exit())
	default:
	}
}

// testMissing wants an error with a text from Create or Start, or an exit that is not 0, and
// nothing left.
func testMissing(t *testing.T, h Harness) {
	c, err := tryCreate(t, h, Program{Kind: Missing})
	if err == nil {
		err = c.Init().Start(within(t))
		c.streams.handOver()
	}
	if err == nil {
		if exit := wait(t, c.Init()); exit.Code == 0 {
			t.Error("a program that is not there succeeded")
		}
		return
	}
	if strings.TrimSpace(err.Error()) == "" {
		t.Error("an error without a text")
	}
	t.Logf("error: %v", err)
}

func testSequence(t *testing.T, h Harness) {
	for i := range 10 {
		c := create(t, h, Program{Kind: Exit, Code: i})
		c.start(t)
		if exit := wait(t, c.Init()); exit.Code != uint32(i) {
			t.Errorf("run %d: exit %+v", i, exit)
		}
		c.delete(t)
	}
}
