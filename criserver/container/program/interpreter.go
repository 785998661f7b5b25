package program

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
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/images/regular"
)

// Bounds of the kernel's: see fs/exec.c, fs/binfmt_script.c and fs/binfmt_elf.c of its sources.
const (
	maxInterpreters = 5        // scripts whose interpreters are scripts
	maxScriptLine   = 256      // bytes of a script that are looked at
	maxHeaders      = 64 << 10 // bytes of an ELF program's headers
	maxLinks        = 40       // links in a path
)

// uninterpreted says why the kernel cannot execute a script or an ELF program that is native: its interpreter is not in the image,
// or cannot be executed either. The kernel would say that the program itself does not exist. "" if that is not certain.
func (s Search) uninterpreted(p Program) string {
	text := ""
	for range maxInterpreters {
		name, script := p.interpreter(s.Root)
		if !path.IsAbs(name) || s.leadsAway(name) {
			return ""
		}
		if text != "" {
			text += ", which "
		}
		if script {
			text += fmt.Sprintf("is a script for %q", name)
		} else {
			text += fmt.Sprintf("is an ELF program with the interpreter %q", name)
		}
		next, err := LookUp(s.Root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			return text + ", which does not exist in the image"
		case err != nil:
			return ""
		}
		why, barred := next.barred()
		switch {
		case barred && why == "", !barred && !script: // the kernel does not look at the interpreter of an interpreter of ELF
			return ""
		case barred:
			return text + ", which " + why
		case !next.native():
			return text + ", which " + next.kind()
		}
		p = next
	}
	return ""
}

// interpreter returns the program that the kernel executes instead of a script, or that it loads beside an ELF program; "" if there
// is none, or the file is such that the kernel refuses it by itself.
func (p Program) interpreter(root string) (name string, script bool) {
	if bytes.HasPrefix(p.head, []byte("#!")) {
		return p.scriptInterpreter(), true
	}
	f, err := regular.OpenIn(root, p.Path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	var order binary.ByteOrder = binary.LittleEndian
	if len(p.head) > elf.EI_DATA && elf.Data(p.head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	offset, size, ok := p.elfInterpreter(f, order)
	if !ok || size < 2 || size > unix.PathMax {
		return "", false
	}
	data := make([]byte, size)
	if _, err := f.ReadAt(data, offset); err != nil || data[size-1] != 0 {
		return "", false
	}
	text, _, _ := strings.Cut(string(data), "\x00")
	return text, false
}

// scriptInterpreter reads the first line as the kernel does.
func (p Program) scriptInterpreter() string {
	head := p.head[:min(len(p.head), maxScriptLine)]
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

// elfInterpreter finds where an ELF program has its interpreter's name.
func (p Program) elfInterpreter(f io.ReaderAt, order binary.ByteOrder) (offset, size int64, ok bool) {
	read := func(from io.Reader, into any) bool { return binary.Read(from, order, into) == nil }
	if len(p.head) <= elf.EI_CLASS {
		return 0, 0, false
	}
	head := bytes.NewReader(p.head)
	if elf.Class(p.head[elf.EI_CLASS]) == elf.ELFCLASS32 {
		var h elf.Header32
		if !read(head, &h) || int(h.Phentsize) != binary.Size(elf.Prog32{}) || int(h.Phnum)*int(h.Phentsize) > maxHeaders {
			return 0, 0, false
		}
		all := make([]elf.Prog32, h.Phnum)
		if !read(io.NewSectionReader(f, int64(h.Phoff), maxHeaders), all) {
			return 0, 0, false
		}
		for _, one := range all {
			if elf.ProgType(one.Type) == elf.PT_INTERP {
				return int64(one.Off), int64(one.Filesz), true
			}
		}
		return 0, 0, false
	}
	var h elf.Header64
	if !read(head, &h) || int(h.Phentsize) != binary.Size(elf.Prog64{}) || int(h.Phnum)*int(h.Phentsize) > maxHeaders || int64(h.Phoff) < 0 {
		return 0, 0, false
	}
	all := make([]elf.Prog64, h.Phnum)
	if !read(io.NewSectionReader(f, int64(h.Phoff), maxHeaders), all) {
		return 0, 0, false
	}
	for _, one := range all {
		if elf.ProgType(one.Type) == elf.PT_INTERP {
			return int64(one.Off), int64(one.Filesz), true
		}
	}
	return 0, 0, false
}

// leadsAway says whether a path leads, by itself or by its links, to where the container sees something else than the image. It is
// for what is missing in the image: a mount may have it.
func (s Search) leadsAway(name string) bool {
	at, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if at = path.Join(at, part); s.hidden(at) { // part may be empty, "." or ".."
			return true
		}
		to, err := os.Readlink(filepath.Join(s.Root, at)) // at is free of links but for its last name
		if err != nil {
			continue
		}
		if links++; links > maxLinks {
			return true
		}
		if rest = append(strings.Split(to, "/"), rest...); path.IsAbs(to) {
			at = "/"
		} else {
			at = path.Dir(at)
		}
	}
	return s.hidden(at)
}
