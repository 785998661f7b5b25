// Package program finds the WebAssembly module that an image runs, and looks at its first bytes.
package program

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/host/regular"
)

// ReadHeader returns the first bytes of a file that tell what kind of WebAssembly it is, fewer if
// it is shorter.
func ReadHeader(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	defer f.Close()
	header := make([]byte, binfmt.WasmHeader)
	n, err := io.ReadFull(f, header)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("read module: %w", err)
	}
	return header[:n], nil
}

// IsCompressed reports whether content starts as gzip or zstd do.
func IsCompressed(header []byte) bool {
	return bytes.HasPrefix(header, []byte{0x1f, 0x8b}) || bytes.HasPrefix(header, []byte{0x28, 0xb5, 0x2f, 0xfd})
}

// Command is what a container of an image runs unless it says otherwise: its entrypoint with the
// arguments.
func Command(c ocispec.ImageConfig) []string { return slices.Concat(c.Entrypoint, c.Cmd) }

// OpenEntrypoint opens the regular file that an image's command names. It looks for it where an OCI
// runtime does.
func OpenEntrypoint(dir string, c ocispec.ImageConfig) (*os.File, error) {
	command := Command(c)
	if len(command) == 0 || command[0] == "" {
		return nil, fmt.Errorf("no command: %w", errdefs.ErrNotFound)
	}
	f, err := regular.First(dir, binfmt.Paths(command[0], c.WorkingDir, c.Env))
	if err != nil {
		return nil, fmt.Errorf("command %q: %w", command[0], err)
	}
	return f, nil
}
