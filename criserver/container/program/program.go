// Package program looks at the program of a container in its image: what file it is, and whether
// anything can execute it.
package program

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	continuity "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/host/regular"
)

// headSize is how much of a program's file is looked at.
const headSize = 512

// Program is a file of an image that a command names.
type Program struct {
	Path string // below the root, links resolved
	Mode fs.FileMode
	head []byte // of a regular file
}

// Wasm says whether the file starts as a WebAssembly module does.
func (p Program) Wasm() bool { return binfmt.IsWasm(p.head) }

// LookUp reads what a name stands for in a root, as the container sees it: no link leads out.
func LookUp(root, name string) (p Program, err error) {
	f, err := regular.OpenIn(root, name)
	if errdefs.IsInvalidArgument(err) {
		return irregular(root, name)
	}
	if err != nil {
		return p, err
	}
	defer f.Close()
	return read(root, f)
}

// read reads what is known of a file of a root.
func read(root string, f *os.File) (p Program, err error) {
	info, err := f.Stat()
	if err != nil {
		return p, err
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return p, err
	}
	p = Program{Path: below(root, at), Mode: info.Mode(), head: make([]byte, headSize)}
	n, err := io.ReadFull(f, p.head)
	p.head = p.head[:n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return p, err
}

// irregular is LookUp for what is no regular file.
func irregular(root, name string) (Program, error) {
	at, err := continuity.RootPath(root, name)
	if err != nil {
		return Program{}, err
	}
	info, err := os.Lstat(at)
	if err != nil {
		return Program{}, err
	}
	return Program{Path: below(root, at), Mode: info.Mode()}, nil
}

// below is a path of the host as the root's processes see it.
func below(root, at string) string { return path.Join("/", strings.TrimPrefix(at, root)) }

// First is the first of a container's possible programs that is a regular file.
//
// # Errors
//
// ErrNotFound without one.
func First(root string, names []string) (Program, error) {
	f, err := regular.First(root, names)
	if err != nil {
		return Program{}, err
	}
	defer f.Close()
	return read(root, f)
}
