package guest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

func TestAnonymousCode(t *testing.T) {
	const maps = `00400000-00b4e000 r-xp 00000000 fe:00 123 /proc/self/exe
7f0000000000-7f0000002000 r-xp 00000000 00:00 0
7f0000003000-7f0000004000 r-xp 00000000 00:00 0 [anon:Go: code]
7f0000004000-7f0000005000 rwxp 00000000 00:00 0
7f0000005000-7f0000006000 r--p 00000000 00:00 0
7f0000006000-7f0000007000 r-xs 00000000 00:05 7 /dev/zero (deleted)
7f0000007000-7f0000008000 r-xp 00000000 00:00 0 /anon_hugepage (deleted)
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0 [vdso]

`
	got := anonymousCode(maps + "short\n")
	if unsafe.Sizeof(uintptr(0)) == 4 {
		t.Skip("these addresses are not of this machine")
	}
	want := []uint64{0x7f0000000000, 0x7f0000003000}
	if len(got) != len(want) || uint64(got[0].from) != want[0] || uint64(got[1].from) != want[1] {
		t.Errorf("got %x", got)
	}
}

// mapCode makes an executable private copy of code between two pages of something else, as neighbours are.
func mapCode(t *testing.T, code []byte) []byte {
	t.Helper()
	page := os.Getpagesize()
	m, err := unix.Mmap(-1, 0, len(code)+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	m[0], m[len(m)-1] = 1, 1
	copy(m[page:], code)
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		t.Fatal(err)
	}
	return m
}

// sharing is a process that is to share the code.
func sharing(t *testing.T, code []byte) *process {
	t.Helper()
	p := &process{}
	p.guest.cache = t.TempDir()
	p.config.Load.CodeSize = uint64(len(code))
	if err := os.WriteFile(filepath.Join(p.guest.cache, compile.CodeName), code, 0o644); err != nil {
		t.Fatal(err)
	}
	p.openMaps()
	return p
}

func TestShareLaysTheFileOverItsCopy(t *testing.T) {
	code := make([]byte, 128<<10)
	copy(code, bytes.Repeat([]byte("instructions "), 5000))
	m := mapCode(t, code)
	before := bytes.Clone(m)
	p := sharing(t, code)
	p.share()
	if !p.guest.shared || !bytes.Equal(m, before) {
		t.Fatalf("shared: %v", p.guest.shared)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || !strings.Contains(string(maps), filepath.Join(p.guest.cache, compile.CodeName)) {
		t.Errorf("the file is not mapped: %v", err)
	}
}

func TestShareLeavesAllElseAlone(t *testing.T) {
	code := bytes.Repeat([]byte("other bytes, "), 5000)
	code = append(code, make([]byte, 64<<10-len(code)%(64<<10))...)
	for name, change := range map[string]func(p *process){
		"no copy":     func(*process) {},
		"short file":  func(p *process) { p.config.Load.CodeSize += 64 << 10 },
		"no file":     func(p *process) { os.Remove(filepath.Join(p.guest.cache, compile.CodeName)) },
		"no mappings": func(p *process) { p.guest.maps.Close(); p.guest.maps = nil },
		"zeros": func(p *process) {
			os.WriteFile(filepath.Join(p.guest.cache, compile.CodeName), make([]byte, len(code)), 0o644)
		},
	} {
		p := sharing(t, code)
		change(p)
		p.share()
		if p.guest.shared {
			t.Errorf("%s: it was shared", name)
		}
	}
	for _, at := range []int{0, len(code) / 2, 64999} { // one byte differs
		other := bytes.Clone(code)
		other[at] ^= 1
		m := mapCode(t, other)
		before := bytes.Clone(m)
		p := sharing(t, code)
		p.share()
		if p.guest.shared || !bytes.Equal(m, before) {
			t.Errorf("byte %d differs and it was shared", at)
		}
	}
}

func TestImageIsMemory(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte{7}, wasmPage)
	if err := os.WriteFile(filepath.Join(dir, compile.ImageName), content, 0o644); err != nil {
		t.Fatal(err)
	}
	p := &process{}
	p.guest.cache, p.guest.memory = dir, newMemory(0, 0)
	p.config.Load = compile.Load{ImageAt: wasmPage, ImageSize: wasmPage}
	if err := p.openImage(); err != nil {
		t.Fatal(err)
	}
	linear := p.guest.memory.Allocate(0, 8*wasmPage)
	got := linear.Reallocate(3 * wasmPage)
	if p.guest.memory.imageErr != nil || !bytes.Equal(got[wasmPage:2*wasmPage], content) || got[0] != 0 || got[2*wasmPage] != 0 {
		t.Fatalf("memory is not the image: %v", p.guest.memory.imageErr)
	}
	got[wasmPage] = 9
	if grown := linear.Reallocate(4 * wasmPage); grown[wasmPage] != 9 || grown[wasmPage+1] != 7 || grown[3*wasmPage] != 0 {
		t.Error("growing changed the memory")
	}
	if after, err := os.ReadFile(filepath.Join(dir, compile.ImageName)); err != nil || !bytes.Equal(after, content) {
		t.Errorf("the file was written: %v", err)
	}
}

func TestImageThatDoesNotFitIsAnError(t *testing.T) {
	p := &process{}
	p.guest.cache, p.guest.memory = t.TempDir(), newMemory(0, 0)
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
	p.guest.memory.Allocate(0, 8*wasmPage).Reallocate(2 * wasmPage)
	if p.guest.memory.imageErr == nil {
		t.Error("an image beyond the memory was mapped")
	}
}

func TestNamesInStacks(t *testing.T) {
	p := &process{}
	p.guest.cache = t.TempDir()
	names := "\x04name\x00\x02\x01m" + "\x01\x0a\x02\x03\x02go\x0c\x03a.b"
	if err := os.WriteFile(filepath.Join(p.guest.cache, compile.NamesName), []byte(names), 0o644); err != nil {
		t.Fatal(err)
	}
	const stack = "wasm error: $3(\nwasm stack trace:\n\t.$3(i32,i64) i32\n\twasi_snapshot_preview1.fd_read(i32)\n\t.$12()\n\t.$13()"
	const want = "wasm error: $3(\nwasm stack trace:\n\tm.go(i32,i64) i32\n\twasi_snapshot_preview1.fd_read(i32)\n\tm.a.b()\n\tm.$13()"
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
