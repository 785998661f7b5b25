// Package binfmt says where Linux looks for a program, and what kind of program a file is by its
// first bytes.
package binfmt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// DefaultPath is searched when an environment has no PATH.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// WasmMagic are the first bytes of a WebAssembly file.
const WasmMagic = "\x00asm"

// Paths returns where a program may be, absolute, in the order in which an OCI runtime tries them.
// A name with a slash is a path from the working directory. Any other name is looked for in the
// folders of PATH, and last in the working directory. An absolute path stays as it is, because the
// kernel follows links before "..".
func Paths(name, cwd string, env []string) []string {
	cwd = path.Join("/", cwd)
	from := func(name string) string {
		if path.IsAbs(name) {
			return name
		}
		return path.Join(cwd, name)
	}
	if strings.Contains(name, "/") {
		return []string{from(name)}
	}
	search := DefaultPath
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	var all []string
	for _, dir := range append(strings.Split(search, ":"), cwd) {
		all = append(all, path.Join(from(dir), name))
	}
	return all
}

// IsWasm says of the first bytes of a file that it is WebAssembly.
func IsWasm(head []byte) bool { return bytes.HasPrefix(head, []byte(WasmMagic)) }

// WasmHeader is how many bytes of a WebAssembly file tell what it is: the magic number and a
// version.
const WasmHeader = 8

// IsComponent says of the first bytes of a file that it is a WebAssembly component.
func IsComponent(head []byte) bool { return len(head) >= WasmHeader && IsWasm(head) && head[6] == 1 }

// CheckWasm returns nil if the first bytes of a file are those of a core WebAssembly module or of a
// component.
//
// # Errors
//
// ErrInvalidArgument, with a text for the one who built the file.
func CheckWasm(head []byte) error {
	if IsComponent(head) {
		return nil
	}
	return CheckModule(head)
}

// CheckModule is CheckWasm for core modules alone.
func CheckModule(head []byte) error {
	switch {
	case len(head) < WasmHeader || !IsWasm(head):
		return fmt.Errorf("not a WebAssembly module: %w", errdefs.ErrInvalidArgument)
	case string(head[4:WasmHeader]) != "\x01\x00\x00\x00":
		return fmt.Errorf("WebAssembly binary version %x is not known: %w", head[4:WasmHeader], errdefs.ErrInvalidArgument)
	}
	return nil
}

// IsScript says of the first bytes of a file that it names its interpreter.
func IsScript(head []byte) bool { return bytes.HasPrefix(head, []byte("#!")) }

// maxScriptLine is how many bytes of a script the kernel looks at (fs/binfmt_script.c).
const maxScriptLine = 256

// ScriptInterpreter reads the interpreter of a script from its first bytes as the kernel does, ""
// without one.
func ScriptInterpreter(head []byte) string {
	if !IsScript(head) {
		return ""
	}
	head = head[:min(len(head), maxScriptLine)]
	line, _, ended := bytes.Cut(head[2:], []byte("\n"))
	line = bytes.TrimLeft(line, " \t")
	end := bytes.IndexAny(line, " \t\x00")
	if end < 0 {
		if !ended && len(head) == maxScriptLine {
			return "" // it may be longer
		}
		end = len(line)
	}
	return string(line[:end])
}

// Machine is the machine of an ELF program, by its first bytes.
func Machine(head []byte) (elf.Machine, bool) {
	const at = 18 // of e_machine in both classes
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) || len(head) < at+2 {
		return 0, false
	}
	return elf.Machine(order(head).Uint16(head[at:])), true
}

func order(head []byte) binary.ByteOrder {
	if len(head) > elf.EI_DATA && elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// maxHeaders bounds an ELF program's headers, as the kernel does (fs/binfmt_elf.c).
const maxHeaders = 64 << 10

// ELFInterpreter reads the name of the interpreter that the kernel loads beside an ELF program, ""
// without one or the kernel refuses the program by itself. head are the first bytes of f.
func ELFInterpreter(f io.ReaderAt, head []byte) string {
	found := segments(f, head, func(kind elf.ProgType, _ elf.ProgFlag) bool { return kind == elf.PT_INTERP })
	if len(found) == 0 || found[0].size < 2 || found[0].size > unix.PathMax {
		return ""
	}
	data := make([]byte, found[0].size)
	if _, err := f.ReadAt(data, int64(found[0].at)); err != nil || data[len(data)-1] != 0 {
		return ""
	}
	name, _, _ := strings.Cut(string(data), "\x00")
	return name
}

// extent is a part of a file, in bytes.
type extent struct{ at, size uint64 }

// segments returns where the wanted segments of an ELF program are in its file, in the order of its
// headers. head are the first bytes of f.
func segments(f io.ReaderAt, head []byte, wanted func(elf.ProgType, elf.ProgFlag) bool) (all []extent) {
	if len(head) <= elf.EI_CLASS {
		return nil
	}
	if elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS32 {
		var h elf.Header32
		if _, err := binary.Decode(head, order(head), &h); err != nil {
			return nil
		}
		for _, p := range programHeaders[elf.Prog32](f, order(head), int64(h.Phoff), h.Phentsize, h.Phnum) {
			if wanted(elf.ProgType(p.Type), elf.ProgFlag(p.Flags)) {
				all = append(all, extent{uint64(p.Off), uint64(p.Filesz)})
			}
		}
		return all
	}
	var h elf.Header64
	if _, err := binary.Decode(head, order(head), &h); err != nil {
		return nil
	}
	for _, p := range programHeaders[elf.Prog64](f, order(head), int64(h.Phoff), h.Phentsize, h.Phnum) {
		if wanted(elf.ProgType(p.Type), elf.ProgFlag(p.Flags)) {
			all = append(all, extent{p.Off, p.Filesz})
		}
	}
	return all
}

// programHeaders returns the headers of segments in either class, none if the kernel refuses them.
func programHeaders[P any](f io.ReaderAt, order binary.ByteOrder, at int64, entry, count uint16) []P {
	var one P
	if at < 0 || int(entry) != binary.Size(one) || int(count)*int(entry) > maxHeaders {
		return nil
	}
	all := make([]P, count)
	if err := binary.Read(io.NewSectionReader(f, at, maxHeaders), order, all); err != nil {
		return nil
	}
	return all
}
