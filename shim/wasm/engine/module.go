package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// errNotWasm is for a file that is there and is something else.
var errNotWasm = errors.New("not a WebAssembly module")

// Handles implements shim.Engine: a wasm artifact, or a root file system whose entry point starts
// with the four bytes of a wasm file. Where the caller has looked at it, it is not looked at here.
func (e *Engine) Handles(_ context.Context, b *shim.Bundle) (bool, error) {
	switch {
	case b.Spec == nil || b.Facts.Sandbox:
		return false, nil
	case b.Facts.Module.Path != "":
		return true, nil
	case b.Facts.Program != "":
		return b.Facts.Program == annotation.Wasm, nil
	case b.Rootfs == "" || b.Spec.Process == nil || len(b.Spec.Process.Args) == 0:
		return false, nil
	}
	f, err := findModule(b.Rootfs, b.Spec.Process)
	switch {
	case errors.Is(err, errdefs.ErrNotFound), errors.Is(err, errNotWasm):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at entry point of %q: %w", b.ID, err)
	}
	return true, f.Close()
}

// findModule opens the module that p runs, below root as the process would see it: by a path
// against its working directory, or by PATH, or at last in the working directory.
//
// # Errors
//
// ErrNotFound if there is no such file, errNotWasm if it is something else.
func findModule(root string, p *specs.Process) (*os.File, error) {
	f, err := regular.First(root, binfmt.Paths(p.Args[0], p.Cwd, p.Env))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Args[0], err)
	}
	if err := checkMagic(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return f, nil
}

func checkMagic(f *os.File) error {
	head := make([]byte, len(binfmt.WasmMagic))
	if n, _ := f.ReadAt(head, 0); !binfmt.IsWasm(head[:n]) {
		return errNotWasm
	}
	return nil
}

// fdPath is a path to what a descriptor of this process has open.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
