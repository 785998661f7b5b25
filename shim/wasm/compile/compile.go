// Package compile keeps the node's compiled modules: a cache of entries that are made once, in an
// unprivileged process, and verified whenever they are read.
package compile

import (
	"context"
	"errors"
)

// Options says where the cache is and which binary has the compile face.
type Options struct {
	CacheDir string
	Self     string // "" = this process's own binary
}

// Entry is a compiled module.
type Entry struct {
	Dir           string // directory to hand to the guest process, read-only
	Digest        string // of the module as it came, "sha256:…"
	StartFunction bool   // instantiating the module runs its code
}

// Ensure returns the entry of the module at path, compiling it if need be.
func Ensure(ctx context.Context, o Options, path, digest string) (Entry, error) {
	return Entry{}, errors.New("compile")
}

// Drop removes every entry of a module.
func Drop(cacheDir, digest string) error { return nil }

// Main runs the compile face and returns the process's exit code.
func Main(args []string) int { return 1 }
