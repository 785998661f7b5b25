package registry

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// A pipe, a device or a file without end in the place of a configured one holds up no pull, and fills no memory.
func TestConfiguredFilesMustBeRegular(t *testing.T) {
	for kind, place := range map[string]func(file string) error{
		"pipe":   func(file string) error { return unix.Mkfifo(file, 0o600) },
		"device": func(file string) error { return os.Symlink("/dev/zero", file) },
		"huge": func(file string) error {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(file, 1<<40)
		},
	} {
		file := filepath.Join(t.TempDir(), "hosts.toml")
		if err := place(file); err != nil {
			t.Fatal(err)
		}
		for what, read := range map[string]func() error{
			"hosts.toml":  func() error { _, err := readHostDir(filepath.Dir(file)); return err },
			"authority":   func() error { _, err := tlsFiles{ca: []string{file}}.config(); return err },
			"certificate": func() error { _, err := tlsFiles{client: [][2]string{{file, ""}}}.config(); return err },
		} {
			err := inTime(t, read)
			if !errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s as %s: %v", kind, what, err)
			}
		}
		var log bytes.Buffer
		c := New(Options{CredentialsFile: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err := inTime(t, func() error { c.openKeychain(); return nil }); err != nil || !strings.Contains(log.String(), "failed to read the node's registry credentials") {
			t.Errorf("%s as credentials: %v, log %s", kind, err, &log)
		}
		c.Close()
	}
}

// inTime calls f and does not wait for it for ever.
func inTime(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it waits")
		return nil
	}
}
