package logind_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/systemd/logind"
	"github.com/sunaba-project/sunaba/tests/login"
)

func connect(t *testing.T) (*login.Manager, *logind.Conn) {
	t.Helper()
	m := login.Start(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", m.Address)
	c, err := logind.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return m, c
}

// A lock is held until it is closed (SD1).
func TestInhibit(t *testing.T) {
	m, c := connect(t)
	lock, err := c.Inhibit(t.Context(), "sunaba", "stop pods")
	if err != nil || m.Locks() != 1 {
		t.Fatalf("%v, %d locks", err, m.Locks())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if m.Locks() != 1 {
		t.Error("the lock ended with the connection")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); m.Locks() != 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the lock is held")
		}
	}
}

// Shutdowns are told, and that they are taken back; so is the end of the connection.
func TestNext(t *testing.T) {
	m, c := connect(t)
	for _, want := range []bool{true, false, true} {
		m.PrepareForShutdown(want)
		got, err := c.Next(t.Context())
		if err != nil || got != want {
			t.Fatalf("%t, %v; want %t", got, err, want)
		}
		if down, err := c.ShuttingDown(t.Context()); err != nil || down != want {
			t.Errorf("property %t, %v; want %t", down, err, want)
		}
	}
	if _, err := c.Inhibit(t.Context(), "sunaba", "stop pods"); err == nil {
		t.Error("a lock in the middle of a shutdown")
	}
	m.Disconnect()
	if _, err := c.Next(t.Context()); !errdefs.IsUnavailable(err) {
		t.Errorf("error %v", err)
	}
}

// SD2: a drop-in file raises the longest delay, in whole seconds that are not shorter.
func TestMaxDelay(t *testing.T) {
	m, c := connect(t)
	if d, err := c.MaxDelay(t.Context()); err != nil || d != 5*time.Second {
		t.Fatalf("%v, %v", d, err)
	}
	if err := logind.WriteMaxDelay(m.DropIns, 30*time.Second+1); err != nil {
		t.Fatal(err)
	}
	if err := c.Reload(t.Context()); err != nil || m.Reloads() != 1 {
		t.Fatalf("%v, %d reloads", err, m.Reloads())
	}
	if d, err := c.MaxDelay(t.Context()); err != nil || d != 31*time.Second {
		t.Errorf("%v, %v", d, err)
	}
	if info, err := os.Stat(filepath.Join(m.DropIns, logind.DropIn)); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
}

// Without a bus there is no logind, which is told apart from other failures.
func TestConnectNone(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "bus"))
	if _, err := logind.Connect(t.Context()); !errdefs.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
}

// A bus that does not answer is given up with the context: the server can end.
func TestConnectHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := logind.Connect(ctx); err == nil {
		t.Error("connected to a bus that says nothing")
	}
}
