package oci

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/components"
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

// BuildComponent compiles one C file as BuildC does and makes a component of it; ErrNoCompiler
// without what Adapted needs.
func BuildComponent(ctx context.Context, file string) ([]byte, error) {
	cache, err := findAbove(filepath.Dir(file), ".cache/components")
	if err != nil {
		return nil, fmt.Errorf("build %q: %w", file, err)
	}
	module, err := BuildC(ctx, file)
	if err != nil {
		return nil, err
	}
	return Adapted(ctx, module, filepath.Join(cache, "../.."))
}

// Adapted makes a component of a preview 1 module by the adapter for commands; ErrNoCompiler
// without what tests/components.sh fetches for the checkout whose root folder is given.
func Adapted(ctx context.Context, module []byte, root string) ([]byte, error) {
	tools, err := components.Find(root)
	if err != nil {
		return nil, fmt.Errorf("make component: %w: %w", ErrNoCompiler, err)
	}
	temp, err := os.MkdirTemp("", "sunaba-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	from, to := filepath.Join(temp, "module"), filepath.Join(temp, "component")
	if err := os.WriteFile(from, module, 0o600); err != nil {
		return nil, err
	}
	if err := tools.Adapt(ctx, from, to); err != nil {
		return nil, fmt.Errorf("make component: %w", err)
	}
	return os.ReadFile(to)
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
// content. What is built in the project's own folders is built once for all packages of a run
// (binaries.SharedFolder): its sources do not change meanwhile.
func build(ctx context.Context, dir string, env []string, command ...string) ([]byte, error) {
	file, err := sharedFile(dir, env, command)
	if err != nil {
		return nil, fmt.Errorf("build %q: %w", dir, err)
	}
	if file == "" {
		return buildAnew(ctx, dir, env, command)
	}
	lock, err := os.Create(file + ".lock")
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := durable.WaitLock(lock); err != nil {
		return nil, fmt.Errorf("build %q: %w", dir, err)
	}
	program, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return program, err
	}
	if program, err = buildAnew(ctx, dir, env, command); err != nil {
		return nil, err
	}
	return program, durable.Replace(file, program, 0o600)
}

// sharedFile is where the run keeps what a command builds in a folder of the project, "" where it
// keeps nothing.
func sharedFile(dir string, env, command []string) (string, error) {
	folder := binaries.SharedFolder("guests")
	if folder == "" {
		return "", nil
	}
	module, err := findAbove(".", "go.mod")
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil || !strings.HasPrefix(dir, filepath.Dir(module)+"/") {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", dir, env, command))
	return filepath.Join(folder, hex.EncodeToString(sum[:])), os.MkdirAll(folder, 0o755)
}

// buildAnew is build each time.
func buildAnew(ctx context.Context, dir string, env, command []string) ([]byte, error) {
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

//go:embed testdata/http.wasm
var httpComponent []byte

// HTTPComponent is a component of WASI 0.2 that answers HTTP requests, testdata/http.c: what each
// path does is told there.
func HTTPComponent() []byte { return slices.Clone(httpComponent) }

//go:embed testdata/component.wasm
var component []byte

// Component is a command of WASI 0.2 as a component, testdata/component.c, which says what it does.
func Component() []byte { return slices.Clone(component) }
