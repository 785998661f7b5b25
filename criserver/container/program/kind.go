package program

import (
	"bytes"
	"debug/elf"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sunaba-project/sunaba/host/binfmt"
)

// barred says that nobody can execute a file, whatever it holds, and why; "" if the runtime says
// that better.
func (p Program) barred() (why string, barred bool) {
	switch {
	case p.Mode.IsDir():
		return p.kind(), true
	case !p.Mode.IsRegular():
		return "", true
	case p.Mode&0o111 == 0:
		return fmt.Sprintf("may not be executed by any user (mode %04o)", p.Mode.Perm()), true
	}
	return "", false
}

// machines are those whose programs a kernel executes, the machine's own first.
func machines() []elf.Machine {
	switch goruntime.GOARCH {
	case "amd64":
		return []elf.Machine{elf.EM_X86_64, elf.EM_386}
	case "arm64":
		return []elf.Machine{elf.EM_AARCH64, elf.EM_ARM}
	case "arm":
		return []elf.Machine{elf.EM_ARM}
	case "riscv64":
		return []elf.Machine{elf.EM_RISCV}
	}
	return nil
}

// native says whether the kernel by itself may be able to execute a file.
func (p Program) native() bool {
	if binfmt.IsScript(p.head) {
		return true
	}
	m, ok := binfmt.Machine(p.head)
	return ok && (len(machines()) == 0 || slices.Contains(machines(), m))
}

// kind says what a file is: "is a directory".
func (p Program) kind() string {
	if m, ok := binfmt.Machine(p.head); ok {
		return "is an ELF program for " + machineName(m)
	}
	switch {
	case p.Mode.IsDir():
		return "is a directory"
	case !p.Mode.IsRegular():
		return "is not a regular file"
	case len(p.head) == 0:
		return "is empty"
	case binfmt.IsScript(p.head):
		line, _, _ := bytes.Cut(p.head[2:], []byte("\n"))
		return fmt.Sprintf("is a script for %q", strings.TrimSpace(string(line)))
	case p.Wasm():
		return "is a WebAssembly module"
	case p.text():
		return `is a text file without "#!"`
	}
	return "is neither an ELF program nor a script"
}

// text says whether a file starts as text does; the head may end within a character.
func (p Program) text() bool {
	head := p.head
	for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head); i++ {
		head = head[:len(head)-1]
	}
	return len(head) > 0 && !bytes.ContainsFunc(head, func(r rune) bool {
		return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r)
	}) && utf8.Valid(head)
}

// machineName is a machine's name as images have it, where they have one.
func machineName(m elf.Machine) string {
	names := map[elf.Machine]string{
		elf.EM_X86_64: "amd64", elf.EM_386: "386", elf.EM_AARCH64: "arm64", elf.EM_ARM: "arm", elf.EM_RISCV: "riscv64",
		elf.EM_PPC64: "ppc64le", elf.EM_S390: "s390x", elf.EM_LOONGARCH: "loong64",
	}
	if name, ok := names[m]; ok {
		return name
	}
	return m.String()
}
