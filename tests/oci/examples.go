package oci

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Example is an image that the manifests of examples/ name: localhost:5000/sunaba/NAME:v1.
type Example struct {
	Name string
	// pack builds its programs from a folder of examples/ and returns an image, or an index.
	pack func(ctx context.Context, examples string) (v1.Image, v1.ImageIndex, error)
}

// Examples are all of them.
func Examples() []Example {
	inC := func(path string) func(context.Context, string) ([]byte, error) {
		return func(ctx context.Context, examples string) ([]byte, error) {
			return BuildC(ctx, filepath.Join(examples, path))
		}
	}
	return []Example{
		{"greeter", goExample("greeter")},
		{"batch", goExample("batch")},
		{"page", goExample("page")},
		{"tally", guestExample(module{"tally.wasm", inC("tally/tally.c")})},
		{"probes", guestExample(module{"worker.wasm", inC("probes/worker.c")}, module{"check.wasm", inC("probes/check.c")})},
		{"worker", func(ctx context.Context, examples string) (v1.Image, v1.ImageIndex, error) {
			program, err := inC("probes/worker.c")(ctx, examples)
			if err != nil {
				return nil, nil, err
			}
			image, err := NamedArtifact("worker.wasm", program)
			return image, nil, err
		}},
		{"filter", guestExample(module{"filter.wasm", func(ctx context.Context, examples string) ([]byte, error) {
			return BuildAssemblyScript(ctx, filepath.Join(examples, "filter"))
		}})},
		{"quantiles", guestExample(module{"quantiles.wasm", func(ctx context.Context, examples string) ([]byte, error) {
			return BuildRust(ctx, filepath.Join(examples, "quantiles/quantiles.rs"))
		}})},
		{"busybox", func(context.Context, string) (v1.Image, v1.ImageIndex, error) {
			image, err := Busybox(Host(), v1.Config{})
			return image, nil, err
		}},
	}
}

// Push builds the example from the folder of all examples and stores it in a registry. A compiler
// that is not there is ErrNoCompiler.
func (e Example) Push(ctx context.Context, r *Registry, examples string) (ref string, err error) {
	image, index, err := e.pack(ctx, examples)
	if err != nil {
		return "", fmt.Errorf("make image %q: %w", e.Name, err)
	}
	path := "sunaba/" + e.Name + ":v1"
	if index != nil {
		return r.PushIndex(ctx, path, index)
	}
	return r.Push(ctx, path, image)
}

// goExample is a program in Go, for Linux and as a guest.
func goExample(name string) func(context.Context, string) (v1.Image, v1.ImageIndex, error) {
	return func(ctx context.Context, examples string) (v1.Image, v1.ImageIndex, error) {
		index, err := ExampleIndex(ctx, filepath.Join(examples, name), name)
		return nil, index, err
	}
}

// module is a guest of an image.
type module struct {
	name  string
	build func(ctx context.Context, examples string) ([]byte, error)
}

// guestExample is an image of platform wasip1/wasm with modules, the first of which is its
// entrypoint.
func guestExample(modules ...module) func(context.Context, string) (v1.Image, v1.ImageIndex, error) {
	return func(ctx context.Context, examples string) (v1.Image, v1.ImageIndex, error) {
		var files []File
		for _, m := range modules {
			program, err := m.build(ctx, examples)
			if err != nil {
				return nil, nil, err
			}
			files = append(files, Program(m.name, program))
		}
		image, err := Packed(Wasip1, files[0], files[1:]...)
		return image, nil, err
	}
}
