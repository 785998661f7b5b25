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

	"github.com/sunaba-project/sunaba/images/registry/credentials"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
)

// A pipe, a device or a file without end in the place of a configured one holds up no pull, and
// fills no memory.
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
			"hosts.toml": func() error {
				dir := filepath.Dir(file)
				_, err := hosts.Sources{Dir: filepath.Dir(dir)}.For(filepath.Base(dir))
				return err
			},
			"authority":   func() error { _, err := hosts.TLS{CA: []string{file}}.Config(); return err },
			"certificate": func() error { _, err := hosts.TLS{Client: [][2]string{{file, ""}}}.Config(); return err },
		} {
			err := inTime(t, read)
			if !errdefs.IsFailedPrecondition(err) || errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s as %s: %v", kind, what, err)
			}
		}
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		if err := inTime(t, func() error { credentials.Open(file, logger); return nil }); err != nil || !strings.Contains(log.String(), "failed to read the node's registry credentials") {
			t.Errorf("%s as credentials: %v, log %s", kind, err, &log)
		}
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
