// Package program finds the WebAssembly module that an image runs, and looks at its first bytes.
package program

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/host/regular"
)

// CheckHeader refuses what cannot run by the first eight bytes of a binary: the
// magic number, and the version that tells core modules from components.
//
// # Errors
//
// ErrInvalidArgument, with a text for the one who built the image.
func CheckHeader(header []byte) error {
	switch {
	case len(header) < 8 || !binfmt.IsWasm(header):
		return fmt.Errorf("the layer is not a WebAssembly binary: %w", errdefs.ErrInvalidArgument)
	case string(header[4:8]) == "\x0d\x00\x01\x00":
		return fmt.Errorf("the WebAssembly binary is a component, and components do not run yet; "+
			"core modules for WASI preview 1 (wasip1) are accepted: %w", errdefs.ErrInvalidArgument)
	case string(header[4:8]) != "\x01\x00\x00\x00":
		return fmt.Errorf("the WebAssembly binary has unknown version % x; "+
			"core modules for WASI preview 1 (wasip1) are accepted: %w", header[4:8], errdefs.ErrInvalidArgument)
	}
	return nil
}

// ReadHeader returns the first eight bytes of a file, fewer if it is shorter.
func ReadHeader(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	defer f.Close()
	header := make([]byte, 8)
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

// OpenEntrypoint opens the regular file that an image's command names. It looks for it where an OCI
// runtime does.
func OpenEntrypoint(dir string, c ocispec.ImageConfig) (*os.File, error) {
	command := append(append([]string{}, c.Entrypoint...), c.Cmd...)
	if len(command) == 0 || command[0] == "" {
		return nil, fmt.Errorf("no command: %w", errdefs.ErrNotFound)
	}
	for _, name := range binfmt.Paths(command[0], c.WorkingDir, c.Env) {
		f, err := regular.OpenIn(dir, name)
		if err == nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("command %q: %w", command[0], fs.ErrNotExist)
}
