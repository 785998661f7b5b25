package format

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
)

// buildGo builds a Go command that is a guest.
func buildGo(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-o", out, "../engine/testdata/gosuite")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-buildvcs=false -trimpath")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build guest: %v: %s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReadNames(t *testing.T) {
	content := []byte(nameTitle + "\x00\x03\x02me" + "\x01\x0b\x02\x00\x03one\x07\x03two" + "\x05\x00")
	names := ReadNames(content)
	if names.Module != "me" || names.Function(0) != "one" || names.Function(7) != "two" || names.Function(1) != "" {
		t.Errorf("got %+v", names)
	}
	for i := range content {
		ReadNames(content[:i])
	}
	ReadNames([]byte(nameTitle + "\x01\x05\xff\xff\xff\xff\x0f")) // 4294967295 names in no bytes
}

// TestImportsAreWhatWazeroReads compares with wazero's own list, for a module with every kind of
// import and for a real one.
func TestImportsAreWhatWazeroReads(t *testing.T) {
	types := NewSection(1, []byte{2, 0x60, 2, 0x7f, 0x7e, 1, 0x7f, 0x60, 0, 0})
	imports := NewSection(SectionImport, slices.Concat([]byte{5},
		[]byte{1, 'a', 1, 'f', 0, 0}, []byte{1, 'a', 1, 't', 1, 0x70, 1, 1, 9}, []byte{1, 'b', 1, 'm', KindMemory, 0, 1},
		[]byte{1, 'b', 1, 'g', 3, 0x7f, 0}, []byte{1, 'b', 1, 'h', 0, 1}))
	built := buildGo(t)
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	for _, module := range [][]byte{Join([]Section{types, imports}), Join(nil), built} {
		compiled, err := r.CompileModule(ctx, module)
		if err != nil {
			t.Fatal(err)
		}
		sections, err := Split(module)
		if err != nil {
			t.Fatal(err)
		}
		imports, ok := Imports(sections)
		got := slices.DeleteFunc(imports, func(i Import) bool { return i.Kind != KindFunction })
		want := compiled.ImportedFunctions()
		if !ok || len(got) != len(want) {
			t.Fatalf("%d imports, %v; want %d", len(got), ok, len(want))
		}
		for i, f := range want {
			from, name, _ := f.Import()
			if got[i].Module != from || got[i].Name != name || !bytes.Equal(got[i].Params, f.ParamTypes()) || !bytes.Equal(got[i].Results, f.ResultTypes()) {
				t.Errorf("import %d: %+v, want %v", i, got[i], f)
			}
		}
	}
	for _, odd := range []Section{NewSection(SectionImport, []byte{1, 1, 'a', 1, 'f', 0, 7}), NewSection(SectionImport, []byte{1, 1, 'a', 1, 'f', 5, 0, 0})} {
		if got, ok := Imports([]Section{odd}); ok {
			t.Errorf("got %+v of %x", got, odd.Raw)
		}
	}
}

func TestExportNames(t *testing.T) {
	exports := NewSection(SectionExport, slices.Concat([]byte{5}, []byte{1, 'b', KindFunction, 9}, []byte{1, 'm', KindMemory, 0},
		[]byte{1, 'a', KindFunction, 3}, []byte{1, 'c', KindFunction, 9}, []byte{1, 0xff, KindFunction, 1}))
	s := ExportNames([]Section{exports})
	if s == nil {
		t.Fatal("no names")
	}
	names := ReadNames(s.Body)
	if names.Function(3) != "a" || names.Function(9) != "b" || names.Function(1) != "" || names.Function(0) != "" {
		t.Errorf("got %+v", names)
	}
	if s := ExportNames([]Section{NewSection(SectionExport, []byte{1, 1, 'm', KindMemory, 0})}); s != nil {
		t.Errorf("names of no function: %q", s.Body)
	}
}

func TestOtherTypesThanFunctionsAreDeclined(t *testing.T) {
	if got, ok := Types([]Section{NewSection(SectionType, []byte{1, 0x5f, 0})}); ok {
		t.Errorf("got %+v", got)
	}
}

// What is not well-formed is declined wherever it is cut, and never read beyond its end.
func TestCutModulesAreDeclined(t *testing.T) {
	whole := []Section{
		NewSection(SectionType, []byte{1, 0x60, 1, 0x7f, 0}),
		NewSection(SectionImport, []byte{2, 1, 'm', 1, 'f', KindFunction, 0, 1, 'm', 1, 'e', KindTag, 0, 0}),
		NewSection(SectionFunction, []byte{1, 0}),
		NewSection(SectionTable, []byte{1, 0x70, 1, 1, 2}),
		NewSection(SectionMemory, []byte{2, 1, 1, 2, 7, 1, 0x80, 1}),
		NewSection(SectionExport, []byte{1, 1, 'x', KindMemory, 1}),
	}
	read := func(sections []Section) (ok []bool, all []any) {
		imports, i := Imports(sections)
		functions, f := Functions(sections)
		tables, t := Tables(sections)
		memories, m := Memories(sections)
		exports, e := Exports(sections)
		return []bool{i, f, t, m, e}, []any{imports, functions, tables, memories, exports}
	}
	ok, got := read(whole)
	want := []any{
		[]Import{{Module: "m", Name: "f", FuncType: FuncType{Params: []byte{0x7f}, Results: []byte{}}}, {Module: "m", Name: "e", Kind: KindTag}},
		[]uint32{0}, []Table{{0x70, Limits{1, 1, 2}}},
		[]Limits{{Flags: 1, Min: 1, Max: 2}, {Flags: 7, Min: 1, Max: 128}}, []Export{{"x", KindMemory, 1}},
	}
	if slices.Contains(ok, false) || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, ok, want)
	}
	for n, of := range []int{1, 2, 3, 4, 5} {
		for size := 1; size < len(whole[of].Body); size++ {
			cut := slices.Clone(whole)
			cut[of] = NewSection(whole[of].ID, whole[of].Body[:size])
			if ok, got := read(cut); ok[n] {
				t.Errorf("section %d cut to %d bytes: %+v", whole[of].ID, size, got[n])
			}
		}
	}
}
