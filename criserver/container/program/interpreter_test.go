package program

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dynamic is a program for this machine's kernel that names an interpreter, of 64 or 32 bits as the
// machine is; change spoils it.
func dynamic(t *testing.T, interpreter string, change func(*elf.Header64, *elf.Prog64)) string {
	t.Helper()
	const size, prog = 64, 56
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machines()[0]), Phoff: size, Phentsize: prog, Phnum: 2}
	copy(h.Ident[:], elfHead(0)[:elf.EI_NIDENT])
	p := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: size + 2*prog, Filesz: uint64(len(interpreter) + 1)}
	if change != nil {
		change(&h, &p)
	}
	var out bytes.Buffer
	for _, part := range []any{h, elf.Prog64{Type: uint32(elf.PT_PHDR)}, p} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.String() + interpreter + "\x00"
}

// dynamic32 is one of 32 bits.
func dynamic32(t *testing.T, interpreter string) string {
	t.Helper()
	const size, prog = 52, 32
	h := elf.Header32{Type: uint16(elf.ET_EXEC), Machine: uint16(machines()[len(machines())-1]), Phoff: size, Phentsize: prog, Phnum: 1}
	copy(h.Ident[:], elfHead(0)[:elf.EI_NIDENT])
	h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32)
	var out bytes.Buffer
	for _, part := range []any{h, elf.Prog32{Type: uint32(elf.PT_INTERP), Off: size + prog, Filesz: uint32(len(interpreter) + 1)}} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.String() + interpreter + "\x00"
}

// A program whose interpreter is not in the image, or cannot be executed, is told of with that
// interpreter. What a volume may bring, or the kernel refuses for another reason, is left to the
// kernel. No file makes this read much, or follow links out of the image.
func TestInterpreterIsMissing(t *testing.T) {
	files := map[string]string{
		"bin/sh": elfHead(byte(machines()[0])), "lib/ld.so": elfHead(byte(machines()[0])), "data.so": "data", "text": "hello\n",
		"sh": "#!/bin/sh -e\n", "bash": "#! \t/bin/bash -e\necho\n", "dos": "#!/bin/sh\r\necho\r\n", "last": "#!/bin/none",
		"relative": "#!bin/none\n", "nothing": "#!\n", "long": "#!/" + strings.Repeat("x", 300), "nul": "#!/bin/none\x00x",
		"deep": "#!/bash\n", "loop": "#!/loop\n", "totext": "#!/text\n", "todata": "#!/data.so\n", "todir": "#!/bin\n", "topipe": "#!/pipe\n",
		"under": "#!/bin/sh/x\n", "vol": "#!/volume/sh\n", "vialink": "#!/link/sh\n", "link": "-> volume", "twice": "#!/one/sh\n",
		"one": "-> /volume/two", "volume/two": "-> /nowhere", "out": "#!/escape\n", "escape": "-> ../../../../../../../../../bin/sh",
		"circle": "-> /circle", "tocircle": "#!/circle\n",
		"there": dynamic(t, "/lib/ld.so", nil), "gone": dynamic(t, "/lib64/ld-linux.so.2", nil), "gone32": dynamic32(t, "/lib/ld-linux.so.2"),
		"nox": dynamic(t, "/data.so", nil), "toscript": dynamic(t, "/sh", nil), "relld": dynamic(t, "ld.so", nil), "noname": dynamic(t, "", nil),
		"viald":   "#!/gone\n",
		"headers": dynamic(t, "/none", func(h *elf.Header64, _ *elf.Prog64) { h.Phnum = math.MaxUint16 }),
		"entries": dynamic(t, "/none", func(h *elf.Header64, _ *elf.Prog64) { h.Phentsize = 1 }),
		"before":  dynamic(t, "/none", func(h *elf.Header64, _ *elf.Prog64) { h.Phoff = math.MaxUint64 }),
		"beyond":  dynamic(t, "/none", func(h *elf.Header64, _ *elf.Prog64) { h.Phoff = math.MaxInt64 - 5 }),
		"huge":    dynamic(t, "/none", func(_ *elf.Header64, p *elf.Prog64) { p.Filesz = 1 << 40 }),
		"minus":   dynamic(t, "/none", func(_ *elf.Header64, p *elf.Prog64) { p.Off = math.MaxUint64 }),
		"cut":     dynamic(t, "/none", nil)[:100],
		"static":  dynamic(t, "/none", func(_ *elf.Header64, p *elf.Prog64) { p.Type = uint32(elf.PT_LOAD) }),
	}
	for name, want := range map[string]string{
		"bash":   `command "/bash": "/bash" is a script for "/bin/bash", which does not exist in the image`,
		"dos":    `is a script for "/bin/sh\r", which does not exist in the image`,
		"last":   `is a script for "/bin/none", which does not exist in the image`,
		"nul":    `is a script for "/bin/none", which does not exist in the image`,
		"deep":   `is a script for "/bash", which is a script for "/bin/bash", which does not exist in the image`,
		"totext": `is a script for "/text", which is a text file without "#!"`,
		"todata": `is a script for "/data.so", which may not be executed by any user (mode 0644)`,
		"todir":  `is a script for "/bin", which is a directory`,
		"under":  `is a script for "/bin/sh/x", which does not exist in the image`,
		"gone":   `command "/gone": "/gone" is an ELF program with the interpreter "/lib64/ld-linux.so.2", which does not exist in the image`,
		"gone32": `is an ELF program with the interpreter "/lib/ld-linux.so.2", which does not exist in the image`,
		"nox":    `is an ELF program with the interpreter "/data.so", which may not be executed by any user (mode 0644)`,
		"viald":  `is a script for "/gone", which is an ELF program with the interpreter "/lib64/ld-linux.so.2", which does not exist`,
		"sh":     "", "there": "", "relative": "", "nothing": "", "long": "", "loop": "", "topipe": "", "vol": "", "vialink": "", "twice": "",
		"out": "", "tocircle": "", "toscript": "", "relld": "", "noname": "", "headers": "", "entries": "", "before": "", "beyond": "",
		"huge": "", "minus": "", "cut": "", "static": "",
	} {
		s := openSearch(t, []string{"/" + name}, []string{"/volume"}, files)
		if err := unix.Mkfifo(filepath.Join(s.Root, "pipe"), 0o755); err != nil {
			t.Fatal(err)
		}
		got := s.NotExecutable()
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		s.Others = func() bool { return true }
		if got := s.NotExecutable(); got != "" {
			t.Errorf("%s, and a kernel that executes other formats: %q", name, got)
		}
	}
}
