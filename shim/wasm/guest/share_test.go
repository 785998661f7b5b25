package guest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/linear"
)

const wasmPage = 64 << 10

func TestCodeIsMapped(t *testing.T) {
	want := bytes.Repeat([]byte{0xcc}, 2*wasmPage)
	name := filepath.Join(t.TempDir(), compile.CodeName)
	if err := os.WriteFile(name, want, 0o644); err != nil {
		t.Fatal(err)
	}
	code, shared, err := mapCode(name, wasmPage)
	if err != nil || !shared || !bytes.Equal(code, want[:wasmPage]) {
		t.Fatalf("shared: %v, %v", shared, err)
	}
	if _, _, err := mapCode(name, 3*wasmPage); err == nil {
		t.Error("a short file was mapped")
	}
}

// TestCodeOfAMountWithoutExecution copies what it may not map.
func TestCodeOfAMountWithoutExecution(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("not root: it mounts")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	want := bytes.Repeat([]byte{0xcc}, wasmPage)
	name := filepath.Join(dir, compile.CodeName)
	if err := os.WriteFile(name, want, 0o644); err != nil {
		t.Fatal(err)
	}
	code, shared, err := mapCode(name, wasmPage)
	if err != nil || shared || !bytes.Equal(code, want) {
		t.Fatalf("shared: %v, %v", shared, err)
	}
	if err := unix.Mprotect(code, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		t.Error(err)
	}
}

func TestImageIsMemory(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte{7}, wasmPage)
	if err := os.WriteFile(filepath.Join(dir, compile.ImageName), content, 0o644); err != nil {
		t.Fatal(err)
	}
	p := &process{}
	p.guest.cache, p.guest.memory = dir, linear.New(linear.Options{})
	p.config.Load = compile.Load{ImageAt: wasmPage, ImageSize: wasmPage}
	if err := p.openImage(); err != nil {
		t.Fatal(err)
	}
	memory := p.guest.memory.Allocate(0, 8*wasmPage)
	got := memory.Reallocate(3 * wasmPage)
	if !bytes.Equal(got[wasmPage:2*wasmPage], content) || got[0] != 0 || got[2*wasmPage] != 0 {
		t.Fatal("memory is not the image")
	}
	got[wasmPage] = 9
	if grown := memory.Reallocate(4 * wasmPage); grown[wasmPage] != 9 || grown[wasmPage+1] != 7 || grown[3*wasmPage] != 0 {
		t.Error("growing changed the memory")
	}
	if after, err := os.ReadFile(filepath.Join(dir, compile.ImageName)); err != nil || !bytes.Equal(after, content) {
		t.Errorf("the file was written: %v", err)
	}
}

func TestImageThatDoesNotFitIsAnError(t *testing.T) {
	p := &process{}
	p.guest.cache, p.guest.memory = t.TempDir(), linear.New(linear.Options{})
	p.config.Load = compile.Load{ImageAt: 2 * wasmPage, ImageSize: wasmPage}
	if err := p.openImage(); err == nil {
		t.Error("an image that is not there was opened")
	}
	name := filepath.Join(p.guest.cache, compile.ImageName)
	if err := os.WriteFile(name, make([]byte, wasmPage-1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := p.openImage(); err == nil {
		t.Error("a short image was opened")
	}
	if err := os.Truncate(name, wasmPage); err != nil {
		t.Fatal(err)
	}
	if err := p.openImage(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err, ok := recover().(*linear.StartError); !ok || !err.Image {
			t.Errorf("an image beyond the memory: %v", err)
		}
	}()
	p.guest.memory.Allocate(0, 8*wasmPage).Reallocate(2 * wasmPage)
	t.Error("an image beyond the memory was mapped")
}

func TestNamesInStacks(t *testing.T) {
	p := &process{}
	p.guest.cache = t.TempDir()
	names := "\x04name\x00\x02\x01m" + "\x01\x2c\x03\x03\x02go\x0c\x03a.b\x0e\x20" + "_ZN3app4work17h0123456789abcdefE"
	if err := os.WriteFile(filepath.Join(p.guest.cache, compile.NamesName), []byte(names), 0o644); err != nil {
		t.Fatal(err)
	}
	const stack = "wasm error: $3(\nwasm stack trace:\n\t.$3(i32,i64) i32\n\twasi_snapshot_preview1.fd_read(i32)\n\t.$12()\n\t.$13()\n\t.$14(i32)"
	const want = "wasm error: $3(\nwasm stack trace:\n\tm.go(i32,i64) i32\n\twasi_snapshot_preview1.fd_read(i32)\n\tm.a.b()\n\tm.$13()\n\tm.app::work(i32)"
	if got := p.name(stack); got != stack {
		t.Errorf("names that are in the module: %q", got)
	}
	p.config.Load.Names = true
	if got := p.name(stack); got != want {
		t.Errorf("got %q", got)
	}
	os.Remove(filepath.Join(p.guest.cache, compile.NamesName))
	if got := p.name(stack); got != stack {
		t.Errorf("without the file: %q", got)
	}
}
