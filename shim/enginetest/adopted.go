package enginetest

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim/client"
)

// RunAdopted runs the suite of containers whose shim dies: what an engine of its successor has to
// do with them alike, as shim.Adopter says. Both shims are binary, with a supervisor, because only
// a process dies as a shim does; the Harness's own engine is not used.
func RunAdopted(t *testing.T, h Harness, binary string) {
	NeedRoot(t)
	t.Cleanup(RemoveCgroupParent)
	// Side by side, each with shims of its own: a supervisor waits before it starts the next.
	var all sync.WaitGroup
	for _, c := range []struct {
		name string
		test func(*testing.T, *mortal)
	}{
		{"a created container starts", adoptCreated},
		{"a created container that was killed", adoptCreatedAndKilled},
		{"a running container is whole", adoptRunning},
		{"a running container executes", adoptExec},
		{"an end that no shim saw", adoptEnded},
		{"a kill that no shim saw", adoptKilled},
		{"a paused container", adoptPaused},
		{"an end that was on record", adoptRecorded},
	} {
		all.Go(func() { t.Run(c.name, func(t *testing.T) { c.test(t, newMortal(t, h, binary)) }) })
	}
	all.Wait()
}

func adoptCreated(_ *testing.T, m *mortal) {
	w := m.create(Program{Kind: Exit, Code: 42})
	for range 2 {
		m.die()
		w.is(client.StatusCreated)
	}
	w.start()
	w.ends(42)
}

func adoptCreatedAndKilled(t *testing.T, m *mortal) {
	for _, away := range []bool{false, true} {
		w := m.create(Program{Kind: Sleep})
		if away {
			w.dieUnseen()
		} else {
			m.die()
			w.kill()
		}
		w.ends(137)
		if w.output() != "" {
			t.Errorf("the program ran: %q", w.output())
		}
	}
}

func adoptRunning(t *testing.T, m *mortal) {
	w := m.run(Program{Kind: Sleep})
	m.die()
	w.is(client.StatusRunning)
	if pids, err := m.Pids(within(t), w.id); err != nil || !slices.Contains(pids, w.pid) {
		t.Errorf("init %d is not among %v: %v", w.pid, pids, err)
	}
	if d, err := m.Details(within(t), w.id); err != nil || d.PID != w.pid || d.StartedAt.IsZero() || d.Exit != nil {
		t.Errorf("details %+v, %v", d, err)
	}
	limit := int64(128 << 20)
	if err := m.Update(within(t), w.id, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}); err != nil {
		t.Errorf("update: %v", err)
	}
	m.h.wantLimit(t, CgroupParent+"/"+w.id, limit)
	conn, err := unixsocket.Dial(within(t), filepath.Join(m.dir, client.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	rpc := ttrpc.NewClient(conn)
	defer rpc.Close()
	if s, err := task.NewTTRPCTaskClient(rpc).Stats(within(t), &task.StatsRequest{ID: w.id}); err != nil || len(s.Stats.GetValue()) == 0 {
		t.Errorf("stats %v: %v", s, err)
	}
	w.kill()
	w.ends(137)
}

func adoptExec(t *testing.T, m *mortal) {
	if m.h.Process == nil {
		t.Skip("the engine executes nothing")
	}
	w := m.run(Program{Kind: Sleep})
	execute := func(id string, p Program) {
		t.Helper()
		if err := m.Exec(within(t), client.ExecRequest{ID: w.id, ExecID: id, Process: m.h.Process(t, p)}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Start(within(t), w.id, id); err != nil {
			t.Fatal(err)
		}
	}
	execute("dies with its shim", Program{Kind: Sleep})
	m.die()
	w.await("the executed process has exited", func() bool {
		pids, err := m.Pids(within(t), w.id)
		return err == nil && len(pids) == 1
	})
	execute("after", Program{Kind: Exit, Code: 3})
	if exit, err := m.Wait(within(t), w.id, "after"); err != nil || exit.Code != 3 {
		t.Errorf("exit %+v, %v; want 3", exit, err)
	}
	w.kill()
	w.ends(137)
}

// adoptEnded has a program end by itself: it is frozen before its input ends, and continued when
// the shim stands still.
func adoptEnded(t *testing.T, m *mortal) {
	w := m.run(Program{Kind: Cat, Code: 42})
	if err := m.Pause(within(t), w.id); err != nil {
		t.Fatal(err)
	}
	w.endInput("last words\n")
	w.await("the shim has passed on the input's end", func() bool { return !w.holds(w.stdin.Name()) })
	m.stand()
	group, err := cgroup.Open(CgroupParent + "/" + w.id)
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Thaw(); err != nil {
		t.Fatal(err)
	}
	w.zombie()
	m.die()
	w.ends(42)
	if w.output() != "last words\n" {
		t.Errorf("output %q", w.output())
	}
}

func adoptKilled(_ *testing.T, m *mortal) {
	w := m.run(Program{Kind: Sleep})
	w.dieUnseen()
	w.ends(137)
}

func adoptPaused(t *testing.T, m *mortal) {
	if !m.h.CanPause {
		t.Skip("the engine does not pause")
	}
	w := m.run(Program{Kind: Cat, Code: 7})
	if err := m.Pause(within(t), w.id); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m.die()
		w.is(client.StatusPaused)
	}
	w.endInput("frozen\n")
	if got := w.output(); got != "" {
		t.Errorf("a paused program wrote %q", got)
	}
	if err := m.Resume(within(t), w.id); err != nil {
		t.Fatal(err)
	}
	w.ends(7)
	if got := w.output(); got != "frozen\n" {
		t.Errorf("output %q", got)
	}
}

func adoptRecorded(t *testing.T, m *mortal) {
	w := m.run(Program{Kind: Exit, Code: 255})
	if _, err := m.Wait(within(t), w.id, ""); err != nil {
		t.Fatal(err)
	}
	m.die()
	w.is(client.StatusStopped)
	w.ends(255)
}
