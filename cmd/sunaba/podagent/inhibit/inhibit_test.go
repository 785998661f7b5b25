package inhibit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/tests/login"
)

// pods are over when the test says so.
type pods struct {
	mu    sync.Mutex
	calls []string
	over  chan struct{}
	back  chan struct{}
	slow  time.Duration // how long a shutdown takes to begin
}

func newPods() *pods { return &pods{over: make(chan struct{}), back: make(chan struct{}, 1)} }

func (p *pods) BeginShutdown(context.Context) (func(context.Context) error, error) {
	time.Sleep(p.slow)
	p.note("Shutdown")
	return func(ctx context.Context) error {
		select {
		case <-p.over:
			return nil
		case <-p.back:
			return fmt.Errorf("taken back: %w", errdefs.ErrAborted)
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}

func (p *pods) CancelShutdown(context.Context) error {
	p.note("Cancel")
	p.back <- struct{}{}
	return nil
}

func (p *pods) note(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
}

func (p *pods) called() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.calls)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for start := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("never: %s", what)
		}
	}
}

// run runs an inhibitor with a login manager, until the test ends.
func run(t *testing.T, p Pods, change func(*Options, *login.Manager)) *login.Manager {
	t.Helper()
	m := login.Start(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", m.Address)
	o := Options{Pods: p, Grace: 30 * time.Second, DropIns: m.DropIns, Logger: slog.New(slog.DiscardHandler), pause: 10 * time.Millisecond, reloaded: 200 * time.Millisecond}
	if change != nil {
		change(&o, m)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); New(o).Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return m
}

// SD1: the machine is held back until the pods are over.
func TestShutdown(t *testing.T) {
	p := newPods()
	m := run(t, p, nil)
	eventually(t, "a lock", func() bool { return m.Locks() == 1 })
	m.PrepareForShutdown(true)
	eventually(t, "the pods' end", func() bool { return p.called() == "[Shutdown]" })
	time.Sleep(50 * time.Millisecond)
	if m.Locks() != 1 {
		t.Error("the machine was not held back")
	}
	close(p.over)
	eventually(t, "the release", func() bool { return m.Locks() == 0 })
}

// SD8: a shutdown that is taken back in the middle starts the pods again, and the next one is held
// back too.
func TestTakenBack(t *testing.T) {
	p := newPods()
	m := run(t, p, nil)
	eventually(t, "a lock", func() bool { return m.Locks() == 1 })
	m.PrepareForShutdown(true)
	eventually(t, "the pods' end", func() bool { return p.called() == "[Shutdown]" })
	m.PrepareForShutdown(false)
	eventually(t, "the pods' start", func() bool { return p.called() == "[Shutdown Cancel]" })
	time.Sleep(50 * time.Millisecond)
	eventually(t, "a lock again", func() bool { return m.Locks() == 1 })
	m.PrepareForShutdown(true)
	eventually(t, "the pods' end again", func() bool { return p.called() == "[Shutdown Cancel Shutdown]" })
	close(p.over)
	eventually(t, "the release", func() bool { return m.Locks() == 0 })
}

// SD8: also if logind takes it back at once.
func TestTakenBackAtOnce(t *testing.T) {
	p := newPods()
	p.slow = 50 * time.Millisecond
	m := run(t, p, nil)
	eventually(t, "a lock", func() bool { return m.Locks() == 1 })
	m.PrepareForShutdown(true)
	m.PrepareForShutdown(false)
	eventually(t, "both", func() bool {
		return strings.HasPrefix(p.called(), "[Shutdown Cancel") || strings.HasPrefix(p.called(), "[Cancel")
	})
	time.Sleep(2 * p.slow)
	if got := p.called(); got != "[Shutdown Cancel]" {
		t.Errorf("calls %s", got)
	}
}

// A lost connection is made anew. A shutdown that began or was taken back meanwhile is seen.
func TestReconnect(t *testing.T) {
	p := newPods()
	m := run(t, p, nil)
	eventually(t, "a lock", func() bool { return m.Locks() == 1 })
	m.Disconnect()
	eventually(t, "a lock again", func() bool { return m.Taken() == 2 && m.Locks() == 1 })
	m.PrepareForShutdown(true)
	eventually(t, "the pods' end", func() bool { return p.called() == "[Shutdown]" })
	m.Disconnect() // while pods are being ended
	time.Sleep(50 * time.Millisecond)
	if m.Locks() != 1 {
		t.Error("the lock ended with the connection")
	}
	close(p.over)
	eventually(t, "the pods' end is asked for again, without effect", func() bool { return p.called() == "[Shutdown Shutdown]" })
	eventually(t, "the release", func() bool { return m.Locks() == 0 })
	m.Disconnect()
	m.PrepareForShutdown(false)
	eventually(t, "the pods' start", func() bool { return strings.HasSuffix(p.called(), " Cancel]") && m.Locks() == 1 })
}

// SD2: the longest delay is raised if it is too short, unless that is switched off.
func TestMaxDelay(t *testing.T) {
	m := run(t, newPods(), nil)
	eventually(t, "a lock", func() bool { return m.Locks() == 1 })
	if m.Reloads() != 1 {
		t.Errorf("%d reloads, want 1", m.Reloads())
	}
	for name, change := range map[string]func(*Options, *login.Manager){
		"long enough":  func(o *Options, _ *login.Manager) { o.Grace = 5 * time.Second },
		"switched off": func(o *Options, _ *login.Manager) { o.DropIns = "" },
	} {
		t.Run(name, func(t *testing.T) {
			m := run(t, newPods(), change)
			eventually(t, "a lock", func() bool { return m.Locks() == 1 })
			if m.Reloads() != 0 {
				t.Errorf("%d reloads", m.Reloads())
			}
		})
	}
	t.Run("not heeded", func(t *testing.T) {
		m := run(t, newPods(), func(o *Options, m *login.Manager) { o.DropIns = t.TempDir() })
		eventually(t, "a lock nevertheless", func() bool { return m.Locks() == 1 })
	})
}

// Where there is no logind it ends at once.
func TestNoLogind(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+t.TempDir()+"/bus")
	New(Options{Pods: newPods(), Logger: slog.New(slog.DiscardHandler)}).Run(t.Context())
}
