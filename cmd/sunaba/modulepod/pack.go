// Package modulepod makes a pod of a WebAssembly module in one step: it packs the module as an image,
// stores that, and runs it.
package modulepod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	show "github.com/sunaba-project/sunaba/cmd/sunaba/images"
	"github.com/sunaba-project/sunaba/cmd/sunaba/wasm"
	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/pack"
	"github.com/sunaba-project/sunaba/images/program"
	"github.com/sunaba-project/sunaba/shim/wasm/inspect"
)

// IsModule says whether a name is that of a WebAssembly file, by its first bytes.
func IsModule(name string) bool {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return false
	}
	header, err := program.ReadHeader(name)
	return err == nil && binfmt.IsWasm(header)
}

// Name is what the image of a module is called that nobody has named: localhost/NAME:local, by its
// file. No pod pulls it anew by default, as it would with the tag latest.
func Name(file string) string {
	return "localhost/" + label(file) + ":local"
}

// label makes a name of a file's that images and pods may have.
func label(file string) string {
	base := strings.ToLower(strings.TrimSuffix(filepath.Base(file), ".wasm"))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, base)
	for strings.Contains(clean, "--") {
		clean = strings.ReplaceAll(clean, "--", "-")
	}
	clean = strings.Trim(clean[:min(len(clean), 40)], "-")
	if clean == "" {
		return "module"
	}
	return clean
}

// Check says why a module would be refused, by its sections, and what an artifact tells of a
// component.
//
// # Errors
//
// ErrInvalidArgument with all reasons.
func Check(file string) (*manifest.Component, error) {
	m, err := wasm.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := inspect.Module(m.Bytes)
	if len(r.Refused) > 0 {
		return nil, fmt.Errorf("pack %q: %s (see sunaba wasm inspect): %w", file, strings.Join(r.Refused, "; "), errdefs.ErrInvalidArgument)
	}
	if r.Component == nil {
		return nil, nil
	}
	c := &manifest.Component{Imports: []string{}, Exports: []string{}}
	for _, i := range r.Component.Imports {
		c.Imports = append(c.Imports, i.Name)
	}
	for _, e := range r.Component.Exports {
		c.Exports = append(c.Exports, e.Name)
	}
	slices.Sort(c.Imports)
	slices.Sort(c.Exports)
	return c, nil
}

// New makes the image of a module that has passed Check.
func New(ctx context.Context, o pack.Options) (*pack.Image, error) {
	component, err := Check(o.Module)
	if err != nil {
		return nil, err
	}
	o.Component = component
	return pack.New(ctx, o)
}

// Store stores an image, as an import does: each handler's variant, checked, unpacked and compiled.
func Store(ctx context.Context, store control.Store, img *pack.Image, handler string, progress *show.Progress) ([]images.Image, error) {
	r, w := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := img.Write(ctx, w)
		w.CloseWithError(err)
		wrote <- err
	}()
	imgs, err := store.Import(ctx, images.ImportRequest{Reader: r, Handler: handler, Progress: progress.Show})
	r.Close()
	progress.End()
	if werr := <-wrote; werr != nil && err != nil && !errors.Is(werr, io.ErrClosedPipe) {
		err = werr
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("store image %q: %w", img.Name(), ctx.Err())
	}
	return imgs, err
}

// Exported calls use with the layout of an image of the store.
func Exported(ctx context.Context, store control.Store, name string, use func(*layout.Layout) error) (err error) {
	dir, err := os.MkdirTemp("", "sunaba-linux-")
	if err != nil {
		return fmt.Errorf("make folder for image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "image.tar")
	if err := show.Export(nil, file, func(w io.Writer) error { return store.ExportTo(ctx, []string{name}, w) }); err != nil {
		return err
	}
	l, err := layout.Open(ctx, file, dir)
	if err != nil {
		return err
	}
	defer l.Close()
	return use(l)
}
