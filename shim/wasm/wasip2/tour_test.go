package wasip2

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// tour compiles a C program in testdata.
func tour(t *testing.T, name string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), name+".wasm")
	cmd := exec.Command("clang", "--target=wasm32", "-O1", "-nostdlib", "-Wl,--no-entry", "-o", out, "testdata/"+name+".c")
	return wasitest.Build(t, cmd, out)
}

// runTour runs a lowered component and returns what it printed and how it ended.
func runTour(t *testing.T, module []byte, dir string, args ...string) (string, error) {
	t.Helper()
	in, input := pipe(t)
	output, outEnd := pipe(t)
	input.WriteString("input")
	input.Close()
	i := newInstance(t, Config{
		Args: append([]string{"tour.wasm"}, args...), Env: []string{"A=1"}, Stdin: fd(t, in), Stdout: fd(t, outEnd), Stderr: -1,
		Preopens: []Preopen{{FD: wasitest.OpenDir(t, dir), Name: "/home"}},
	})
	ctx := canonical.With(context.Background(), i.ABI())
	r := wasitest.Runtime(ctx)
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	var imports []canonical.Import
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.Import{Module: module, Name: name, Options: canonical.Options{Realloc: "cabi_realloc"}})
	}
	if err := canonical.Provide(ctx, r, imports, World()); err != nil {
		t.Fatal(err)
	}
	mod, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig())
	if err != nil {
		t.Fatal(err)
	}
	printed := make(chan string)
	go func() { b, _ := io.ReadAll(output); printed <- string(b) }()
	err = start(ctx, mod)
	outEnd.Close()
	return <-printed, err
}

// start calls wasi:cli/run as a lowered component's _start does.
func start(ctx context.Context, mod api.Module) error {
	for name, f := range mod.ExportedFunctionDefinitions() {
		if !strings.HasPrefix(name, "wasi:cli/run@") {
			continue
		}
		results, err := mod.ExportedFunction(f.ExportNames()[0]).Call(ctx)
		if err == nil && uint32(results[0]) == 1 {
			err = sys.NewExitError(1)
		}
		return err
	}
	return errors.New("no wasi:cli/run")
}

// TestTour compares what a guest sees with what it sees under wasmtime, line by line.
func TestTour(t *testing.T) {
	got, err := runTour(t, tour(t, "tour"), t.TempDir())
	var exit *sys.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("ended with %v", err)
	}
	likeWasmtime(t, got, "testdata/tour.txt")
}

// TestSocketTour is TestTour for sockets: all states, options and addresses.
func TestSocketTour(t *testing.T) {
	got, err := runTour(t, tour(t, "sockets"), t.TempDir())
	if err != nil {
		t.Errorf("ended with %v", err)
	}
	likeWasmtime(t, got, "testdata/sockets.txt")
}

func likeWasmtime(t *testing.T, got, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(got, "\n")
	for i, want := range strings.Split(string(text), "\n") {
		if i >= len(lines) || lines[i] != want {
			t.Errorf("line %d:\ngot  %s\nwant %s", i+1, strings.Join(lines[min(i, len(lines)):min(i+1, len(lines))], ""), want)
		}
	}
}

// TestTrapsOfTheTour are those of wasmtime, each with a text.
func TestTrapsOfTheTour(t *testing.T) {
	module := tour(t, "tour")
	for arg, want := range map[string]string{
		"children": "wasi:io/streams@0.2.12#[resource-drop]input-stream: handle index 3 dropped: the resource has children",
		"unknown":  "unknown handle index 1234",
		"zero":     "unknown handle index 0",
		"type":     "handle index 3 used with the wrong type",
		"twice":    "unknown handle index 3",
		"empty":    "the list of pollables is empty",
		"long":     "4097 bytes written where 4096 are permitted",
		"zeroes":   "4097 zeroes written where 4096 are permitted",
		"bounds":   "out of bounds of memory",
		"aligned":  "not aligned to 4",
		"result":   "not aligned to 4",
		"utf8":     "not UTF-8",
		"advice":   "unexpected discriminant 6",
		"random":   "67108865 random bytes",
	} {
		_, err := runTour(t, module, t.TempDir(), arg)
		var trap *canonical.Trap
		if !errors.As(err, &trap) || !strings.Contains(trap.Error(), want) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	_, err := runTour(t, module, t.TempDir(), "error")
	var exit *sys.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("run that returns an error: %v", err)
	}
}
