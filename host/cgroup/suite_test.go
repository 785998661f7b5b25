package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/thread"
)

// The tests here create groups of the machine's version, whichever it is.

// created is testGroup, and it exists.
func created(t *testing.T) *Group {
	t.Helper()
	g := testGroup(t)
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	return g
}

// sleeper is a process that sleeps until it is killed.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); comm(cmd.Process.Pid) != "sleep"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) { // the kernel names a program a moment after it has started it
			t.Fatalf("the sleeper is called %q", comm(cmd.Process.Pid))
		}
	}
	return cmd
}

func TestCreateTellsWhatItCreates(t *testing.T) {
	g := testGroup(t)
	all := g.mounts.Group(strings.TrimSuffix(g.Path(), "/inner"))
	want := append(all.Dirs(), g.Dirs()...)
	for _, want := range [][]string{want, nil} {
		var got []string
		err := g.CreateWith(func(path, dir string) error {
			if path != all.Path() && path != g.Path() || !strings.HasSuffix(dir, path) {
				t.Errorf("group %q in %q", path, dir)
			}
			got = append(got, dir)
			return nil
		})
		slices.Sort(want)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("created %q, want %q, %v", got, want, err)
		}
	}
	for _, dir := range g.Dirs() {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	refused := errors.New("refused")
	if err := g.mounts.Group(g.Path() + "/next").CreateWith(func(string, string) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a caller's error: %v", err)
	}
}

func TestLimits(t *testing.T) {
	g := created(t)
	memory, shares, quota := "memory.limit_in_bytes", "cpu.shares", "cpu.cfs_quota_us"
	if g.Unified() {
		memory, shares, quota = "memory.max", "cpu.weight", "cpu.max"
	}
	read := func(controller, name string) string {
		data, err := os.ReadFile(g.File(controller, name))
		if err != nil {
			t.Error(err)
		}
		return strings.Fields(string(data) + " none")[0]
	}
	weight := func(n uint64) string {
		if g.Unified() {
			n = Weight(n)
		}
		return fmt.Sprint(n)
	}
	free := [3]string{read("memory", memory), read("cpu", shares), read("cpu", quota)}
	for _, c := range []struct {
		limits Limits
		want   [3]string
	}{
		{Limits{Shares: 512, Quota: 50000, Period: 100000, Memory: 64 << 20}, [3]string{"67108864", weight(512), "50000"}},
		{Limits{Memory: 32 << 20}, [3]string{"33554432", weight(DefaultShares), free[2]}},
		{Limits{}, free},
	} {
		if err := g.Limit(c.limits); err != nil {
			t.Fatal(err)
		}
		if got := [3]string{read("memory", memory), read("cpu", shares), read("cpu", quota)}; got != c.want {
			t.Errorf("%+v: memory, shares and quota are %q, want %q", c.limits, got, c.want)
		}
	}
	if err := g.mounts.Group(g.Path() + "/missing").Limit(Limits{Memory: 32 << 20}); err == nil {
		t.Error("a group that is missing was limited")
	}
}

func TestBirthInAGroup(t *testing.T) {
	g := created(t)
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	var err error
	thread.Run(func() {
		var release func()
		if release, err = g.Born(cmd.SysProcAttr); err == nil {
			err = cmd.Start()
		}
		if release != nil {
			release()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	if of, err := Of(cmd.Process.Pid); err != nil || of != g.Path() {
		t.Errorf("the process was born in %q, %v", of, err)
	}
	names, err := g.KillInAny(t.Context())
	if err != nil || len(names) != 1 { // its name is the program's a moment after its start
		t.Errorf("killed %q, %v", names, err)
	}
}

func TestJoin(t *testing.T) {
	g := testGroup(t)
	pid := sleeper(t).Process.Pid
	if err := g.JoinPresent(pid); err == nil {
		t.Error("a process joined a group that does not exist")
	}
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	for name, join := range map[string]func(int) error{"Join": g.Join, "JoinPresent": g.JoinPresent, "JoinLimiting": g.JoinLimiting} {
		other := g.mounts.Group(g.Path() + "-" + name)
		if err := errors.Join(other.Create(), other.Join(pid), join(pid)); err != nil {
			t.Fatal(err)
		}
		want := []int{pid}
		if got, err := g.Pids(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: processes %v, want %v, %v", name, got, want, err)
		}
		if got, err := g.PidsInAny(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: processes in any hierarchy %v, want %v, %v", name, got, want, err)
		}
		if got, err := other.Pids(); err != nil || len(got) > 0 {
			t.Errorf("%s: processes %v are in the group before, %v", name, got, err)
		}
	}
	if err := g.Join(1 << 30); err == nil {
		t.Error("a process that does not exist joined")
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// Who is to be kept is, also where a kill of the whole group would be one step; and so is who is
// there with one thread.
func TestKillKeeps(t *testing.T) {
	g := created(t)
	kept, killed := sleeper(t), sleeper(t)
	below := g.mounts.Group(g.Path() + "/below")
	if err := errors.Join(below.Create(), g.mounts.Group(g.Path()).Remove()); err != nil {
		t.Fatal(err)
	}
	// Processes are in leaves only: version 2 has controllers in groups without processes of their
	// own.
	leaf := created(t)
	if err := errors.Join(leaf.Join(kept.Process.Pid), leaf.Join(killed.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	entered, leave, left := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		thread.Run(func() {
			var err error
			if !leaf.Unified() {
				err = leaf.EnterThread()
			}
			entered <- err
			<-leave
		})
	}()
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := leaf.Kill(ctx, kept.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := killed.Wait(); err == nil || killed.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the other process ended with %v", err)
	}
	if err := unix.Kill(kept.Process.Pid, 0); err != nil {
		t.Errorf("the kept process: %v", err)
	}
	close(leave)
	<-left
	names, err := leaf.KillInAny(ctx)
	if err != nil || !slices.Equal(names, []string{"sleep"}) {
		t.Errorf("killed %q, %v", names, err)
	}
	_ = kept.Wait()
	if err := leaf.Remove(); err != nil {
		t.Error(err)
	}
}

func TestKillEndsWithItsContext(t *testing.T) {
	g := created(t)
	cmd := sleeper(t)
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Kill(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("kill without time: %v", err)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFreeze(t *testing.T) {
	g := created(t)
	if err := g.Join(sleeper(t).Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		do     func() error
		frozen bool
	}{{g.Thaw, false}, {g.Freeze, true}, {g.Freeze, true}, {g.Thaw, false}, {g.Freeze, true}} {
		if err := c.do(); err != nil || g.Frozen() != c.frozen {
			t.Errorf("frozen %v, want %v, %v", g.Frozen(), c.frozen, err)
		}
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// SIGKILL for all ends a group whose processes start others all the time: one signal after the
// other would miss what was started since they were listed.
func TestKilledAsOne(t *testing.T) {
	for range 10 {
		g := created(t)
		cmd := exec.Command("/bin/sh", "-c", `read in_the_group
			i=0
			while [ $i -lt 20 ]; do
				while :; do sleep 1000 & kill -9 $!; wait $!; done 2>/dev/null &
				i=$((i+1))
			done
			echo ready
			wait`)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in := startIn(t, g, cmd)
		if _, err := fmt.Fprintln(in, "go"); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscanln(out, new(string)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		if n, err := g.Signal(unix.SIGKILL); err != nil || n < 20 {
			t.Errorf("signalled %d, %v", n, err)
		}
		_ = cmd.Wait()
		left := []int{1}
		for end := time.Now().Add(10 * time.Second); len(left) > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if left, err = g.Pids(); err != nil {
				t.Fatal(err)
			}
		}
		if len(left) > 0 {
			t.Errorf("%d processes were missed, the kill that tries again ends them: %v", len(left), g.Kill(t.Context()))
		}
		if g.Frozen() {
			t.Error("the group is frozen")
		}
	}
}

// The kernel's kill for lack of memory is seen by who watches, and counted.
func TestOutOfMemory(t *testing.T) {
	g := created(t)
	var ledger Ledger
	kills := ledger.Open(g)
	if err := g.Limit(Limits{Memory: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	seen := make(chan uint64, 16)
	stop, err := g.WatchOOM(func(kills uint64) { seen <- kills })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	cmd := exec.Command("/bin/sh", "-c", "read in_the_group; exec dd if=/dev/zero of=/dev/null bs=256M count=1")
	in := startIn(t, g, cmd)
	if _, err := fmt.Fprintln(in, "go"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the process ended with %v", err)
	}
	select {
	case n := <-seen:
		if n != 1 || g.OOMKills() != 1 {
			t.Errorf("%d kills were seen, %d counted", n, g.OOMKills())
		}
	case <-time.After(time.Minute):
		t.Errorf("no kill was seen, %d were counted", g.OOMKills())
	}
	if !kills.Close() {
		t.Error("the ledger has no kill")
	}
}

// What cannot exist does not: it is removed, and nobody is in it.
func TestWhatCannotExist(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mounts := &Mounts{Unified: root}
	for _, path := range []string{
		"/" + strings.Repeat("x", 256) + "/c", strings.Repeat("/"+strings.Repeat("x", 200), 30), "/file/c", "/missing/c",
	} {
		g := mounts.Group(path)
		if err := g.Remove(); err != nil {
			t.Errorf("remove %.40q: %v", path, err)
		}
		if err := g.Kill(t.Context()); err != nil {
			t.Errorf("kill %.40q: %v", path, err)
		}
		if names, err := g.KillInAny(t.Context()); err != nil || len(names) > 0 {
			t.Errorf("kill %.40q in any hierarchy: %q, %v", path, names, err)
		}
	}
	if err := mounts.Group("/").Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(root); err != nil {
		t.Error(err)
	}
}
