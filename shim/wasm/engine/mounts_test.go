package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func expect(t *testing.T, b *bench, want ...string) {
	t.Helper()
	exit := b.runToEnd()
	out := b.stdout.all()
	for _, w := range want {
		if !strings.Contains(out, w+"\n") {
			t.Errorf("output has no %q:\n%s(exit %+v, stderr %q)", w, out, exit, b.stderr.all())
		}
	}
}

func TestMountsKeepTheirFlags(t *testing.T) {
	writable, readonly := openDir(t), openDir(t)
	b := newBench(t, "probe", "write:/rw/f", "write:/ro/f", "write:/tmp/f", "write:/rotmp/f", "write:/f",
		"read:/dev/null", "write:/dev/null", "list:/proc", "write:/cfg", "read:/cfg")
	if err := os.WriteFile(filepath.Join(readonly, "cfg"), []byte("config\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(readonly, "cfg"), 0o666); err != nil {
		t.Fatal(err)
	}
	b.bundle.Spec.Mounts = []specs.Mount{
		{Type: "proc", Source: "proc", Destination: "/proc"},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/dev", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Type: "bind", Source: writable, Destination: "/rw", Options: []string{"rbind", "rprivate", "rw"}},
		{Type: "bind", Source: readonly, Destination: "/ro", Options: []string{"rbind", "rslave", "ro", "rro"}},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/tmp", Options: []string{"size=1m"}},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/rotmp", Options: []string{"ro"}},
		{Type: "bind", Source: filepath.Join(readonly, "cfg"), Destination: "/cfg", Options: []string{"bind", "ro"}},
	}
	expect(t, b, "write:/rw/f=ok", "write:/ro/f=Read-only file system", "write:/tmp/f=ok", "write:/rotmp/f=Read-only file system",
		"write:/f=Permission denied", "read:/dev/null=", "write:/dev/null=ok", "list:/proc=No such file or directory",
		"write:/cfg=Read-only file system", "read:/cfg=config")
	if entries, err := os.ReadDir(writable); err != nil || len(entries) != 1 {
		t.Errorf("writable mount holds %v, %v", entries, err)
	}
}

func TestReadOnlyRoot(t *testing.T) {
	writable := openDir(t)
	b := newBench(t, "probe", "write:/f", "write:/data/f")
	if err := os.Chmod(b.bundle.Rootfs, 0o777); err != nil {
		t.Fatal(err)
	}
	b.bundle.Spec.Root.Readonly = true
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "bind", Source: writable, Destination: "/data", Options: []string{"rbind"}}}
	expect(t, b, "write:/f=Read-only file system", "write:/data/f=ok")
}

func TestWritableRoot(t *testing.T) {
	b := newBench(t, "probe", "write:/f", "read:/f")
	if err := os.Chmod(b.bundle.Rootfs, 0o777); err != nil {
		t.Fatal(err)
	}
	expect(t, b, "write:/f=ok", "read:/f=written")
}

// TestDeviceFilesOfImagesAreDead has a device node in the image that everybody may open.
func TestDeviceFilesOfImagesAreDead(t *testing.T) {
	b := newBench(t, "probe", "read:/zero")
	node := filepath.Join(b.bundle.Rootfs, "zero")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(node, 0o666); err != nil {
		t.Fatal(err)
	}
	expect(t, b, "read:/zero=Permission denied")
}

// artifact turns a bench into one of a wasm artifact: no root file system, the module by
// annotation.
func artifact(b *bench) {
	b.bundle.Facts.Module.Path = filepath.Join(b.bundle.Rootfs, "app.wasm")
	b.bundle.Rootfs = ""
}

func TestArtifact(t *testing.T) {
	writable := openDir(t)
	b := newBench(t, "probe", "list:/", "write:/f", "write:/data/f")
	artifact(b)
	b.bundle.Spec.Mounts = []specs.Mount{{Type: "bind", Source: writable, Destination: "/data", Options: []string{"rbind"}}}
	expect(t, b, "list:/=1", "write:/f=Read-only file system", "write:/data/f=ok")
}
