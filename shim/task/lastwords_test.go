package task

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestMessageFile(t *testing.T) {
	for what, c := range map[string]struct {
		mounts []specs.Mount
		want   string
	}{
		"none":             {nil, ""},
		"another":          {[]specs.Mount{{Destination: "/dev/termination", Source: "/a"}}, ""},
		"the kubelet's":    {[]specs.Mount{{Destination: "/dev/termination-log", Source: "/a", Options: []string{"rbind", "rw"}}}, "/a"},
		"one to read only": {[]specs.Mount{{Destination: "/dev/termination-log", Source: "/a", Options: []string{"rbind", "ro"}}}, ""},
		"the last of two":  {[]specs.Mount{{Destination: "/dev/termination-log", Source: "/a"}, {Destination: "/dev/termination-log/", Source: "/b"}}, "/b"},
	} {
		if got := messageFile(&specs.Spec{Mounts: c.mounts}); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// Only an empty regular file is written, and no link is followed.
func TestLeaveMessage(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"empty": "", "full": "mine", "target": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("target", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(at("fifo"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	long := "a" + strings.Repeat("ü", maxTermination) // its 4096th byte is half of a letter
	for name, refused := range map[string]bool{"empty": false, "full": false, "link": true, "fifo": false, "missing": true} {
		if err := leaveMessage(at(name), long); (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{"empty": long[:maxTermination-1], "full": "mine", "target": ""} {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != want {
			t.Errorf("%s has %d bytes (%v), want %d", name, len(got), err, len(want))
		}
	}
	if n, err := reader.Read(make([]byte, 1)); n != 0 {
		t.Errorf("the pipe was written: %d (%v)", n, err)
	}
	if _, err := os.Lstat(at("missing")); !os.IsNotExist(err) {
		t.Errorf("missing was made: %v", err)
	}
}
