package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/tests/node"
)

// probe is the guest that the engine's own tests use, built once.
var probe = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sunaba-probe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "probe.wasm")
	text, err := exec.Command("clang", "--target=wasm32-wasi", "--sysroot=/usr", "-O2", "-Wl,--strip-debug", "-o", out,
		"../../shim/wasm/engine/testdata/probe.c").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build guest: %w: %s", err, text)
	}
	return os.ReadFile(out)
})

// guest is a request for a container of the pod that runs the probe, whose arguments say what it
// does.
func (p *pod) guest(t testing.TB, args ...string) *container {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(p.root, "probe.wasm"), must(probe())(t), 0o644))
	c := p.container(enginetest.Program{})
	c.spec.Process.Args = append([]string{"/probe.wasm"}, args...)
	c.spec.Mounts = nil
	c.joinHostNetwork()
	return c
}

// joinHostNetwork prewarmed the kernel the making and, above all, the removing of a network
// namespace.
func (c *container) joinHostNetwork() {
	c.spec.Linux.Namespaces = slices.DeleteFunc(c.spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.NetworkNamespace })
}

// says waits for a line on the guest's output.
func (c *container) says(t testing.TB, line string) {
	t.Helper()
	eventually(t, "the guest says "+line, func() bool {
		data, _ := os.ReadFile(c.logFile())
		return strings.Contains(string(data), " "+line+"\n")
	})
}

// open lets a guest go on that awaits /gate.
func (c *container) open(t testing.TB) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(c.path(), "rootfs/gate"), nil, 0o644))
}

func (k *supervised) runsWith(t testing.TB, c *container, pid int) {
	t.Helper()
	if now := k.status(t, c, client.StatusRunning).PID; now != pid {
		t.Errorf("pid %d, was %d", now, pid)
	}
}

func TestSuccessorHasCreatedGuests(t *testing.T) {
	k := newSupervised(t, "")
	c := k.guest(t, "exit:300").create(t) // more than a process's exit status holds
	pid := k.status(t, c, client.StatusCreated).PID
	before := must(k.Details(within(t), c.id))(t)
	k.kill(t)
	if now := k.status(t, c, client.StatusCreated).PID; now != pid {
		t.Errorf("pid %d, was %d", now, pid)
	}
	if now := must(k.Details(within(t), c.id))(t); now.LinearBase != before.LinearBase || now.LinearSize == 0 || now.EngineCPU != before.EngineCPU {
		t.Errorf("details %+v, were %+v", now, before)
	}
	c.start(t)
	if exit := c.wait(t); exit.Code != 300 {
		t.Errorf("exit %+v", exit)
	}
	k.kill(t) // its exit is on record
	if exit := c.wait(t); exit.Code != 300 {
		t.Errorf("exit after another death %+v", exit)
	}
	k.finish(t, c)
	k.quit(t)
}

// TestGuestsRunOnWithoutAShim has one that serves, one that writes and one that reads.
func TestGuestsRunOnWithoutAShim(t *testing.T) {
	k := newSupervised(t, "")
	port := must(node.FreePort())(t)
	server := k.guest(t, "serve")
	server.spec.Annotations[annotation.Listen] = fmt.Sprintf(`[{"name":"http","address":"127.0.0.1","port":%d}]`, port)
	server.create(t).start(t)
	server.says(t, "stdout F serve=http")
	reader := k.guest(t, "line", "line", "exit:5")
	reader.req.Stdin = filepath.Join(t.TempDir(), "in")
	check(t, unix.Mkfifo(reader.req.Stdin, 0o600))
	reader.create(t).start(t)
	in := must(os.OpenFile(reader.req.Stdin, os.O_WRONLY, 0))(t)
	defer in.Close()
	fmt.Fprintln(in, "one")
	writer := k.guest(t, "count:30000", "exit:3").create(t).start(t)
	pids := []int{k.status(t, server, client.StatusRunning).PID, k.status(t, reader, client.StatusRunning).PID}
	for range 2 {
		check(t, syscall.Kill(k.shim, syscall.SIGSTOP)) // as good as none
		if text := fetch(t, port); text != "hello\n" {
			t.Errorf("served %q", text)
		}
		k.kill(t)
		k.runsWith(t, server, pids[0])
		k.runsWith(t, reader, pids[1])
	}
	if text := fetch(t, port); text != "hello\n" {
		t.Errorf("served %q", text)
	}
	fmt.Fprintln(in, "two")
	for c, code := range map[*container]uint32{reader: 5, writer: 3} {
		if exit := c.wait(t); exit.Code != code {
			t.Errorf("exit %+v, want %d", exit, code)
		}
	}
	checkCount(t, writer, 30000, 2)
	check(t, k.Kill(within(t), server.id, "", syscall.SIGTERM, false))
	if exit := server.wait(t); exit.Code != 5 { // it has heard it
		t.Errorf("exit %+v", exit)
	}
	for _, c := range []*container{server, reader, writer} {
		k.finish(t, c)
	}
	k.quit(t)
}

// checkCount reads a log of numbers. Nothing may be there twice, and for each death a piece may be
// missing, as much as a shim reads at once and the begin of a line.
func checkCount(t *testing.T, c *container, n, deaths int) {
	t.Helper()
	next, seen, inside := 0, 0, false
	for line := range strings.Lines(c.log(t)) {
		text := strings.TrimSuffix(strings.TrimPrefix(line, "stdout F "), "\n")
		got, err := strconv.Atoi(text)
		if err == nil && got == next {
			next, inside = next+1, false
			continue
		}
		if !inside {
			seen, inside = seen+1, true
		}
		switch {
		case seen > deaths:
			t.Fatalf("line %q, want %d", line, next)
		case err == nil && got > next: // after what is missing
			next = got + 1
		case strings.HasSuffix(strconv.Itoa(next), text): // torn
			next++
		} // else the rest of a line of which the beginning is missing
	}
	if next != n {
		t.Errorf("counted to %d, want %d", next, n)
	}
}

func fetch(t testing.TB, port int) string {
	t.Helper()
	conn := must(net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)))(t)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(patience)))
	return string(must(io.ReadAll(conn))(t))
}

// TestGuestEndsWhileThereIsNoShim has guests end in every way while their shim cannot notice, and
// the shim die.
func TestGuestEndsWhileThereIsNoShim(t *testing.T) {
	k := newSupervised(t, "")
	trap := k.guest(t, "await:/gate", "trap")
	long := k.guest(t, "await:/gate", "exit:300")
	greedy := k.guest(t, "await:/gate", "fill:/tmp/file")
	limit := int64(32 << 20)
	greedy.spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit, Swap: &limit}}
	greedy.spec.Mounts = []specs.Mount{{Type: "tmpfs", Source: "tmpfs", Destination: "/tmp"}}
	killed := k.guest(t, "sleep")
	unborn := k.guest(t, "sleep")
	all := []*container{trap, long, greedy, killed, unborn}
	var pids []int
	for _, c := range all {
		pids = append(pids, must(c.tryCreate(t))(t))
		if c != unborn {
			c.start(t)
		}
	}
	killed.says(t, "stdout F sleep=on")
	check(t, syscall.Kill(k.shim, syscall.SIGSTOP))
	for _, c := range []*container{trap, long, greedy} {
		c.open(t)
	}
	check(t, syscall.Kill(pids[3], syscall.SIGKILL))
	check(t, syscall.Kill(pids[4], syscall.SIGKILL))
	for _, pid := range pids {
		eventually(t, "the guest ends", func() bool { return isZombie(t, pid) })
	}
	k.kill(t)
	for i, want := range []client.Exit{
		{Code: 134, Message: "wasm trap: unreachable"}, {Code: 300}, {Code: 137, OOMKilled: true}, {Code: 137}, {Code: 137},
	} {
		all[i].wait(t)
		exit := *must(k.Details(within(t), all[i].id))(t).Exit
		if exit.Code != want.Code || !strings.HasPrefix(exit.Message, want.Message) || want.Message == "" && exit.Message != "" || exit.OOMKilled != want.OOMKilled {
			t.Errorf("%q: exit %+v, want %+v", all[i].spec.Process.Args, exit, want)
		}
	}
	if log := trap.log(t); !strings.Contains(log, "stderr F wasm stack trace:") {
		t.Errorf("log of the trap: %q", log)
	}
	for _, c := range all {
		k.finish(t, c)
	}
	k.quit(t)
}

// TestShimDiesWithAGuestsLastWord has a guest end, and the shim, which has heard how, die before
// that is on record: it waits for the last of the output to be taken.
func TestShimDiesWithAGuestsLastWord(t *testing.T) {
	k := newSupervised(t, "")
	g := k.guest(t, "count:20000", "trap") // more than a FIFO holds, and less than that, a shim and a pipe
	g.req.Stdout, g.req.Stderr = filepath.Join(t.TempDir(), "out"), ""
	check(t, unix.Mkfifo(g.req.Stdout, 0o600))
	out := must(os.OpenFile(g.req.Stdout, os.O_RDWR, 0))(t)
	defer out.Close()
	pid := must(g.tryCreate(t))(t)
	g.start(t)
	eventually(t, "the guest is reaped", func() bool { return !alive(pid) })
	if _, known := client.ReadExit(g.path()); known {
		t.Fatal("its exit is on record: there is nothing to test")
	}
	k.kill(t)
	go io.Copy(io.Discard, out)
	g.wait(t)
	if exit := must(k.Details(within(t), g.id))(t).Exit; exit.Code != 134 || !strings.HasPrefix(exit.Message, "wasm trap: unreachable") {
		t.Errorf("exit %+v", exit)
	}
	k.finish(t, g)
	k.quit(t)
}

func isZombie(t testing.TB, pid int) bool {
	t.Helper()
	return strings.Contains(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)), "zombie")
}

// TestStopThatAShimDiesIn kills shims right after they have asked guests to end, of which some
// cannot hear it, some do not want to, and some have been given time.
func TestStopThatAShimDiesIn(t *testing.T) {
	t.Parallel() // with the others that take long
	for name, c := range map[string]struct {
		args   []string
		stuck  bool // its process does not answer
		wait   bool
		killed bool // afterwards, as it does not end
		code   uint32
	}{
		"cannot hear":              {args: []string{"sleep"}, code: 143},
		"cannot hear and computes": {args: []string{"spin"}, code: 143},
		"does not answer":          {args: []string{"sleep"}, stuck: true, code: 143},
		"has time":                 {args: []string{"sleep"}, wait: true, killed: true, code: 137},
		"computes and has time":    {args: []string{"spin"}, wait: true, killed: true, code: 137},
	} {
		t.Run(name, func(t *testing.T) {
			k := newSupervised(t, "")
			g := k.guest(t, c.args...)
			if c.wait {
				g.spec.Annotations[annotation.StopWait] = "true"
			}
			g.create(t).start(t)
			g.says(t, "stdout F "+c.args[0]+"=on")
			if c.stuck {
				check(t, syscall.Kill(k.status(t, g, client.StatusRunning).PID, syscall.SIGSTOP))
			}
			check(t, k.Kill(within(t), g.id, "", syscall.SIGTERM, false))
			k.kill(t)
			if c.killed {
				k.status(t, g, client.StatusRunning)
				k.kill(t)
				check(t, k.Kill(within(t), g.id, "", syscall.SIGKILL, false))
			}
			if exit := k.ends(t, g, c.code); exit.OOMKilled {
				t.Errorf("exit %+v", exit)
			}
			k.quit(t)
		})
	}
}

// TestStopOfAGuestThatHears has a guest go on in its own time after it heard of the stop, beyond
// the death of the shim that told it.
func TestStopOfAGuestThatHears(t *testing.T) {
	k := newSupervised(t, "")
	g := k.guest(t, "line", "env:HOME", "await:/gate", "exit:300") // the end of the input ends the line
	g.req.Stdin = filepath.Join(t.TempDir(), "in")
	check(t, unix.Mkfifo(g.req.Stdin, 0o600))
	g.create(t).start(t)
	check(t, k.Kill(within(t), g.id, "", syscall.SIGTERM, false))
	g.says(t, "stdout F env:HOME=")
	k.kill(t)
	if told := must(k.Details(within(t), g.id))(t).Told; !slices.Equal(told, []int{int(syscall.SIGTERM)}) {
		t.Errorf("told %v", told)
	}
	g.open(t)
	k.ends(t, g, 300)
	k.quit(t)
}

func TestSuccessorOfAPausedGuest(t *testing.T) {
	k := newSupervised(t, "")
	g := k.guest(t, "await:/gate", "sleep").create(t).start(t)
	other := k.guest(t, "sleep").create(t).start(t)
	for _, c := range []*container{g, other} {
		check(t, k.Pause(within(t), c.id))
	}
	for range 2 {
		k.kill(t)
		k.status(t, g, client.StatusPaused)
	}
	g.open(t)
	check(t, k.Resume(within(t), g.id))
	g.says(t, "stdout F sleep=on")
	for _, c := range []*container{g, other} { // running, and paused still
		k.kills(t, c, syscall.SIGTERM, 143)
	}
	k.quit(t)
}

// TestSuccessorExecutes has what was executed end with the shim, and executes more: under the limit
// that was set before.
func TestSuccessorExecutes(t *testing.T) {
	k := newSupervised(t, "")
	g := k.guest(t, "sleep").create(t).start(t)
	limit := int64(64 << 20)
	check(t, k.Update(within(t), g.id, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}))
	for _, program := range []string{"sleep", "spin"} {
		check(t, k.Exec(within(t), client.ExecRequest{ID: g.id, ExecID: program, Process: &specs.Process{Args: []string{"/probe.wasm", program}, Cwd: "/"}}))
		must(k.Start(within(t), g.id, program))(t)
	}
	eventually(t, "three guests run", func() bool { return len(must(k.Pids(within(t), g.id))(t)) == 3 }) // a thread that forks is listed too
	k.kill(t)
	eventually(t, "what was executed ends", func() bool { return len(must(k.Pids(within(t), g.id))(t)) == 1 })
	out := filepath.Join(t.TempDir(), "out")
	check(t, unix.Mkfifo(out, 0o600))
	text := make(chan string, 1)
	go func() { data, _ := os.ReadFile(out); text <- string(data) }()
	check(t, k.Exec(within(t), client.ExecRequest{ID: g.id, ExecID: "x", Stdout: out, Process: &specs.Process{Args: []string{"/probe.wasm", "grow", "exit:300"}, Cwd: "/"}}))
	must(k.Start(within(t), g.id, "x"))(t)
	if exit := must(k.Wait(within(t), g.id, "x"))(t); exit.Code != 300 {
		t.Errorf("exit %+v", exit)
	}
	got := <-text
	mib, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(got, "grow=")))
	if err != nil || mib < 16 || mib >= 64 {
		t.Errorf("memory grew to %q MiB under a limit of 64", got)
	}
	must(k.Delete(within(t), g.id, "x"))(t)
	if exit := k.kills(t, g, syscall.SIGKILL, 137); exit.OOMKilled {
		t.Errorf("exit %+v", exit)
	}
	k.quit(t)
}

func TestSuccessorOfAGuestsTerminal(t *testing.T) {
	k := newSupervised(t, "")
	g := k.guest(t, "line", "env:HOME", "line", "exit:7")
	g.spec.Process.Terminal, g.req.Terminal, g.req.Stderr = true, true, ""
	g.req.Stdin = filepath.Join(t.TempDir(), "in")
	check(t, unix.Mkfifo(g.req.Stdin, 0o600))
	g.create(t).start(t)
	in := must(os.OpenFile(g.req.Stdin, os.O_WRONLY, 0))(t)
	defer in.Close()
	k.kill(t)
	check(t, k.ResizePty(within(t), g.id, "", 80, 24))
	fmt.Fprintln(in, "one")
	g.says(t, "stdout F env:HOME=")
	k.kill(t)
	fmt.Fprintln(in, "two")
	k.ends(t, g, 7)
	k.quit(t)
}

// TestPrewarmedOfADeadShim has one that was used, which is a container as any other, and one that
// waits, which ends.
func TestPrewarmedOfADeadShim(t *testing.T) {
	k := newSupervised(t, "")
	g := k.guest(t, "sleep")
	used := k.prepareIn(t, g.spec.Linux.CgroupsPath)
	g.spec.Linux.Namespaces = slices.DeleteFunc(g.spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool {
		return ns.Type == specs.IPCNamespace || ns.Type == specs.UTSNamespace // as pods' containers
	})
	if pid := must(g.tryCreate(t))(t); pid != used {
		t.Errorf("pid %d, the prewarmed process was %d", pid, used)
	}
	g.start(t)
	waits := k.prepare(t)
	k.kill(t)
	eventually(t, "the prewarmed process ends", func() bool { return !alive(waits) })
	k.runsWith(t, g, used)
	if again := k.prepare(t); again == waits || !alive(again) {
		t.Errorf("prewarmed process %d", again)
	}
	k.kills(t, g, syscall.SIGTERM, 143)
	k.quit(t)
}

// TestSupervisedShimKilledAtAnyMoment kills shims between the first step of a guest's creation and
// the last of its removal. Whatever was answered is true, what was not is repeated, and the guest's
// end is its own.
func TestSupervisedShimKilledAtAnyMoment(t *testing.T) {
	t.Parallel() // with the others that take long
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	k := newSupervised(t, "")
	k.guest(t, "exit:0").create(t).delete(t) // compiled
	lost := 0
	for i := range rounds {
		time.Sleep(time.Second) // or the supervisor would take its time with the successor
		k.connect(t)
		c := k.guest(t, "env:HOME", "exit:300")
		c.prepare(t)
		shim, killed := k.shim, make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(time.Duration(i) * 80 * time.Millisecond / time.Duration(rounds))
			_ = syscall.Kill(shim, syscall.SIGKILL)
		}()
		k.live(t, c)
		<-killed // at the latest now, where all was over before
		switch log := c.log(t); strings.Count(log, "env:HOME") {
		case 1:
		case 0:
			lost++ // the shim died after it had read the line and before it wrote it
		default:
			t.Errorf("round %d: log %q", i, log)
		}
		k.nothingRunsOf(t, c, "config.json", "exit.json", "rootfs")
	}
	if lost > rounds/4 {
		t.Errorf("the line was lost in %d of %d rounds", lost, rounds)
	}
	k.connect(t)
	k.quit(t)
}

// live takes a container through its life, step by step as far as it has not come. A step whose
// answer is lost is looked after.
func (k *supervised) live(t testing.TB, c *container) {
	t.Helper()
	ctx := within(t)
	var exit *client.Exit
	for exit == nil {
		state, err := k.State(ctx, c.id, "")
		switch {
		case errdefs.IsNotFound(err):
			_, err = k.Create(ctx, c.req)
		case err != nil:
		case state.Status == client.StatusCreated:
			_, err = k.Client.Start(ctx, c.id, "")
		default:
			var e client.Exit
			if e, err = k.Wait(ctx, c.id, ""); err == nil {
				exit = &e
			}
		}
		k.outlive(t, ctx, err)
	}
	if exit.Code != 300 {
		t.Errorf("exit %+v", exit)
	}
	for {
		_, err := k.Delete(ctx, c.id, "")
		if err == nil || errdefs.IsNotFound(err) {
			return
		}
		k.outlive(t, ctx, err)
	}
}

// outlive takes an error for what a shim's death makes of a call, or fails.
func (k *supervised) outlive(t testing.TB, ctx context.Context, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errdefs.IsUnavailable(err):
		k.connect(t)
	default:
		t.Fatal(err)
	}
}
