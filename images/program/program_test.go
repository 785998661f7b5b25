package program

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

func TestOpenEntrypoint(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"bin", "work/sub"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"app", "bin/tool", "work/app", "work/sub/app"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"near": "bin/tool", "out": "../../../../etc/passwd", "abs": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	path := []string{"PATH=/sbin:/bin"}
	tests := []struct {
		name string
		c    ocispec.ImageConfig
		want string // "" for none
	}{
		{"absolute", ocispec.ImageConfig{Entrypoint: []string{"/app"}, WorkingDir: "/work"}, "app"},
		{"from Cmd", ocispec.ImageConfig{Cmd: []string{"/app", "x"}}, "app"},
		{"relative", ocispec.ImageConfig{Entrypoint: []string{"sub/app"}, WorkingDir: "/work"}, "work/sub/app"},
		{"in the working directory", ocispec.ImageConfig{Entrypoint: []string{"app"}, WorkingDir: "/work"}, "work/app"},
		{"in the path", ocispec.ImageConfig{Entrypoint: []string{"tool"}, WorkingDir: "/work", Env: path}, "bin/tool"},
		{"in the default path", ocispec.ImageConfig{Entrypoint: []string{"tool"}, WorkingDir: "/work"}, "bin/tool"},
		{"in no path", ocispec.ImageConfig{Entrypoint: []string{"tool"}, WorkingDir: "/work", Env: []string{"PATH=/sbin"}}, ""},
		{"in the path before the working directory", ocispec.ImageConfig{Entrypoint: []string{"app"}, WorkingDir: "/work", Env: []string{"PATH=/"}}, "app"},
		{"through a symlink", ocispec.ImageConfig{Entrypoint: []string{"/near"}}, "bin/tool"},
		{"up and out", ocispec.ImageConfig{Entrypoint: []string{"/../../../../etc/passwd"}}, ""},
		{"a symlink out", ocispec.ImageConfig{Entrypoint: []string{"/out"}}, ""},
		{"an absolute symlink out", ocispec.ImageConfig{Entrypoint: []string{"/abs"}}, ""},
		{"a pipe", ocispec.ImageConfig{Entrypoint: []string{"/pipe"}}, ""},
		{"a directory", ocispec.ImageConfig{Entrypoint: []string{"/work"}}, ""},
		{"none", ocispec.ImageConfig{}, ""},
		{"an empty one", ocispec.ImageConfig{Entrypoint: []string{""}}, ""},
	}
	for _, tt := range tests {
		f, err := OpenEntrypoint(dir, tt.c)
		if err != nil {
			if tt.want != "" {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		got, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: opened %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}
