package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/wazeroversion"
)

// buildReplaced builds the compile face with a folder in place of the module of wazero: the same
// code, of which nothing says that it is the same.
func buildReplaced(t *testing.T) string {
	t.Helper()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off")
		var complaint strings.Builder
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %q: %v: %s", args, err, complaint.String())
		}
		return strings.TrimSpace(string(out))
	}
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mod, program := filepath.Join(dir, "go.mod"), filepath.Join(dir, "compiler")
	run("mod", "edit", "-replace="+wazeroversion.Path+"="+run("list", "-m", "-f", "{{.Dir}}", wazeroversion.Path), mod)
	run("build", "-modfile="+mod, "-o", program, "./testdata/compiler")
	return program
}

// TestAnotherWazero compiles a module of Go's with a wazero that was not checked: nothing is
// rewritten and no step is taken that builds on the inside of wazero, and the module runs in the
// plain way.
func TestAnotherWazero(t *testing.T) {
	program, path := buildReplaced(t), buildGo(t)
	usual, err := Ensure(t.Context(), Options{CacheDir: t.TempDir()}, path, "")
	if err != nil {
		t.Fatal(err)
	}
	if usual.Go.Declined != "" || usual.Go.Rewritten == 0 || !usual.Load.Bare || usual.Load.CodeSize == 0 {
		t.Errorf("with the checked version: %+v, %+v", usual.Go, usual.Load)
	}
	cache := t.TempDir()
	if out, err := exec.Command(program, "compile", "-cache", cache, "-optimize-go", path).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, out)
	}
	dirs, err := filepath.Glob(filepath.Join(cache, hash(usual.Digest)+"-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("entries %v, %v", dirs, err)
	}
	if filepath.Base(dirs[0]) == filepath.Base(usual.Dir) {
		t.Error("the entry has the name of that of the checked version")
	}
	e, err := read(dirs[0], usual.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if why := e.Go.Declined; e.Go.Rewritten != 0 || !strings.Contains(why, wazeroversion.Checked) || !strings.Contains(why, "build it with") {
		t.Errorf("rewriting: %+v", e.Go)
	}
	if e.Load.Bare || e.Load.CodeSize != 0 {
		t.Errorf("load %+v", e.Load)
	}
	loadEntry(t, e.Dir)
	out, err := exec.Command(program, "link").Output()
	if err != nil || !strings.Contains(string(out), "build it with") {
		t.Errorf("linking says %q, %v", out, err)
	}
}

// A program makes no entry for another engine than its own: it would have that one's name.
func TestChildOfAnotherEngine(t *testing.T) {
	program := filepath.Join(t.TempDir(), "compiler")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./testdata/compiler")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	module := writeModule(t, []byte("\x00asm\x01\x00\x00\x00"+ // _start, which does nothing
		"\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x04\x01\x02\x00\x0b"))
	if _, err := Ensure(t.Context(), Options{CacheDir: t.TempDir(), Self: program}, module, ""); err != nil {
		t.Fatalf("asked by a program that does not tell: %v", err)
	}
	other := func(cmd *exec.Cmd) (func() int, error) {
		cmd.Args[2] = strings.TrimSuffix(cmd.Args[2], untold) + "0123456789ab"
		return startPlain(cmd)
	}
	_, err := Ensure(t.Context(), Options{CacheDir: t.TempDir(), Self: program, Start: other}, module, "")
	if err == nil || !strings.Contains(err.Error(), "install both of one release") {
		t.Errorf("asked for another engine: %v", err)
	}
}
