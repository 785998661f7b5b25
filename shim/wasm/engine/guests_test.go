package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// run runs a command through the reaper, which takes every child of this process.
func (w *world) run(t testing.TB, env []string, name string, args ...string) {
	t.Helper()
	out, err := os.CreateTemp(w.dir, "out-")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	child, err := w.reaper.Start(cmd)
	if err != nil {
		t.Fatalf("run %s: %v", name, err)
	}
	<-child.Done
	if code, _ := child.Status(); code != 0 {
		text, _ := os.ReadFile(out.Name())
		t.Fatalf("run %s %v: exit code %d: %s", name, args, code, text)
	}
}

// sources are guests that are not in testdata/NAME.c, testdata/NAME/ (in Go) or
// ../../examples/NAME/ (in Go).
var sources = map[string]string{
	"guest":     "../../../examples/c/guest.c",
	"tally":     "../../../examples/tally/tally.c",
	"worker":    "../../../examples/probes/worker.c",
	"quantiles": "../../../examples/quantiles/quantiles.rs",
	"filter":    "../../../examples/filter/assembly/index.ts",
	"program":   "../wasip1/testdata/program",
	"component": "../../../tests/oci/testdata/component.wasm",
	"http":      "../../../tests/oci/testdata/http.wasm",
	"service":   "../serve/testdata/service.wasm",
	"adapted":   "../component/testdata/hello.wasm", // bare as a component
	"bare":      "../component/testdata/hello.c",
}

// build returns the path of a built guest. What tests/setup.sh could not install a compiler for is
// skipped.
func (w *world) build(t testing.TB, name string) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if path := w.built[name]; path != "" {
		return path
	}
	source := sources[name]
	for _, candidate := range []string{"testdata/" + name + ".c", "./testdata/" + name, "../../../examples/" + name} {
		if _, err := os.Stat(candidate); err == nil && source == "" {
			source = candidate
		}
	}
	out := filepath.Join(w.dir, name+".wasm")
	switch filepath.Ext(source) {
	case ".c":
		level := "-O2"
		if name == "bare" {
			w.run(t, nil, "clang", "--target=wasm32-wasi", "-nostdlib", "-Os", "-Wl,--no-entry", "-Wl,--strip-all", "-o", out, source)
			break
		}
		if name == "trap" {
			level = "-O0" // from 1 on clang calls wasm-opt, where there is one, which drops the names
		}
		w.run(t, nil, "clang", "--target=wasm32-wasi", "--sysroot=/usr", level, "-Wl,--strip-debug", "-o", out, source)
	case ".wasm":
		out = source
	case ".rs":
		w.buildRust(t, out, source)
	case ".ts":
		const project = "../../../examples/filter"
		if _, err := os.Stat(project + "/node_modules/assemblyscript"); err != nil {
			t.Skip("AssemblyScript's compiler is missing: run tests/setup.sh (it needs node, npm and npm's registry)")
		}
		w.run(t, nil, "sh", "-c", `cd "$0" && exec node node_modules/assemblyscript/bin/asc.js assembly/index.ts --target release -o "$1"`, project, out)
	default:
		w.run(t, []string{"GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-buildvcs=false -trimpath"}, "go", "build", "-o", out, source)
	}
	w.built[name] = out
	return out
}

// buildRust uses what tests/setup.sh has unpacked of Debian's packages.
func (w *world) buildRust(t testing.TB, out, source string) {
	t.Helper()
	root, err := filepath.Abs("../../../.cache/rust/usr")
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := filepath.Glob(filepath.Join(root, "lib/*/librustc_driver-*.so"))
	if err != nil || len(libraries) != 1 {
		t.Skipf("Rust's compiler is missing: run tests/setup.sh (%d in %s, %v)", len(libraries), root, err)
	}
	w.run(t, []string{"LD_LIBRARY_PATH=" + filepath.Dir(libraries[0])}, filepath.Join(root, "bin/rustc"),
		"--sysroot", root, "--target", "wasm32-wasi", "-O", "-C", "linker=wasm-ld", "-o", out, source)
}
