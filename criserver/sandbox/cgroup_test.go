package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// TestOutlivedProcessesAreKilled has the log say that processes were killed only if they were.
func TestOutlivedProcessesAreKilled(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	w.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	m := w.manager()
	id := state.NewID()
	parent, owned, err := w.o.Cgroups.Pod(id, "")
	if err != nil {
		t.Fatal(err)
	}
	g := group{m, state.Sandbox{ID: id, CgroupParent: parent, CgroupOwned: owned}}
	if err := g.create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.remove(context.Background(), nil) })
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleep.Wait() }()
	t.Cleanup(func() { _ = sleep.Process.Kill() })
	comm := fmt.Sprintf("/proc/%d/comm", sleep.Process.Pid)
	for { // the kernel renames it a moment after Start has returned
		if name, err := os.ReadFile(comm); err != nil || string(name) == "sleep\n" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := w.o.Cgroups.Place(w.o.Cgroups.Leaf(parent, "left"), sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}

	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.kill(late, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v, want that the context has ended", err)
	}
	if strings.Contains(log.String(), "killing processes") {
		t.Errorf("nothing was killed, and the log says: %s", log.String())
	}
	select {
	case err := <-ended:
		t.Fatalf("the process has ended: %v", err)
	default:
	}

	if err := g.kill(t.Context(), nil); err != nil {
		t.Error(err)
	}
	<-ended
	if !strings.Contains(log.String(), "killing processes") || !strings.Contains(log.String(), "sleep") {
		t.Errorf("a process was killed, and the log says: %s", log.String())
	}
}
