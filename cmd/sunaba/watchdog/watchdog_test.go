package watchdog

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	notify "github.com/coreos/go-systemd/v22/daemon"
)

// systemd is a NOTIFY_SOCKET.
type systemd struct {
	*net.UnixConn
	t *testing.T
}

func listen(t *testing.T) systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return systemd{c, t}
}

// told is what comes within a time, "" for nothing.
func (s systemd) told(within time.Duration) string {
	s.t.Helper()
	if err := s.SetReadDeadline(time.Now().Add(within)); err != nil {
		s.t.Fatal(err)
	}
	buffer := make([]byte, 64)
	n, err := s.Read(buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// The watchdog is answered while the server lives, not while it fails or hangs, and again after.
func TestRun(t *testing.T) {
	s := listen(t)
	var state atomic.Value
	state.Store("lives")
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	const within = 300 * time.Millisecond
	go func() {
		defer close(ended)
		Run(ctx, Options{
			Within: within, Logger: slog.New(slog.DiscardHandler),
			Live: func(context.Context) error {
				switch state.Load() {
				case "fails":
					return errors.New("no answer")
				case "hangs":
					<-release
				}
				return nil
			},
			Notify: func(state string) error { _, err := notify.SdNotify(false, state); return err },
		})
	}()
	for range 3 {
		if got := s.told(20 * time.Second); got != "WATCHDOG=1" {
			t.Fatalf("a server that lives tells %q", got)
		}
	}
	for _, bad := range []string{"fails", "hangs"} {
		state.Store(bad)
		for s.told(within) != "" { // what was under way
		}
		if got := s.told(2 * within); got != "" {
			t.Errorf("a server that %s tells %q", bad, got)
		}
		state.Store("lives")
		if got := s.told(20 * time.Second); got != "WATCHDOG=1" {
			t.Errorf("a server that lives again tells %q", got)
		}
	}
	close(release)
	cancel()
	<-ended
}
