package compile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// TestMain makes the test binary have the compile face.
func TestMain(m *testing.M) {
	if code, ok := asTaken(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == "compile" {
		os.Exit(Main(os.Args[2:]))
	}
	if os.Getuid() != 0 {
		panic("these tests need root")
	}
	os.Exit(m.Run())
}

// encode makes one section of a module.
func encode(id byte, content ...byte) []byte { return format.NewSection(id, content).Raw }

// module is a command that does nothing, with a custom section that makes it differ.
func module(salt string) []byte {
	parts := [][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		encode(1, 1, 0x60, 0, 0),                                // type: func()
		encode(3, 1, 0),                                         // one function
		encode(7, append([]byte{1, 6}, "_start\x00\x00"...)...), // exported
		encode(10, 1, 2, 0, 0x0b),                               // end
		encode(0, append([]byte{4}, "salt"+salt...)...),
	}
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func writeModule(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.wasm")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// buildGo builds a Go command that is a guest, and little more than Go's runtime.
func buildGo(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", "build", "-o", out, "./testdata/runtime")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-buildvcs=false -trimpath")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build guest: %v: %s", err, text)
	}
	return out
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if e.Name() != "lock" {
			all = append(all, e.Name())
		}
	}
	return all
}

func TestEnsureMakesOneEntryAndReadsItAgain(t *testing.T) {
	ctx, o := context.Background(), Options{CacheDir: t.TempDir()}
	path := writeModule(t, module("a"))
	first, err := Ensure(ctx, o, path, "")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(first.Dir, recordName))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Ensure(ctx, o, path, first.Digest)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(again.Dir, recordName))
	if err != nil {
		t.Fatal(err)
	}
	if first != again || !os.SameFile(before, after) {
		t.Errorf("entry was made again: %+v, %+v", first, again)
	}
	lean, err := os.ReadFile(filepath.Join(first.Dir, ModuleName))
	if err != nil || strings.Contains(string(lean), "salt") {
		t.Errorf("custom section was kept: %q, %v", lean, err)
	}
	if got := names(t, o.CacheDir); len(got) != 1 {
		t.Errorf("cache holds %v", got)
	}
}

func TestEnsureMakesDamagedEntryAgain(t *testing.T) {
	ctx, o := context.Background(), Options{CacheDir: t.TempDir()}
	path := writeModule(t, module("b"))
	e, err := Ensure(ctx, o, path, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []func() error{
		func() error { return os.Truncate(filepath.Join(e.Dir, ModuleName), 3) },
		func() error { return os.WriteFile(filepath.Join(e.Dir, recordName), []byte("{"), 0o600) },
		func() error { return os.Remove(filepath.Join(e.Dir, ModuleName)) },
		func() error { return os.RemoveAll(e.Dir) },
		func() error { return os.Mkdir(filepath.Join(o.CacheDir, stagePrefix(e.Digest)+"dead"), 0o700) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := Ensure(ctx, o, path, ""); err != nil {
			t.Fatalf("ensure after damage: %v", err)
		}
		if _, err := read(e.Dir, e.Digest); err != nil {
			t.Fatalf("entry after damage: %v", err)
		}
	}
	if err := Drop(o.CacheDir, e.Digest); err != nil {
		t.Fatal(err)
	}
	if err := Drop(o.CacheDir, e.Digest); err != nil {
		t.Errorf("second drop: %v", err)
	}
	if got := names(t, o.CacheDir); len(got) != 0 {
		t.Errorf("cache holds %v after drop", got)
	}
}

// commandOf is a module whose function _start has this body and is of this type.
func commandOf(body string, of ...byte) []byte {
	code := append(append([]byte{1, byte(len(body) + 2), 0}, body...), 0x0b)
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"), encode(1, append([]byte{1}, of...)...), encode(3, 1, 0),
		encode(7, []byte("\x01\x06_start\x00\x00")...), encode(10, code...),
	}, nil)
}

func TestEnsureRefuses(t *testing.T) {
	noStart := append([]byte("\x00asm\x01\x00\x00\x00"), encode(1, 1, 0x60, 0, 0)...)
	broken := append([]byte("\x00asm\x01\x00\x00\x00"), encode(3, 1, 7)...)
	for _, c := range []struct {
		name, want string
		data       []byte
		digest     string
	}{
		{"component", "component", []byte("\x00asm\x0d\x00\x01\x00rest"), ""},
		{"elf", "not a WebAssembly module", []byte("\x7fELF\x01\x00\x00\x00"), ""},
		{"empty", "not a WebAssembly module", nil, ""},
		{"version", "version", []byte("\x00asm\x02\x00\x00\x00"), ""},
		{"cut", "not valid", []byte("\x00asm\x01\x00\x00\x00\x01\x70"), ""},
		{"invalid", "not valid", broken, ""},
		{"no command", "_start", noStart, ""},
		{"start with parameters", "its function _start has parameters", commandOf("", 0x60, 1, 0x7f, 0), ""},
		{"structures", "it uses garbage collection", append([]byte("\x00asm\x01\x00\x00\x00"), encode(1, 1, 0x5f, 0)...), ""},
		{"relaxed SIMD", "it uses relaxed SIMD", commandOf("\xfd\x80\x02", 0x60, 0, 0), ""},
		{"wide arithmetic", "it uses wide arithmetic", commandOf("\xfc\x13", 0x60, 0, 0), ""},
		{"other digest", "digest", module("c"), sha256Prefix + strings.Repeat("0", 64)},
		{"no digest", "sha256", module("c"), "sha256:../../x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{CacheDir: t.TempDir()}
			_, err := Ensure(context.Background(), o, writeModule(t, c.data), c.digest)
			if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want invalid argument with %q", err, c.want)
			}
			if got := names(t, o.CacheDir); len(got) != 0 {
				t.Errorf("cache holds %v", got)
			}
		})
	}
}

func TestEnsureFromManyProcessesMakesOneEntry(t *testing.T) {
	cache, path := t.TempDir(), writeModule(t, module("d"))
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			out, err := exec.Command("/proc/self/exe", "compile", "-cache", cache, path).CombinedOutput()
			if err != nil {
				t.Errorf("compile: %v: %s", err, out)
			}
		})
	}
	group.Wait()
	if got := names(t, cache); len(got) != 1 {
		t.Errorf("cache holds %v", got)
	}
}

func TestFaceExitCodes(t *testing.T) {
	cache := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "compile", "-cache", cache, writeModule(t, []byte("\x00asm\x0d\x00\x01\x00")))
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != exitRefused || strings.Contains(string(out), "invalid argument") {
		t.Errorf("component: %v: %s", err, out)
	}
	cmd = exec.Command("/proc/self/exe", "compile", "-cache", cache, "-nonsense")
	if _, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("unknown flag: %v", err)
	}
}
