package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// elfHead is the beginning of a little-endian ELF program of 64 bits.
func elfHead(machine byte) string {
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00" + string([]byte{machine, 0})
}

func openSearch(t *testing.T, names, covered []string, files map[string]string) Search {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o755)
		if strings.HasPrefix(content, "data") {
			mode = 0o644
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	return Search{Root: root, Names: names, Covered: covered, Others: func() bool { return false }}
}

func TestNotExecutable(t *testing.T) {
	native := elfHead(byte(machines()[0]))
	foreign, arch := elfHead(0xb7), "arm64"
	if machineName(machines()[0]) == "arm64" {
		foreign, arch = elfHead(0x3e), "amd64"
	}
	files := map[string]string{
		"text": "hello\n", "empty": "", "data": "data", "script": "#!/bin/sh\n", "bin/native": native, "foreign": foreign,
		"binary": "\x01\x02\x03", "umlaut": strings.Repeat("ü", headSize), "a/tool": "data", "b/tool": native, "c/tool": "text",
		"link": "-> /text", "out": "-> ../../../../../../text", "into": "-> /volume/tool", "volume/tool": "text", "dir/x": "x", "bin/sh": native,
	}
	for _, tt := range []struct {
		names   string
		covered string
		want    string // "" = it may be executed, or its runtime says why not
	}{
		{"/text", "", `command "/text": "/text" is a text file without "#!"`},
		{"/umlaut", "", `is a text file without "#!"`},
		{"/empty", "", "is empty"},
		{"/data", "", "may not be executed by any user (mode 0644)"},
		{"/dir", "", "is a directory"},
		{"/binary", "", "is neither an ELF program nor a script"},
		{"/foreign", "", "is an ELF program for " + arch},
		{"/link", "", `command "/link": "/text" is a text file`},
		{"/out", "", `"/text" is a text file`},
		{"/script", "", ""},
		{"/bin/native", "", ""},
		{"/missing", "", ""},
		{"/text", "/text", ""},
		{"/dir/x", "/dir", ""},
		{"/into", "/volume", ""},
		{"/text", "/", ""},
		{"/a/tool /b/tool /tool", "", ""},
		{"/a/tool /c/tool /tool", "", `command "tool": "/c/tool" is a text file`},
		{"/a/tool /c/tool /tool", "/c", ""},
		{"/c/tool /b/tool /tool", "", `"/c/tool" is a text file`},
		{"/volume/tool /b/tool /tool", "/volume", ""},
	} {
		var covered []string
		if tt.covered != "" {
			covered = []string{tt.covered}
		}
		got := openSearch(t, strings.Fields(tt.names), covered, files).NotExecutable()
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s, %q covered: %q, want %q", tt.names, tt.covered, got, tt.want)
		}
	}
	s := openSearch(t, []string{"/foreign"}, nil, files)
	s.Others = func() bool { return true }
	if got := s.NotExecutable(); got != "" {
		t.Errorf("a kernel that executes other formats: %q", got)
	}
}

func TestNotWasm(t *testing.T) {
	files := map[string]string{"text": "hello\n", "elf": elfHead(0xb7), "dir/m": "\x00asm\x01\x00\x00\x00", "script": "#!/bin/sh\n"}
	for _, tt := range []struct {
		names, covered, want string
	}{
		{"/text", "", `command "/text": the image is for wasip1/wasm, and "/text" is not a WebAssembly module: it is a text file without "#!"`},
		{"/elf", "", "it is an ELF program for arm64"},
		{"/script", "", `it is a script for "/bin/sh"`},
		{"/dir", "", "is a directory"},
		{"/none", "", `command "/none": it does not exist in the image`},
		{"/a/x /b/x /work/x", "", `command "x": it does not exist in the image: looked in PATH "/a:/b" and in the working directory`},
		{"/text", "/text", ""},
	} {
		var covered []string
		if tt.covered != "" {
			covered = []string{tt.covered}
		}
		got := openSearch(t, strings.Fields(tt.names), covered, files).NotWasm("wasip1/wasm")
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.names, got, tt.want)
		}
	}
}

func isModule(root string, names []string) bool {
	p, _ := First(root, names)
	return p.Wasm()
}

func TestFirst(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	root := t.TempDir()
	for name, content := range map[string]string{
		outside: "\x00asm\x01\x00\x00\x00", filepath.Join(root, "module"): "\x00asm\x01\x00\x00\x00",
		filepath.Join(root, "elf"): "\x7fELF", filepath.Join(root, "short"): "\x00a",
	} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"abs": "/module", "out": outside, "up": "../../../../../../module"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"/module": true, "/elf": false, "/short": false, "/missing": false, "/abs": true, "/out": false, "/up": true, "/": false, "/fifo": false,
	} {
		if got := isModule(root, []string{"/nowhere", name}); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if isModule(root, []string{"/elf", "/module"}) || isModule(root, nil) || isModule(outside, []string{"/module"}) {
		t.Error("not the first program that is there")
	}
}
