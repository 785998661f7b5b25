package binfmt

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/tests/binaries"
)

// A program's modules are those that the standard library reads.
func TestGoModules(t *testing.T) {
	folder := t.TempDir()
	if err := binaries.Provide(folder, binaries.Sunaba, binaries.Shim); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{self, filepath.Join(folder, binaries.Sunaba), filepath.Join(folder, binaries.Shim)} {
		want, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want.GoVersion = ""
		got, err := GoModules(file)
		if err != nil || len(got.Deps) == 0 && file != self {
			t.Fatalf("%s: %+v, %v", file, got, err)
		}
		if got.GoVersion = ""; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", file, got, want)
		}
	}
}

// program is an ELF program of 64 bits that has data as its last segment, after one without any.
func program(t *testing.T, data []byte, flags elf.ProgFlag) []byte {
	t.Helper()
	h, first := elf.Header64{Phnum: 2}, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_W)}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	h.Phoff, h.Phentsize = uint64(binary.Size(h)), uint16(binary.Size(first))
	last := first
	last.Flags, last.Filesz = uint32(flags), uint64(len(data))
	last.Off = h.Phoff + 2*uint64(h.Phentsize)
	var file bytes.Buffer
	for _, part := range []any{h, first, last, data} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// program32 is an ELF program of 32 bits with data as its writable segment, after one that is not.
func program32(t *testing.T, data []byte, order binary.ByteOrder, endian elf.Data) []byte {
	t.Helper()
	h, text := elf.Header32{Phnum: 2}, elf.Prog32{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: 1 << 10}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS32), byte(endian)
	h.Phoff, h.Phentsize = uint32(binary.Size(h)), uint16(binary.Size(text))
	last := text
	last.Flags, last.Filesz, last.Off = uint32(elf.PF_R|elf.PF_W), uint32(len(data)), 1<<10
	var file bytes.Buffer
	for _, part := range []any{h, text, last} {
		if err := binary.Write(&file, order, part); err != nil {
			t.Fatal(err)
		}
	}
	return append(append(file.Bytes(), make([]byte, 1<<10-file.Len())...), data...)
}

// at8 is a program whose writable segment starts 8 bytes before an aligned address, as linkers of C
// make them.
func at8(t *testing.T, data []byte) []byte {
	t.Helper()
	file := program(t, append(make([]byte, 16), data...), elf.PF_W)
	var h elf.Header64
	last := file[binary.Size(h)+binary.Size(elf.Prog64{}):]
	const off, size = 8, 32 // of an elf.Prog64
	binary.LittleEndian.PutUint64(last[off:], binary.LittleEndian.Uint64(last[off:])+8)
	binary.LittleEndian.PutUint64(last[size:], binary.LittleEndian.Uint64(last[size:])-8)
	return file
}

func TestGoModulesOfWhatDoesNotTell(t *testing.T) {
	magic := []byte(goBuildMagic + "\x08\x02")
	whole := append(bytes.Clone(magic), make([]byte, 16)...)
	modules := strings.Repeat("x", goBuildFrame) + "path\tit\n" + strings.Repeat("x", goBuildFrame)
	telling := append(bytes.Clone(whole), "\x01x"+string(byte(len(modules)))+modules...)
	short := program(t, telling, elf.PF_R|elf.PF_W)
	for name, data := range map[string][]byte{
		"no file's content": nil, "text": []byte("hello"), "no program": telling,
		"not writable": program(t, telling, elf.PF_R|elf.PF_X), "short": short[:len(short)-1],
	} {
		tellsNothing(t, name, data)
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "magic alone": magic, "header alone": whole,
		"unaligned":     append([]byte("x"), telling...),
		"endless":       append(bytes.Clone(whole), bytes.Repeat([]byte{0xff}, 64)...),
		"long string":   append(bytes.Clone(whole), 0xff, 0x7f, 'x'),
		"other format":  append([]byte(goBuildMagic+"\x08\x00"), make([]byte, 64)...),
		"no modules":    append(bytes.Clone(whole), 1, 'x', 2, 'x', 'x'),
		"many of magic": bytes.Repeat([]byte(goBuildMagic+"  "), 1000),
	} {
		tellsNothing(t, name, program(t, data, elf.PF_R|elf.PF_W))
	}
	if _, err := GoModules(filepath.Join(t.TempDir(), "none")); !errdefs.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
	twice := append([]byte(goBuildMagic+"  "+strings.Repeat("x", goBuildAlign)), telling...)
	for name, data := range map[string][]byte{
		"whole": program(t, telling, elf.PF_R|elf.PF_W), "after a magic": program(t, twice, elf.PF_W), "at 8": at8(t, telling),
		"of 32 bits": program32(t, telling, binary.LittleEndian, elf.ELFDATA2LSB), "of 32 bits, big-endian": program32(t, telling, binary.BigEndian, elf.ELFDATA2MSB),
	} {
		file := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := GoModules(file); err != nil || info.Path != "it" {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
}

func tellsNothing(t *testing.T, name string, data []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := GoModules(file); !errdefs.IsNotFound(err) {
		t.Errorf("%s: %v, %v", name, info, err)
	}
}
