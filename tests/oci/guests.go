package oci

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// BuildGo compiles the Go program in the package folder dir for one platform, without cgo, and returns
// the program's bytes.
func BuildGo(ctx context.Context, dir string, platform v1.Platform) ([]byte, error) {
	return build(ctx, dir, []string{"CGO_ENABLED=0", "GOOS=" + platform.OS, "GOARCH=" + platform.Architecture},
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o")
}

// BuildC compiles one C file to a WASI preview 1 guest with clang and wasi-libc and returns its bytes.
func BuildC(ctx context.Context, file string) ([]byte, error) {
	dir, base := filepath.Split(file)
	return build(ctx, dir, nil, "clang", "--target=wasm32-wasi", "-O2", "-Wl,--strip-all", base, "-o")
}

// build runs command in dir with the name of an output file appended and returns that file's content.
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

// ExampleIndex builds the Go example in dir for linux/amd64, linux/arm64 and wasip1/wasm and packs it
// as an index; name is the program's name in the image.
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
		layer, err := Layer(Program(file, program))
		if err != nil {
			return nil, err
		}
		image, err := Image(platform, v1.Config{Entrypoint: []string{"/" + file}}, layer)
		if err != nil {
			return nil, err
		}
		variants = append(variants, Variant{Platform: platform, Image: image})
	}
	return Index(variants...)
}
