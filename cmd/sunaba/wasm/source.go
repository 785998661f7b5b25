// Package wasm is what `sunaba wasm` does with modules: say what one is, run one in the sandbox of
// guests, and compile some ahead of time. Modules come from files, or from images of a server or of
// its store.
package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"

	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/images"
)

// Source is where a module comes from.
type Source struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`               // one of the constants
	Image    string `json:"image,omitempty"`    // the image's id
	Platform string `json:"platform,omitempty"` // the image's
	Command  string `json:"command,omitempty"`  // what of an image is the module
}

// Kinds of sources.
const (
	SourceFile     = "file"
	SourceArtifact = "artifact"
	SourceImage    = "image with a module as its command"
)

// Module is a module to work on.
type Module struct {
	Source Source
	Path   string
	Digest string
	Bytes  []byte
}

// Reader gives the WebAssembly file of an image, as images.Service.ReadModule does.
type Reader interface {
	ReadModule(ctx context.Context, nameOrID, handler string, read func(images.ModuleFile, io.Reader) error) error
}

// IsFile says whether a name is that of a file; else it is an image's.
func IsFile(name string) (bool, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for module: %w", err)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("module %q is not a regular file: %w", name, errdefs.ErrInvalidArgument)
	}
	return true, nil
}

// ReadFile reads the module of a file.
func ReadFile(name string) (*Module, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open module: %w", err)
	}
	defer f.Close()
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	m := &Module{Source: Source{Name: name, Kind: SourceFile}, Path: path}
	return m, m.read(f)
}

// ReadImage reads the module of an image, and keeps it in dir, for those that want a file.
func ReadImage(ctx context.Context, store Reader, name, handler, dir string) (*Module, error) {
	m := &Module{Source: Source{Name: name}, Path: filepath.Join(dir, "module.wasm")}
	err := store.ReadModule(ctx, name, handler, func(f images.ModuleFile, content io.Reader) error {
		m.Source.Kind, m.Source.Command = SourceImage, f.Command
		if f.Digest != "" {
			m.Source.Kind = SourceArtifact
		}
		m.Source.Image, m.Source.Platform = f.Image.ID, platforms.FormatAll(f.Image.Platform)
		return m.read(content)
	})
	if errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("there is neither a file nor an image of that name: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(m.Path, m.Bytes, 0o600); err != nil {
		return nil, fmt.Errorf("keep module: %w", err)
	}
	return m, nil
}

func (m *Module) read(r io.Reader) error {
	data, err := regular.ReadAll(r, m.Source.Name, images.MaxModule)
	if err != nil {
		return fmt.Errorf("read module: %w", err)
	}
	sum := sha256.Sum256(data)
	m.Bytes, m.Digest = data, "sha256:"+hex.EncodeToString(sum[:])
	return nil
}
