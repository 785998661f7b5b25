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

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

const (
	componentHeader = "\x00asm\x0d\x00\x01\x00"
	twoModules      = "../component/lower/testdata/two.wasm"
)

func readComponent(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A component takes the steps that the module takes which is made of it.
func TestComponent(t *testing.T) {
	for _, path := range []string{twoModules, "../component/testdata/hello.wasm"} {
		o := Options{CacheDir: t.TempDir()}
		e, err := Ensure(context.Background(), o, path, "")
		if err != nil {
			t.Fatal(err)
		}
		if e.Load.Bare != Native() || !e.Load.Names || e.Go.Rewritten != 0 || !e.Load.Component {
			t.Errorf("%s: %+v", path, e)
		}
		if again, err := Open(o.CacheDir, e.Digest, 0); err != nil || again.Load != e.Load {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

// A component that answers requests needs no _start. A module is no such component, whatever it
// exports.
func TestHTTPComponent(t *testing.T) {
	o := Options{CacheDir: t.TempDir()}
	e, err := Ensure(context.Background(), o, "../../../tests/oci/testdata/http.wasm", "")
	if err != nil || !e.Load.HTTP || !e.Load.Component || e.Load.Bare != Native() {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := Ensure(context.Background(), o, twoModules, ""); err != nil || e.Load.HTTP {
		t.Errorf("a command: %+v, %v", e, err)
	}
	lowered, err := lower.Lower(readComponent(t, "../../../tests/oci/testdata/http.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "module.wasm")
	if err := os.WriteFile(name, lowered.Module, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(context.Background(), o, name, ""); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "is for components") {
		t.Errorf("a module with its exports: %v", err)
	}
}

// The frame of a component imports from one module what the component imports, in the same order
// and with the same types: machine code knows imports by their numbers.
func TestImportsAreJoined(t *testing.T) {
	imports := func(module []byte) []format.Import {
		sections, err := format.Split(module)
		if err != nil {
			t.Fatal(err)
		}
		all, ok := format.Imports(sections)
		if !ok {
			t.Fatal("imports are not read")
		}
		return all
	}
	for _, path := range []string{"../../../tests/oci/testdata/http.wasm", "../component/testdata/hello.wasm"} {
		lowered, err := lower.Lower(readComponent(t, path))
		if err != nil {
			t.Fatal(err)
		}
		e, err := Ensure(context.Background(), Options{CacheDir: t.TempDir()}, path, "")
		if err != nil {
			t.Fatal(err)
		}
		want, got := imports(lowered.Module), imports(readComponent(t, filepath.Join(e.Dir, ModuleName)))
		if len(want) < 2 || len(got) != len(want) {
			t.Fatalf("%s: %d imports, want %d", path, len(got), len(want))
		}
		for n := range want {
			w, g := canonical.ParseImport(want[n].Module, want[n].Name), canonical.ParseImport(got[n].Module, got[n].Name)
			if joined := g.Module == canonical.Joined; joined != e.Load.Bare {
				t.Errorf("%s: import %d is of %q", path, n, g.Module)
			}
			w.Module, w.Name = g.Module, g.Name
			if g != w || !slices.Equal(got[n].Params, want[n].Params) || !slices.Equal(got[n].Results, want[n].Results) {
				t.Errorf("%s: import %d is %+v, want %+v", path, n, g, w)
			}
		}
	}
}

// What is hostile is refused by the child with a text, and leaves nothing.
func TestHostileComponents(t *testing.T) {
	section := func(id byte, body ...byte) []byte { return append([]byte{id}, sized(body)...) }
	component := func(sections ...[]byte) []byte {
		return append([]byte(componentHeader), bytes.Join(sections, nil)...)
	}
	deep := component()
	for range 1000 {
		deep = component(section(4, deep...))
	}
	many := binary.AppendUvarint(nil, 1<<32-1)
	grown := func(old, by string) []byte {
		file := readComponent(t, twoModules)
		changed := bytes.Replace(file, []byte(old), []byte(by), 1)
		if bytes.Equal(file, changed) {
			t.Fatalf("%q is not there", old)
		}
		return changed
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"nothing":        {component(), "exports neither wasi:cli/run"},
		"cut":            {readComponent(t, twoModules)[:300], "component is not valid at byte"},
		"deep":           {deep, "more than 16 deep"},
		"many types":     {component(section(7, many...)), "definitions in 0 bytes"},
		"many instances": {component(section(2, append(many, 1, 0)...)), "definitions in 2 bytes"},
		"itself":         {component(section(2, 1, 0, 0, 1, 1, 'x', 0x12, 0)), "is not defined there"},
		"no text":        {component(section(0, 1, 0xff)), "is not UTF-8"},
		"invalid body":   {grown("\x41\xe2\x00\x10\x00\x0b", "\x42\xe2\x00\x10\x00\x0b"), "module is not valid"},
		"much memory":    {grown("\x05\x03\x01\x00\x01", "\x05\x07\x01\x00\x81\x80\x80\x80\x01"), "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{CacheDir: t.TempDir()}
			_, err := Ensure(context.Background(), o, writeModule(t, c.file), "")
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "goroutine") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if got := names(t, o.CacheDir); len(got) != 0 {
				t.Errorf("cache holds %v", got)
			}
		})
	}
}
