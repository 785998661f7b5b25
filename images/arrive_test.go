package images

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
		{"in no path", ocispec.ImageConfig{Entrypoint: []string{"tool"}, WorkingDir: "/work"}, ""},
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
		f, err := openEntrypoint(dir, tt.c)
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

// The module of a filesystem image is what its entrypoint names; whether that is
// a component is found out as for an artifact.
func TestArriveOfFilesystemImages(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	module := string(moduleBytes("m"))
	base := gzipLayer(t, file{name: "etc/"}, file{name: "etc/conf", content: "x"})
	wasm := ocispec.ImageConfig{Entrypoint: []string{"/app.wasm"}}
	r.image("two", "v1", "wasi/wasm", wasm, base, gzipLayer(t, file{name: "app.wasm", content: module}))
	r.image("link", "v1", "linux/wasm", wasm, gzipLayer(t, file{name: "m", content: module}, file{name: "app.wasm", link: "m"}))
	r.image("text", "v1", "wasip1/wasm", wasm, gzipLayer(t, file{name: "app.wasm", content: "#!/bin/sh"}))
	r.image("none", "v1", "wasip1/wasm", wasm, base)
	r.image("component", "v1", "wasip1/wasm", wasm, gzipLayer(t, file{name: "app.wasm", content: string(componentBytes())}))
	for _, repo := range []string{"two", "link", "text", "none"} {
		compiled := false
		progress := func(p Progress) { compiled = compiled || p.Phase == "compile" }
		if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/" + repo + ":v1", Progress: progress}); err != nil {
			t.Fatal(err)
		}
		if compiled != (repo == "two") {
			t.Errorf("%s: compiling was shown: %t", repo, compiled)
		}
	}
	if len(s.arrived) != 1 { // two and link hold the same module
		t.Errorf("arrived %q", s.arrived)
	}
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/component:v1"}); err == nil {
		t.Error("a component was accepted")
	}
}
