package build

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestResolveSubPath(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{"data/deep", "data/..dots"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "data/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"current": "data/deep", "absolute": "/data/deep", "up": "../../../../../data/deep", "out": outside, "loop": "loop",
		"magic": "/proc/self/root" + outside,
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		sub, want string
		is        func(error) bool
	}{
		{"data", "data", nil},
		{"data/deep", "data/deep", nil},
		{"data/..dots", "data/..dots", nil},
		{"data/file", "data/file", nil},
		{"current", "data/deep", nil},
		{"absolute", "data/deep", nil},
		{"up", "data/deep", nil}, // as in a container with that root: its parent is itself
		{"out", "", errdefs.IsNotFound},
		{"magic", "", errdefs.IsNotFound},
		{"data/missing", "", errdefs.IsNotFound},
		{"data/file/below", "", errdefs.IsNotFound},
		{"loop", "", errdefs.IsInvalidArgument},
		{"pipe", "", errdefs.IsInvalidArgument},
	} {
		got, err := resolveSubPath(root, tt.sub)
		if got != tt.want || (tt.is == nil) != (err == nil) || tt.is != nil && !tt.is(err) {
			t.Errorf("%q: %q, %v; want %q", tt.sub, got, err, tt.want)
		}
	}
}
