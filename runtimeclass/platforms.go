package runtimeclass

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// DefaultPlatforms returns what a handler of this type runs when its configuration names no
// platforms, most wanted first. WebAssembly images are published under several names; a wasm
// handler takes any of them, modules before components, and then the host's own, for the Linux
// containers of its pods.
func DefaultPlatforms(t Type) []ocispec.Platform {
	host := platforms.DefaultSpec()
	if t != WASM {
		return []ocispec.Platform{host}
	}
	return []ocispec.Platform{
		{OS: "wasip1", Architecture: "wasm"},
		{OS: "wasi", Architecture: "wasm"},
		{OS: "wasi", Architecture: "wasm32"},
		{OS: "linux", Architecture: "wasm"},
		{OS: "wasip2", Architecture: "wasm"},
		host,
	}
}

// ParsePlatforms reads platforms as they stand in a configuration ("linux/arm/v7", "wasip1/wasm")
// and returns them in normal form, in the same order. "host" stands for the machine's own platform.
//
// # Errors
//
// ErrInvalidArgument, for one that cannot be read or is listed twice.
func ParsePlatforms(names []string) ([]ocispec.Platform, error) {
	var out []ocispec.Platform
	for _, name := range names {
		p, err := parsePlatform(name)
		if err != nil {
			return nil, fmt.Errorf("parse platform %q: %w: %w", name, err, errdefs.ErrInvalidArgument)
		}
		same := func(q ocispec.Platform) bool { return platforms.FormatAll(p) == platforms.FormatAll(q) }
		if slices.ContainsFunc(out, same) {
			return nil, invalid("platform %q is listed twice", name)
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePlatform(name string) (ocispec.Platform, error) {
	if name == "host" {
		return platforms.DefaultSpec(), nil
	}
	p, err := platforms.Parse(name)
	if err != nil {
		return ocispec.Platform{}, err
	}
	return platforms.Normalize(p), nil
}
