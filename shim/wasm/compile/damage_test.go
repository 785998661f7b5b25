package compile

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

const heavyFunctions = 3000

// heavy is a module for which every step is taken: its data, its code and its names are each worth
// a file.
func heavy() []byte {
	count := binary.AppendUvarint(nil, heavyFunctions)
	code := slices.Clone(count)
	for i := range heavyFunctions {
		store := []byte{0, opI32Const, 0, opI32Const, byte(i & 0x3f), 0x36, 2, 0, opEnd} // i32.store
		code = append(append(code, byte(len(store))), store...)
	}
	segment := append([]byte{0, opI32Const, 0, opEnd}, binary.AppendUvarint(nil, Worth)...)
	segment = append(segment, bytes.Repeat([]byte("data"), Worth/4)...)
	return format.Join([]format.Section{
		format.NewSection(format.SectionType, []byte{1, 0x60, 0, 0}),
		format.NewSection(format.SectionFunction, append(count, make([]byte, heavyFunctions)...)),
		oneMemory,
		format.NewSection(format.SectionExport, append([]byte{1, 6}, "_start\x00\x00"...)),
		format.NewSection(format.SectionCode, code),
		data(segment),
		format.NewSection(format.SectionCustom, []byte("\x04name\x01\x09\x01\x00\x06_start")),
	})
}

// damages are what may become of a file of an entry.
var damages = map[string]func(path string) error{
	"first byte":  flip(func(int) int { return 0 }),
	"middle byte": flip(func(size int) int { return size / 2 }),
	"last byte":   flip(func(size int) int { return size - 1 }),
	"half": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	},
	"empty": func(path string) error { return os.Truncate(path, 0) },
	"longer": func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, append(data, 0), 0o644)
	},
	"gone": os.Remove,
	"a link": func(path string) error {
		if err := os.Rename(path, path+"-moved"); err != nil {
			return err
		}
		return os.Symlink(filepath.Base(path)+"-moved", path)
	},
	"a folder": func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o755)
	},
}

// flip changes one bit of the byte that at chooses.
func flip(at func(size int) int) func(string) error {
	return func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		data[at(len(data))] ^= 1
		return os.WriteFile(path, data, 0o644)
	}
}

// TestDamagedFilesAreMadeAgain damages every file of a light entry in every way, and those of
// other entries in two.
func TestDamagedFilesAreMadeAgain(t *testing.T) {
	module := writeModule(t, heavy())
	for _, c := range []struct {
		name  string
		skip  Steps
		files []string
	}{
		{"light", 0, []string{ModuleName, ImageName, CodeName, OffsetsName, NamesName}},
		{"no image", StepImage, []string{ModuleName, CodeName, OffsetsName, NamesName}},
		{"no sharing", StepShare, []string{ModuleName, ImageName, NamesName}},
		{"plain", AllSteps, []string{ModuleName}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{CacheDir: t.TempDir(), Skip: c.skip}
			e, err := Ensure(context.Background(), o, module, "")
			if err != nil {
				t.Fatal(err)
			}
			compiled, err := filepath.Glob(filepath.Join(e.Dir, "wazero-*", "*"))
			if err != nil || len(compiled) != 1 {
				t.Fatalf("machine code: %v, %v", compiled, err)
			}
			for _, file := range append(c.files, recordName, compiled[0][len(e.Dir)+1:]) {
				for name, damage := range damages {
					if c.skip != 0 && name != "middle byte" && name != "half" {
						continue
					}
					path := filepath.Join(e.Dir, file)
					before, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					if err := damage(path); err != nil {
						t.Fatal(err)
					}
					if got, err := read(e.Dir, e.Digest); err == nil && (file != recordName || got != e) {
						t.Errorf("%s, %s: the damage is not noticed", file, name)
					}
					again, err := Ensure(context.Background(), o, module, "")
					if err != nil || again != e {
						t.Fatalf("%s, %s: %+v, %v", file, name, again, err)
					}
					if after, err := os.ReadFile(path); err != nil || file != recordName && !bytes.Equal(after, before) {
						t.Errorf("%s, %s: made again it differs: %v", file, name, err)
					}
				}
			}
		})
	}
}

// TestEntryOfAnotherWazero exchanges the version in the name of wazero's folder, and leaves an
// entry of another engine: neither is taken.
func TestEntryOfAnotherWazero(t *testing.T) {
	module := writeModule(t, heavy())
	o := Options{CacheDir: t.TempDir()}
	e, err := Ensure(context.Background(), o, module, "")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(e.Dir, "wazero-*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("wazero's folder: %v, %v", folders, err)
	}
	if err := os.Rename(folders[0], filepath.Join(e.Dir, "wazero-v1.11.0-amd64-linux")); err != nil {
		t.Fatal(err)
	}
	if again, err := Ensure(context.Background(), o, module, e.Digest); err != nil || again != e {
		t.Fatalf("%+v, %v", again, err)
	}
	other := strings.Replace(e.Dir, engine(), strings.Repeat("0", len(engine())), 1)
	if err := os.Rename(e.Dir, other); err != nil {
		t.Fatal(err)
	}
	if again, err := Ensure(context.Background(), o, module, e.Digest); err != nil || again != e {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := Drop(o.CacheDir, e.Digest); err != nil {
		t.Fatal(err)
	}
	if left := names(t, o.CacheDir); len(left) != 0 {
		t.Errorf("an entry of another engine stays when its module goes: %v", left)
	}
}
