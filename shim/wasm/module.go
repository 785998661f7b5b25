package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
)

// defaultPath is searched when the environment has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// errNotWasm is for a file that is there and is something else.
var errNotWasm = errors.New("not a WebAssembly module")

// Handles implements shim.Engine: a wasm artifact, or a root file system whose entry point begins with
// the four bytes of a wasm file.
func (e *Engine) Handles(_ context.Context, b *shim.Bundle) (bool, error) {
	switch {
	case b.Spec == nil || b.Spec.Annotations[shim.AnnotationContainerType] == shim.ContainerTypeSandbox:
		return false, nil
	case b.Spec.Annotations[shim.AnnotationWasmModule] != "":
		return true, nil
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

// findModule opens the module that p runs, below root as the process would see it: by a path against its
// working directory, or by PATH, or at last in the working directory.
//
// # Errors
//
// ErrNotFound if there is no such file, errNotWasm if it is something else.
func findModule(root string, p *specs.Process) (*os.File, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(fd)
	for _, name := range candidates(p) {
		f, err := openBeneath(fd, name)
		if errors.Is(err, errdefs.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := checkMagic(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("%s: no such file: %w", p.Args[0], errdefs.ErrNotFound)
}

// candidates are the paths that args[0] may mean, absolute in the container.
func candidates(p *specs.Process) []string {
	name := p.Args[0]
	if strings.Contains(name, "/") {
		if path.IsAbs(name) {
			return []string{name}
		}
		return []string{path.Join("/", p.Cwd, name)}
	}
	search := defaultPath
	for _, v := range p.Env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			search = value
		}
	}
	var all []string
	for _, dir := range append(strings.Split(search, ":"), p.Cwd) {
		if !path.IsAbs(dir) {
			dir = path.Join("/", p.Cwd, dir)
		}
		all = append(all, path.Join(dir, name))
	}
	return all
}

// openBeneath opens a regular file with root as its root, whatever links on the way say.
func openBeneath(root int, name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC, // neither a FIFO nor a device notices
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(root, name, &how)
	for errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat2(root, name, &how)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return nil, fmt.Errorf("%s: %w: %w", name, err, errdefs.ErrNotFound)
	case err != nil:
		return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "fstat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s: not a regular file: %w", name, errdefs.ErrNotFound)
	}
	return os.Open(fdPath(fd))
}

func checkMagic(f *os.File) error {
	head := make([]byte, 4)
	if n, _ := f.ReadAt(head, 0); n < len(head) || !bytes.Equal(head, []byte("\x00asm")) {
		return errNotWasm
	}
	return nil
}

// fdPath is a path to what a descriptor of this process has open.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
