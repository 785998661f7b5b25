package binfmt

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"reflect"
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

func TestGoModulesOfWhatDoesNotTell(t *testing.T) {
	magic := []byte(goBuildMagic + "\x08\x02")
	whole := append(bytes.Clone(magic), make([]byte, 16)...)
	for name, data := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "magic alone": magic, "header alone": whole,
		"unaligned":     append([]byte("x"), whole...),
		"endless":       append(bytes.Clone(whole), bytes.Repeat([]byte{0xff}, 64)...),
		"long string":   append(bytes.Clone(whole), 0xff, 0x7f, 'x'),
		"other format":  append([]byte(goBuildMagic+"\x08\x00"), make([]byte, 64)...),
		"no modules":    append(bytes.Clone(whole), 1, 'x', 2, 'x', 'x'),
		"many of magic": bytes.Repeat([]byte(goBuildMagic+"  "), 1000),
	} {
		file := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := GoModules(file); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if _, err := GoModules(filepath.Join(t.TempDir(), "none")); !errdefs.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
}
