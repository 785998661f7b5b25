package wasm

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/inspect"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func name(s string) []byte { return append([]byte{byte(len(s))}, s...) }

// smallModule is a small module with something of everything. It imports from env what is given.
func smallModule(imported string) []byte {
	const wasi = "wasi_snapshot_preview1"
	custom := func(title string, content ...[]byte) format.Section {
		return format.NewSection(format.SectionCustom, slices.Concat(append([][]byte{name(title)}, content...)...))
	}
	imports := [][]byte{{3},
		name(wasi), name("fd_write"), {format.KindFunction, 1}, name(wasi), name("sock_open"), {format.KindFunction, 2},
		name(wasi), name("proc_exit"), {format.KindFunction, 3}}
	if imported != "" {
		imports[0][0]++
		imports = append(imports, name("env"), name(imported), []byte{format.KindFunction, 0})
	}
	functions := byte(imports[0][0])
	return format.Join([]format.Section{
		format.NewSection(format.SectionType, []byte{4, 0x60, 0, 0, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7f, 0x60, 1, 0x7f, 0}),
		format.NewSection(format.SectionImport, slices.Concat(imports...)),
		format.NewSection(format.SectionFunction, []byte{1, 0}),
		format.NewSection(format.SectionTable, []byte{1, 0x70, 1, 2, 2}),
		format.NewSection(format.SectionMemory, []byte{1, 1, 17, 0x80, 2}),
		format.NewSection(format.SectionExport, slices.Concat([]byte{2}, name("memory"), []byte{format.KindMemory, 0}, name("_start"), []byte{format.KindFunction, functions})),
		format.NewSection(format.SectionCode, []byte{1, 2, 0, 0x0b}),
		format.NewSection(format.SectionData, []byte{1, 0, 0x41, 0, 0x0b, 2, 'h', 'i'}),
		custom("name", []byte{1, 5, 1, functions, 2}, []byte("go")),
		custom("producers", []byte{1}, name("processed-by"), []byte{1}, name("clang\x1b[31m"), name("14.0.6")),
		custom("target_features", []byte{1, '+'}, name("simd128")),
	})
}

// What is printed is in files of testdata, for each kind of module as text and as JSON.
func TestGoldenReports(t *testing.T) {
	component, err := os.ReadFile("../../../shim/wasm/component/testdata/hello.wasm")
	if err != nil {
		t.Fatal(err)
	}
	image := Source{Name: "example.org/app:v1", Kind: SourceImage, Image: "sha256:1234", Platform: "wasip1/wasm", Command: "/app.wasm"}
	file := Source{Name: "app.wasm", Kind: SourceFile}
	for _, c := range []struct {
		name   string
		source Source
		module []byte
		entry  *compile.Entry
	}{
		{"module", file, smallModule(""), &compile.Entry{Load: compile.Load{Bare: true}}},
		{"sections", image, smallModule(""), nil},
		{"lacking", file, smallModule("launch\n"), nil},
		{"component", image, component, nil},
		{"damaged", file, []byte("\x00asm\x0d\x00\x01\x00\x0d\x00"), nil},
	} {
		r := inspect.Module(c.module)
		if c.entry != nil {
			if err := r.Compiled(*c.entry, nil); err != nil {
				t.Fatal(err)
			}
		}
		for end, asJSON := range map[string]bool{".txt": false, ".json": true} {
			var got bytes.Buffer
			if err := ShowReport(&got, c.source, r, asJSON); err != nil {
				t.Fatal(err)
			}
			golden(t, c.name+end, got.Bytes())
		}
	}
}

func TestGoldenCompiled(t *testing.T) {
	all := []Compiled{
		{Name: "app.wasm", Digest: "sha256:1", Entry: "/cache/1", Size: 123456, Seconds: 1.234},
		{Name: "example.org/app:v1", Digest: "sha256:2", Entry: "/cache/2", Size: 789, Present: true},
	}
	for end, asJSON := range map[string]bool{".txt": false, ".json": true} {
		var got bytes.Buffer
		if err := ShowCompiled(&got, all, asJSON); err != nil {
			t.Fatal(err)
		}
		golden(t, "compiled"+end, got.Bytes())
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs (%v); see go test -update and git diff. Got:\n%s", file, err, got)
	}
}
