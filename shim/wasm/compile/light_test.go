package compile

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
)

// TestKnownWazero fails when wazero is exchanged for another version. What the steps build on is its own
// business: that instantiating takes nothing from function bodies, how an entry of its cache is laid out (engine_cache.go), that a
// module's data is only copied. Look at that, then raise knownWazero.
func TestKnownWazero(t *testing.T) {
	mod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(wazeroPath) + ` (\S+)`).FindSubmatch(mod)
	if required == nil || string(required[1]) != knownWazero {
		t.Errorf("go.mod has wazero %s, this package knows %s", required, knownWazero)
	}
}

// parts of modules for the tests of images.
var (
	oneMemory = newSection(sectionMemory, []byte{1, 0, 2}) // two pages
	withMax   = newSection(sectionMemory, []byte{1, 1, 2, 9})
)

// data encodes a data section.
func data(segments ...[]byte) section {
	body := []byte{byte(len(segments))}
	for _, s := range segments {
		body = append(body, s...)
	}
	return newSection(sectionData, body)
}

// active encodes a segment at a constant address of up to 13 bits.
func active(at int, text string) []byte {
	s := []byte{0, opI32Const, byte(at)&0x7f | 0x80, byte(at >> 7), opEnd, byte(len(text))}
	return append(s, text...)
}

func TestImageIsWhatSegmentsMake(t *testing.T) {
	for _, memory := range []section{oneMemory, withMax} {
		img, ok := newImage([]section{memory, data(active(5, "hello"), active(7, "--"), active(4000, "end"), active(0, ""))})
		if !ok || img.at != 0 || len(img.bytes) != imageAlign {
			t.Fatalf("image at %d of %d bytes, %v", img.at, len(img.bytes), ok)
		}
		want := make([]byte, imageAlign)
		copy(want[5:], "he--o")
		copy(want[4000:], "end")
		if !bytes.Equal(img.bytes, want) {
			t.Error("image differs from the segments")
		}
	}
	// 0x1ffff as a signed number: the last byte of two pages.
	last := append([]byte{0, opI32Const, 0xff, 0xff, 0x07, opEnd, 1}, 'x')
	img, ok := newImage([]section{oneMemory, data(last)})
	if !ok || img.at != wasmPage || len(img.bytes) != wasmPage || img.bytes[wasmPage-1] != 'x' {
		t.Errorf("last byte: at %d, %d bytes, %v", img.at, len(img.bytes), ok)
	}
}

func TestImageIsDeclined(t *testing.T) {
	far := newSection(sectionMemory, []byte{1, 0, 0x80, 0x80, 0x04}) // 65536 pages
	for name, sections := range map[string][]section{
		"no memory":        {data(active(0, "x"))},
		"no data":          {oneMemory},
		"empty data":       {oneMemory, data()},
		"two memories":     {newSection(sectionMemory, []byte{2, 0, 1, 0, 1}), data(active(0, "x"))},
		"shared memory":    {newSection(sectionMemory, []byte{1, 3, 1, 1}), data(active(0, "x"))},
		"64-bit memory":    {newSection(sectionMemory, []byte{1, 4, 1}), data(active(0, "x"))},
		"imported memory":  {newSection(sectionImport, append([]byte{1, 1, 'm', 1, 'n', importMemory}, 0, 1)), oneMemory, data(active(0, "x"))},
		"unknown import":   {newSection(sectionImport, []byte{1, 1, 'm', 1, 'n', 9, 0}), oneMemory, data(active(0, "x"))},
		"cut imports":      {newSection(sectionImport, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}), oneMemory, data(active(0, "x"))},
		"passive":          {oneMemory, data([]byte{1, 1, 'x'})},
		"explicit memory":  {oneMemory, data([]byte{2, 0, opI32Const, 0, opEnd, 1, 'x'})},
		"computed address": {oneMemory, data([]byte{0, 0x23, 0, opEnd, 1, 'x'})},
		"extended address": {oneMemory, data([]byte{0, opI32Const, 0, opI32Const, 0, 0x6a, opEnd, 1, 'x'})},
		"outside":          {oneMemory, data(append([]byte{0, opI32Const, 0xff, 0xff, 0x07, opEnd, 2}, "xx"...))},
		"negative":         {oneMemory, data([]byte{0, opI32Const, 0x7f, opEnd, 1, 'x'})},
		"cut":              {oneMemory, newSection(sectionData, []byte{2, 0, opI32Const, 0, opEnd, 1, 'x'})},
		"too long":         {oneMemory, newSection(sectionData, []byte{1, 0, opI32Const, 0, opEnd, 9, 'x'})},
		"more behind":      {oneMemory, newSection(sectionData, append(data(active(0, "x")).body, 0))},
		"far apart":        {far, data(active(0, "x"), append([]byte{0, opI32Const, 0x80, 0x80, 0x80, 0x80, 0x07, opEnd, 1}, 'x'))},
	} {
		if img, ok := newImage(sections); ok {
			t.Errorf("%s: image at %d of %d bytes", name, img.at, len(img.bytes))
		}
	}
}

func TestIsOrdered(t *testing.T) {
	code, count := newSection(sectionCode, []byte{0}), newSection(sectionDataCount, []byte{1})
	one := data(active(0, "x"))
	for _, c := range []struct {
		name     string
		sections []section
		want     bool
	}{
		{"usual", []section{oneMemory, count, code, one}, true},
		{"no count", []section{oneMemory, code, one}, true},
		{"no data", []section{oneMemory, code}, true},
		{"data before code", []section{oneMemory, one, code}, false},
		{"late count", []section{oneMemory, code, count, one}, true}, // declined by wazero, with data and without
		{"early count", []section{count, oneMemory, code, one}, false},
		{"other count", []section{oneMemory, count, code, data(active(0, "x"), active(1, "y"))}, false},
		{"twice", []section{oneMemory, code, one, one}, false},
	} {
		if got := isOrdered(c.sections); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestMachineCode(t *testing.T) {
	code := []byte("some machine code")
	entry := append([]byte("WAZEVO"), 3, '1', '.', '2')
	entry = binary.LittleEndian.AppendUint32(entry, 2)
	entry = binary.LittleEndian.AppendUint64(entry, 0)
	entry = binary.LittleEndian.AppendUint64(entry, 8)
	entry = binary.LittleEndian.AppendUint64(entry, uint64(len(code)))
	entry = append(entry, code...)
	entry = binary.LittleEndian.AppendUint32(entry, crc32.Checksum(code, crc32.MakeTable(crc32.Castagnoli)))
	entry = append(entry, 0, 0, 0, 0, 0)
	if got, ok := machineCode(entry, 2); !ok || !bytes.Equal(got, code) {
		t.Errorf("got %q, %v", got, ok)
	}
	if _, ok := machineCode(entry, 1); ok {
		t.Error("it has another number of functions")
	}
	for i := range len(entry) - 5 {
		if _, ok := machineCode(entry[:i], 2); ok {
			t.Errorf("%d bytes of an entry were taken", i)
		}
		changed := bytes.Clone(entry)
		changed[i] ^= 0x80
		// What the numbers of functions and offsets say beyond bounds is not known here.
		if _, ok := machineCode(changed, 2); ok && (i < 6 || i >= 10+4+16) {
			t.Errorf("an entry with another byte %d was taken", i)
		}
	}
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

// TestImportsAreWhatWazeroReads compares with wazero's own list, for a module with every kind of import and for a real one.
func TestImportsAreWhatWazeroReads(t *testing.T) {
	types := newSection(1, []byte{2, 0x60, 2, 0x7f, 0x7e, 1, 0x7f, 0x60, 0, 0})
	imports := newSection(sectionImport, slices.Concat([]byte{5},
		[]byte{1, 'a', 1, 'f', 0, 0}, []byte{1, 'a', 1, 't', 1, 0x70, 1, 1, 9}, []byte{1, 'b', 1, 'm', importMemory, 0, 1},
		[]byte{1, 'b', 1, 'g', 3, 0x7f, 0}, []byte{1, 'b', 1, 'h', 0, 1}))
	built, err := os.ReadFile(buildGo(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	for _, module := range [][]byte{join([]section{types, imports}), join(nil), built} {
		compiled, err := r.CompileModule(ctx, module)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := Imports(module)
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
	for _, odd := range []section{newSection(1, []byte{1, 0x5f, 0}), newSection(sectionImport, []byte{1, 1, 'a', 1, 'f', 0, 7}), newSection(sectionImport, []byte{1, 1, 'a', 1, 'f', 4, 0, 0})} {
		if got, ok := Imports(join([]section{odd})); ok {
			t.Errorf("got %+v of %x", got, odd.raw)
		}
	}
}

// TestEntriesWithAndWithoutSteps makes an entry of each kind of a real module.
func TestEntriesWithAndWithoutSteps(t *testing.T) {
	module := buildGo(t)
	cache := t.TempDir()
	for _, c := range []struct {
		name  string
		skip  Steps
		files []string
		want  Load // sizes are 1 for any
	}{
		{"all", 0, []string{CodeName, NamesName, ImageName}, Load{ImageSize: 1, CodeSize: 1, Bare: true, Names: true}},
		{"no image", StepImage, []string{CodeName, NamesName}, Load{CodeSize: 1, Bare: true, Names: true}},
		{"no sharing", StepShare, []string{NamesName, ImageName}, Load{ImageSize: 1, Bare: true, Names: true}},
		{"image only", StepBare, []string{NamesName, ImageName}, Load{ImageSize: 1, Names: true}},
		{"plain", AllSteps, nil, Load{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := Ensure(context.Background(), Options{CacheDir: cache, Skip: c.skip}, module, "")
			if err != nil {
				t.Fatal(err)
			}
			got := e.Load
			got.ImageAt, got.ImageSize, got.CodeSize = 0, min(got.ImageSize, 1), min(got.CodeSize, 1)
			if got != c.want {
				t.Errorf("load %+v", e.Load)
			}
			want := map[string]bool{recordName: true, ModuleName: true}
			for _, f := range c.files {
				want[f] = true
			}
			for _, name := range names(t, e.Dir) {
				if !want[name] && !strings.HasPrefix(name, "wazero-") {
					t.Errorf("entry holds %q", name)
				}
				delete(want, name)
			}
			if len(want) > 0 {
				t.Errorf("entry lacks %v", want)
			}
			code, err := filepath.Glob(filepath.Join(e.Dir, "wazero-*", "*"))
			if err != nil || len(code) != 1 {
				t.Errorf("machine code: %v, %v", code, err)
			}
		})
	}
	digest, err := filepath.Glob(filepath.Join(cache, "*-*"))
	if err != nil || len(digest) != 5 {
		t.Errorf("cache holds %v, %v", digest, err)
	}
}

// TestDamagedFilesAreMadeAgain damages every file of a light entry in turn.
func TestDamagedFilesAreMadeAgain(t *testing.T) {
	module := buildGo(t)
	o := Options{CacheDir: t.TempDir()}
	e, err := Ensure(context.Background(), o, module, "")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{ModuleName, ImageName, CodeName, NamesName}
	compiled, err := filepath.Glob(filepath.Join(e.Dir, "wazero-*", "*"))
	if err != nil || len(compiled) != 1 {
		t.Fatalf("machine code: %v, %v", compiled, err)
	}
	for _, file := range append(files, compiled[0][len(e.Dir)+1:]) {
		path := filepath.Join(e.Dir, file)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Clone(before)
		damaged[len(damaged)/2] ^= 1
		if err := os.WriteFile(path, damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := read(e.Dir, e.Digest); err == nil {
			t.Errorf("%s: the damage is not noticed", file)
		}
		if again, err := Ensure(context.Background(), o, module, ""); err != nil || again != e {
			t.Fatalf("%s: %+v, %v", file, again, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Errorf("%s: made again it differs: %v", file, err)
		}
	}
}

// TestCodeThatUsesDataKeepsIt compiles a module whose code copies from a data segment.
func TestCodeThatUsesDataKeepsIt(t *testing.T) {
	segments := make([]byte, worth)
	big := append([]byte{0, opI32Const, 0, opEnd}, binary.AppendUvarint(nil, uint64(len(segments)))...)
	big = append(big, segments...)
	init := []byte{0, opI32Const, 0, opI32Const, 0, opI32Const, 0, 0xfc, 8, 0, 0, opEnd} // memory.init of segment 0
	body := append([]byte{1, byte(len(init))}, init...)
	module := join([]section{
		newSection(1, []byte{1, 0x60, 0, 0}),
		newSection(3, []byte{1, 0}),
		newSection(sectionMemory, []byte{1, 0, 4}),
		newSection(7, append([]byte{1, 6}, "_start\x00\x00"...)),
		newSection(sectionDataCount, []byte{1}),
		newSection(sectionCode, body),
		newSection(sectionData, append([]byte{1}, big...)),
	})
	e, err := Ensure(context.Background(), Options{CacheDir: t.TempDir()}, writeModule(t, module), "")
	if err != nil {
		t.Fatal(err)
	}
	lean, err := os.ReadFile(filepath.Join(e.Dir, ModuleName))
	if err != nil || e.Load.ImageSize != 0 || len(lean) < worth {
		t.Errorf("load %+v, module of %d bytes, %v", e.Load, len(lean), err)
	}
}
