package compile

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// parts of modules for the tests of images.
var (
	oneMemory = format.NewSection(format.SectionMemory, []byte{1, 0, 2}) // two pages
	withMax   = format.NewSection(format.SectionMemory, []byte{1, 1, 2, 9})
)

// data encodes a data section.
func data(segments ...[]byte) format.Section {
	body := []byte{byte(len(segments))}
	for _, s := range segments {
		body = append(body, s...)
	}
	return format.NewSection(format.SectionData, body)
}

// active encodes a segment at a constant address of up to 13 bits.
func active(at int, text string) []byte {
	s := []byte{0, opI32Const, byte(at)&0x7f | 0x80, byte(at >> 7), opEnd, byte(len(text))}
	return append(s, text...)
}

func TestImageIsWhatSegmentsMake(t *testing.T) {
	for _, memory := range []format.Section{oneMemory, withMax} {
		img, declined := newImage([]format.Section{memory, data(active(5, "hello"), active(7, "--"), active(4000, "end"), active(0, ""))})
		if declined != "" || img.at != 0 || len(img.bytes) != imageAlign {
			t.Fatalf("image at %d of %d bytes, %q", img.at, len(img.bytes), declined)
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
	img, declined := newImage([]format.Section{oneMemory, data(last)})
	if declined != "" || img.at != wasmPage || len(img.bytes) != wasmPage || img.bytes[wasmPage-1] != 'x' {
		t.Errorf("last byte: at %d, %d bytes, %q", img.at, len(img.bytes), declined)
	}
}

func TestImageIsDeclined(t *testing.T) {
	far := format.NewSection(format.SectionMemory, []byte{1, 0, 0x80, 0x80, 0x04}) // 65536 pages
	for name, sections := range map[string][]format.Section{
		"no memory":        {data(active(0, "x"))},
		"no data":          {oneMemory},
		"empty data":       {oneMemory, data()},
		"two memories":     {format.NewSection(format.SectionMemory, []byte{2, 0, 1, 0, 1}), data(active(0, "x"))},
		"shared memory":    {format.NewSection(format.SectionMemory, []byte{1, 3, 1, 1}), data(active(0, "x"))},
		"64-bit memory":    {format.NewSection(format.SectionMemory, []byte{1, 4, 1}), data(active(0, "x"))},
		"imported memory":  {format.NewSection(format.SectionImport, append([]byte{1, 1, 'm', 1, 'n', format.KindMemory}, 0, 1)), oneMemory, data(active(0, "x"))},
		"unknown import":   {format.NewSection(format.SectionImport, []byte{1, 1, 'm', 1, 'n', 9, 0}), oneMemory, data(active(0, "x"))},
		"cut imports":      {format.NewSection(format.SectionImport, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}), oneMemory, data(active(0, "x"))},
		"passive":          {oneMemory, data([]byte{1, 1, 'x'})},
		"explicit memory":  {oneMemory, data([]byte{2, 0, opI32Const, 0, opEnd, 1, 'x'})},
		"computed address": {oneMemory, data([]byte{0, 0x23, 0, opEnd, 1, 'x'})},
		"extended address": {oneMemory, data([]byte{0, opI32Const, 0, opI32Const, 0, 0x6a, opEnd, 1, 'x'})},
		"outside":          {oneMemory, data(append([]byte{0, opI32Const, 0xff, 0xff, 0x07, opEnd, 2}, "xx"...))},
		"negative":         {oneMemory, data([]byte{0, opI32Const, 0x7f, opEnd, 1, 'x'})},
		"cut":              {oneMemory, format.NewSection(format.SectionData, []byte{2, 0, opI32Const, 0, opEnd, 1, 'x'})},
		"too long":         {oneMemory, format.NewSection(format.SectionData, []byte{1, 0, opI32Const, 0, opEnd, 9, 'x'})},
		"more behind":      {oneMemory, format.NewSection(format.SectionData, append(data(active(0, "x")).Body, 0))},
		"far apart":        {far, data(active(0, "x"), append([]byte{0, opI32Const, 0x80, 0x80, 0x80, 0x80, 0x07, opEnd, 1}, 'x'))},
	} {
		if img, declined := newImage(sections); declined == "" {
			t.Errorf("%s: image at %d of %d bytes", name, img.at, len(img.bytes))
		}
	}
}

func TestIsOrdered(t *testing.T) {
	code, count := format.NewSection(format.SectionCode, []byte{0}), format.NewSection(format.SectionDataCount, []byte{1})
	one := data(active(0, "x"))
	for _, c := range []struct {
		name     string
		sections []format.Section
		want     bool
	}{
		{"usual", []format.Section{oneMemory, count, code, one}, true},
		{"no count", []format.Section{oneMemory, code, one}, true},
		{"no data", []format.Section{oneMemory, code}, true},
		{"data before code", []format.Section{oneMemory, one, code}, false},
		{"late count", []format.Section{oneMemory, code, count, one}, true}, // declined by wazero, with data and without
		{"early count", []format.Section{count, oneMemory, code, one}, false},
		{"other count", []format.Section{oneMemory, count, code, data(active(0, "x"), active(1, "y"))}, false},
		{"twice", []format.Section{oneMemory, code, one, one}, false},
	} {
		if got := isOrdered(c.sections); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// cacheEntry is an entry as wazero's cache has it, of two functions.
func cacheEntry(code []byte, rest ...byte) []byte {
	entry := append([]byte("WAZEVO"), 3, '1', '.', '2')
	entry = binary.LittleEndian.AppendUint32(entry, 2)
	entry = binary.LittleEndian.AppendUint64(entry, 0)
	entry = binary.LittleEndian.AppendUint64(entry, 8)
	entry = binary.LittleEndian.AppendUint64(entry, uint64(len(code)))
	entry = append(entry, code...)
	entry = binary.LittleEndian.AppendUint32(entry, crc32.Checksum(code, crc32.MakeTable(crc32.Castagnoli)))
	return append(entry, rest...)
}

func TestParseCached(t *testing.T) {
	code := []byte("some machine code")
	entry := cacheEntry(code, 0, 0, 0, 0, 0)
	got, ok := parseCacheFile(entry, 2)
	if !ok || !bytes.Equal(got.code, code) || !bytes.Equal(got.encodeOffsets(), []byte{0, 0, 0, 0, 8, 0, 0, 0}) {
		t.Errorf("got %q at %v, %v", got.code, got.encodeOffsets(), ok)
	}
	if _, ok := parseCacheFile(entry, 1); ok {
		t.Error("it has another number of functions")
	}
	for i := range len(entry) - 5 {
		if _, ok := parseCacheFile(entry[:i], 2); ok {
			t.Errorf("%d bytes of an entry were taken", i)
		}
		changed := bytes.Clone(entry)
		changed[i] ^= 0x80
		// What the numbers of functions and offsets say beyond bounds is not known here.
		if _, ok := parseCacheFile(changed, 2); ok && (i < 6 || i >= 10+4+16) {
			t.Errorf("an entry with another byte %d was taken", i)
		}
	}
}

func TestStub(t *testing.T) {
	catches := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	whole, _ := parseCacheFile(cacheEntry([]byte("some machine code"), append([]byte{0}, catches...)...), 2)
	short, ok := parseCacheFile(whole.withStub(), 0)
	if !ok || !bytes.Equal(short.code, stub) || !bytes.Equal(short.head, whole.head) || !bytes.Equal(short.rest, whole.rest) {
		t.Errorf("stub %+v, %v", short, ok)
	}
	for name, rest := range map[string][]byte{"a source map": append([]byte{1}, catches...), "nothing behind the code": nil} {
		whole, _ := parseCacheFile(cacheEntry([]byte("code"), rest...), 2)
		if whole.code = []byte("code"); whole.withStub() != nil {
			t.Errorf("%s: it got a stub", name)
		}
	}
}

// TestEntriesWithAndWithoutSteps makes an entry of each kind of a real module.
func TestEntriesWithAndWithoutSteps(t *testing.T) {
	module := buildGo(t)
	cache := t.TempDir()
	sizes := map[Steps]uint64{} // of the machine code
	for _, c := range []struct {
		name  string
		skip  Steps
		files []string
		want  Load // sizes are 1 for any
	}{
		{"all", 0, []string{CodeName, OffsetsName, NamesName, ImageName}, Load{ImageSize: 1, CodeSize: 1, Bare: true, Names: true}},
		{"no image", StepImage, []string{CodeName, OffsetsName, NamesName}, Load{CodeSize: 1, Bare: true, Names: true}},
		{"no sharing", StepShare, []string{NamesName, ImageName}, Load{ImageSize: 1, Bare: true, Names: true}},
		{"image only", StepBare, []string{NamesName, ImageName}, Load{ImageSize: 1, Names: true}},
		{"not folded", StepFold, []string{CodeName, OffsetsName, NamesName, ImageName}, Load{ImageSize: 1, CodeSize: 1, Bare: true, Names: true}},
		{"plain", AllSteps, nil, Load{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := Ensure(context.Background(), Options{CacheDir: cache, Skip: c.skip}, module, "")
			if err != nil {
				t.Fatal(err)
			}
			got := e.Load
			sizes[c.skip] = got.CodeSize
			got.ImageAt, got.ImageSize, got.CodeSize, got.CodeSum = 0, min(got.ImageSize, 1), min(got.CodeSize, 1), 0
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
	if err != nil || len(digest) != 6 {
		t.Errorf("cache holds %v, %v", digest, err)
	}
	if runtime.GOARCH == "amd64" && sizes[0] > sizes[StepFold]*9/10 {
		t.Errorf("%d bytes of machine code folded, %d as it was", sizes[0], sizes[StepFold])
	}
}

// TestCodeThatUsesDataKeepsIt compiles a module whose code copies from a data segment.
func TestCodeThatUsesDataKeepsIt(t *testing.T) {
	segments := make([]byte, Worth)
	big := append([]byte{0, opI32Const, 0, opEnd}, binary.AppendUvarint(nil, uint64(len(segments)))...)
	big = append(big, segments...)
	init := []byte{0, opI32Const, 0, opI32Const, 0, opI32Const, 0, 0xfc, 8, 0, 0, opEnd} // memory.init of segment 0
	body := append([]byte{1, byte(len(init))}, init...)
	module := format.Join([]format.Section{
		format.NewSection(1, []byte{1, 0x60, 0, 0}),
		format.NewSection(3, []byte{1, 0}),
		format.NewSection(format.SectionMemory, []byte{1, 0, 4}),
		format.NewSection(7, append([]byte{1, 6}, "_start\x00\x00"...)),
		format.NewSection(format.SectionDataCount, []byte{1}),
		format.NewSection(format.SectionCode, body),
		format.NewSection(format.SectionData, append([]byte{1}, big...)),
	})
	e, err := Ensure(context.Background(), Options{CacheDir: t.TempDir()}, writeModule(t, module), "")
	if err != nil {
		t.Fatal(err)
	}
	lean, err := os.ReadFile(filepath.Join(e.Dir, ModuleName))
	if err != nil || e.Load.ImageSize != 0 || len(lean) < Worth {
		t.Errorf("load %+v, module of %d bytes, %v", e.Load, len(lean), err)
	}
}
