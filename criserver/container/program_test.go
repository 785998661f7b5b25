package container

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// elfHead is the beginning of a little-endian ELF program of 64 bits.
func elfHead(machine byte) string {
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00" + string([]byte{machine, 0})
}

func openSearch(t *testing.T, names, covered []string, files map[string]string) search {
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
	return search{root: root, names: names, covered: covered, others: func() bool { return false }}
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
		{"/data", "", "may be executed by nobody (mode 0644)"},
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
		got := openSearch(t, strings.Fields(tt.names), covered, files).notExecutable()
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s, %q covered: %q, want %q", tt.names, tt.covered, got, tt.want)
		}
	}
	s := openSearch(t, []string{"/foreign"}, nil, files)
	s.others = func() bool { return true }
	if got := s.notExecutable(); got != "" {
		t.Errorf("a kernel that executes other formats: %q", got)
	}
}

// readied notes what is made ready.
type readied []string

func (r *readied) Ready(_ context.Context, path, digest string) { *r = append(*r, path+" "+digest) }

// The module among an image's files is compiled before the container's start, from where its links lead within the image.
func TestProgramIsMadeReady(t *testing.T) {
	s := openSearch(t, nil, nil, map[string]string{"m.wasm": "\x00asm\x01\x00\x00\x00", "run": "-> /bin/../m.wasm", "bin/x": "x"})
	var made readied
	b := &builder{manager: &Manager{o: Options{Modules: &made}}}
	b.readyProgram(t.Context(), s.root, []string{"/run"}) // an image whose files have no module that is known
	b.image.Program = digest.FromString("m")
	b.readyProgram(t.Context(), s.root, []string{"/none"})
	b.readyProgram(t.Context(), s.root, []string{"/none/run", "/run"})
	real, err := filepath.EvalSymlinks(s.root)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(real, "m.wasm") + " " + b.image.Program.String(); len(made) != 1 || made[0] != want {
		t.Errorf("made ready: %q, want %q", made, want)
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
		got := openSearch(t, strings.Fields(tt.names), covered, files).notWasm("wasip1/wasm")
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.names, got, tt.want)
		}
	}
}
