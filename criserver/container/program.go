package container

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"unicode/utf8"

	continuity "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/images/regular"
)

// headSize is how much of a program's file is looked at.
const headSize = 512

// program is a file of the image that a command names.
type program struct {
	real string // its path below the root, links resolved
	mode fs.FileMode
	head []byte // of a regular file
}

func (p program) wasm() bool { return bytes.HasPrefix(p.head, []byte("\x00asm")) }

// lookUp reads what a name stands for in a root, as the container sees it: no link leads out.
func lookUp(root, name string) (p program, err error) {
	f, err := regular.OpenIn(root, name)
	if errdefs.IsInvalidArgument(err) {
		return irregular(root, name)
	}
	if err != nil {
		return p, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return p, err
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return p, err
	}
	p = program{real: below(root, at), mode: info.Mode(), head: make([]byte, headSize)}
	n, err := io.ReadFull(f, p.head)
	p.head = p.head[:n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return p, err
}

// irregular is lookUp for what is no regular file.
func irregular(root, name string) (program, error) {
	at, err := continuity.RootPath(root, name)
	if err != nil {
		return program{}, err
	}
	info, err := os.Lstat(at)
	if err != nil {
		return program{}, err
	}
	return program{real: below(root, at), mode: info.Mode()}, nil
}

// below is a path of the host as the root's processes see it.
func below(root, at string) string { return path.Join("/", strings.TrimPrefix(at, root)) }

// firstProgram is the first of a container's possible programs that is a regular file.
func firstProgram(root string, names []string) (program, bool) {
	for _, name := range names {
		if p, err := lookUp(root, name); err == nil && p.mode.IsRegular() {
			return p, true
		}
	}
	return program{}, false
}

// isGuest says whether the first of a container's possible programs that is there begins as a WebAssembly module does.
func isGuest(root string, names []string) bool {
	p, _ := firstProgram(root, names)
	return p.wasm()
}

// unstartable says why nothing can execute a container's program, "" if that is not certain before it is tried: what is in
// a volume is not looked at, and what the runtime itself finds out it says itself.
func (b *builder) unstartable(root string, in *spec.Input) string {
	names := spec.Programs(*in)
	root, err := filepath.EvalSymlinks(root)
	if err != nil || len(names) == 0 || in.Guest {
		return ""
	}
	s := search{root: root, names: names, covered: b.covered(root, in), others: facts.RunsOtherFormats}
	if isWasm(b.image) {
		return s.notWasm(b.rec.ImagePlatform)
	}
	return s.notExecutable()
}

// search looks for the program of a command.
type search struct {
	root    string
	names   []string    // where it may be, see spec.Programs
	covered []string    // folders and files of the image that the container does not see
	others  func() bool // see facts.RunsOtherFormats
}

// covered are the places at which the container mounts something else.
func (b *builder) covered(root string, in *spec.Input) []string {
	var all []string
	add := func(at string) {
		at = path.Join("/", at)
		all = append(all, at)
		if p, err := lookUp(root, at); err == nil {
			all = append(all, p.real)
		}
	}
	for _, m := range b.config().GetMounts() {
		add(m.GetContainerPath())
	}
	for at := range in.Volumes {
		add(at)
	}
	return all
}

// hidden says whether the container sees something else at one of these paths.
func (s search) hidden(paths ...string) bool {
	return slices.ContainsFunc(paths, func(at string) bool {
		return slices.ContainsFunc(s.covered, func(over string) bool {
			return over == "/" || at == over || strings.HasPrefix(at, over+"/")
		})
	})
}

// command is how the container calls its program, and single says that this is a path.
func (s search) command() (name string, single bool) {
	if len(s.names) == 1 {
		return s.names[0], true
	}
	return path.Base(s.names[0]), false
}

// notWasm is about an image whose platform is WebAssembly and whose program is no module.
func (s search) notWasm(platform string) string {
	name, single := s.command()
	if s.hidden(s.names...) {
		return ""
	}
	p, ok := firstProgram(s.root, s.names)
	switch {
	case ok && s.hidden(p.real):
		return ""
	case ok:
		return fmt.Sprintf("command %q: the image is for %s, and %q is not a WebAssembly module: it %s", name, platform, p.real, p.kind())
	case single:
		if p, err := lookUp(s.root, name); err == nil {
			return fmt.Sprintf("command %q: %s", name, p.kind())
		}
		return fmt.Sprintf("command %q: it does not exist in the image", name)
	}
	return fmt.Sprintf("command %q: it does not exist in the image: looked in PATH %q and in the working directory",
		name, strings.Join(s.folders(), ":"))
}

// folders are those of PATH.
func (s search) folders() []string {
	var all []string
	for _, name := range s.names[:len(s.names)-1] { // the last is the working directory
		all = append(all, path.Dir(name))
	}
	return all
}

// notExecutable is about a Linux container whose program is there and is none.
func (s search) notExecutable() string {
	name, single := s.command()
	for _, at := range s.names {
		p, err := lookUp(s.root, at)
		if s.hidden(at, p.real) {
			return ""
		}
		if err != nil || !single && (!p.mode.IsRegular() || p.mode&0o111 == 0) {
			continue // a name is looked for in the next folder
		}
		why, barred := p.barred()
		switch {
		case barred:
		case p.native():
			why = s.uninterpreted(p)
		default:
			why = p.kind()
		}
		if why == "" || !barred && s.others() {
			return ""
		}
		return fmt.Sprintf("command %q: %q %s", name, p.real, why)
	}
	return ""
}

// barred says that nobody can execute a file, whatever it holds, and why; "" if the runtime says that better.
func (p program) barred() (why string, barred bool) {
	switch {
	case p.mode.IsDir():
		return p.kind(), true
	case !p.mode.IsRegular():
		return "", true
	case p.mode&0o111 == 0:
		return fmt.Sprintf("may be executed by nobody (mode %04o)", p.mode.Perm()), true
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

// machine is that of an ELF program.
func (p program) machine() (elf.Machine, bool) {
	const at = 18 // of e_machine in both classes
	if !bytes.HasPrefix(p.head, []byte(elf.ELFMAG)) || len(p.head) < at+2 {
		return 0, false
	}
	if elf.Data(p.head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		return elf.Machine(binary.BigEndian.Uint16(p.head[at:])), true
	}
	return elf.Machine(binary.LittleEndian.Uint16(p.head[at:])), true
}

// native says whether the kernel by itself may be able to execute a file.
func (p program) native() bool {
	if bytes.HasPrefix(p.head, []byte("#!")) {
		return true
	}
	m, ok := p.machine()
	return ok && (len(machines()) == 0 || slices.Contains(machines(), m))
}

// kind says what a file is: "is a directory".
func (p program) kind() string {
	if m, ok := p.machine(); ok {
		return "is an ELF program for " + machineName(m)
	}
	switch {
	case p.mode.IsDir():
		return "is a directory"
	case !p.mode.IsRegular():
		return "is not a regular file"
	case len(p.head) == 0:
		return "is empty"
	case bytes.HasPrefix(p.head, []byte("#!")):
		line, _, _ := bytes.Cut(p.head[2:], []byte("\n"))
		return fmt.Sprintf("is a script for %q", strings.TrimSpace(string(line)))
	case p.wasm():
		return "is a WebAssembly module"
	case p.text():
		return `is a text file without "#!"`
	}
	return "is neither an ELF program nor a script"
}

// text says whether a file begins as text does; the head may end within a character.
func (p program) text() bool {
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
