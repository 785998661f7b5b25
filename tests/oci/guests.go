package oci

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// BuildGo compiles the Go program in the package folder dir for one platform, without cgo, and
// returns the program's bytes.
func BuildGo(ctx context.Context, dir string, platform v1.Platform) ([]byte, error) {
	return build(ctx, dir, []string{"CGO_ENABLED=0", "GOOS=" + platform.OS, "GOARCH=" + platform.Architecture},
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o")
}

// BuildC compiles one C file to a WASI preview 1 guest with clang and wasi-libc and returns its
// bytes.
func BuildC(ctx context.Context, file string) ([]byte, error) {
	dir, base := filepath.Split(file)
	return build(ctx, dir, nil, "clang", "--target=wasm32-wasi", "-O2", "-Wl,--strip-all", base, "-o")
}

// ErrNoCompiler is for a language whose compiler tests/setup.sh could not install.
var ErrNoCompiler = errors.New("its compiler is missing: run tests/setup.sh --tests")

// BuildAssemblyScript compiles the AssemblyScript project in dir, as its `npm run build` does, and
// returns the guest's bytes; ErrNoCompiler without its node_modules.
func BuildAssemblyScript(ctx context.Context, dir string) ([]byte, error) {
	const compiler = "node_modules/assemblyscript/bin/asc.js"
	if !exists(filepath.Join(dir, compiler)) {
		return nil, fmt.Errorf("build %q: %w (it needs node, npm and npm's registry)", dir, ErrNoCompiler)
	}
	return build(ctx, dir, nil, "node", compiler, "assembly/index.ts", "--target", "release", "-o")
}

// BuildRust compiles one Rust file to a WASI preview 1 guest, with the packages of Debian that
// tests/setup.sh has unpacked into .cache/rust of the folder that holds go.mod; ErrNoCompiler
// without them.
func BuildRust(ctx context.Context, file string) ([]byte, error) {
	dir, base := filepath.Split(file)
	root, err := findAbove(dir, ".cache/rust/usr")
	if err != nil {
		return nil, fmt.Errorf("build %q: %w", file, err)
	}
	libraries, err := filepath.Glob(filepath.Join(root, "lib/*/librustc_driver-*.so"))
	if err != nil || len(libraries) != 1 {
		return nil, fmt.Errorf("build %q: %w (%q has %d compilers)", file, ErrNoCompiler, root, len(libraries))
	}
	return build(ctx, dir, []string{"LD_LIBRARY_PATH=" + filepath.Dir(libraries[0])},
		filepath.Join(root, "bin/rustc"), "--sysroot", root, "--target", "wasm32-wasi", "-O", "-C", "linker=wasm-ld", "-C", "strip=symbols", base, "-o")
}

// findAbove finds a path in dir or one of the folders above it.
func findAbove(dir, path string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if found := filepath.Join(dir, path); exists(found) {
			return found, nil
		}
	}
	return "", fmt.Errorf("%w: no %s", ErrNoCompiler, path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// build runs command in dir with the name of an output file appended and returns that file's
// content.
func build(ctx context.Context, dir string, env []string, command ...string) ([]byte, error) {
	temp, err := os.MkdirTemp("", "sunaba-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	output := filepath.Join(temp, "program")
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], output)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %q: %w\n%s", dir, err, said)
	}
	return os.ReadFile(output)
}

// Packed is an image of a program, which is its entrypoint, and of other files.
func Packed(platform v1.Platform, program File, others ...File) (v1.Image, error) {
	layer, err := Layer(append([]File{program}, others...)...)
	if err != nil {
		return nil, err
	}
	return Image(platform, v1.Config{Entrypoint: []string{"/" + program.Name}}, layer)
}

// PackedC compiles one C file and packs the guest, with other files.
func PackedC(ctx context.Context, file string, others ...File) (v1.Image, error) {
	module, err := BuildC(ctx, file)
	if err != nil {
		return nil, err
	}
	return Packed(Wasip1, Program("guest.wasm", module), others...)
}

// ExampleIndex builds the Go example in dir for linux/amd64, linux/arm64 and wasip1/wasm and packs
// it as an index; name is the program's name in the image.
func ExampleIndex(ctx context.Context, dir, name string) (v1.ImageIndex, error) {
	var variants []Variant
	for _, platform := range []v1.Platform{LinuxAMD64, LinuxARM64, Wasip1} {
		program, err := BuildGo(ctx, dir, platform)
		if err != nil {
			return nil, err
		}
		file := name
		if platform.Architecture == "wasm" {
			file += ".wasm"
		}
		image, err := Packed(platform, Program(file, program))
		if err != nil {
			return nil, err
		}
		variants = append(variants, Variant{Platform: platform, Image: image})
	}
	return Index(variants...)
}

// Renamed is a module with a part that means nothing, so that no module with another name has its
// digest.
func Renamed(module []byte, name string) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return slices.Concat(module, []byte{0, byte(len(body))}, body)
}

//go:embed testdata/component.wasm
var component []byte

// Component is a command of WASI 0.2 as a component, testdata/component.c: it prints words, ends with a
// code, traps or serves TCP.
func Component() []byte { return slices.Clone(component) }
