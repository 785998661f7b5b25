package binfmt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/containerd/errdefs"
)

// The header that the Go linker writes before what a program was built of, since Go 1.18: the
// magic, a size that is not used, flags, and 16 bytes that are not used. Two strings follow, each
// after its length as a varint.
const (
	goBuildMagic  = "\xff Go buildinf:"
	goBuildAlign  = 16
	goBuildFlags  = 15
	goBuildHeader = 32
	goBuildInline = 2  // the flag of this format
	goBuildFrame  = 16 // bytes before and behind the second string
)

// maxGoProgram bounds the programs that are looked at, in bytes.
const maxGoProgram = 256 << 20

// GoModules says which modules a Go program of Linux was built of. The standard library's
// debug/buildinfo says it of programs of any system, for which it links the readers of all their
// formats: 300 KB.
//
// # Errors
//
// ErrNotFound where the program does not tell.
func GoModules(file string) (*debug.BuildInfo, error) {
	if info, err := os.Stat(file); err != nil || info.Size() > maxGoProgram {
		return nil, fmt.Errorf("read build of %q: it has no proper size: %w", file, errdefs.ErrNotFound)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read build: %w", err)
	}
	for at := 0; ; at += goBuildAlign {
		next := bytes.Index(data[at:], []byte(goBuildMagic))
		if next < 0 {
			return nil, fmt.Errorf("read build of %q: it does not tell: %w", file, errdefs.ErrNotFound)
		}
		if at += next; at%goBuildAlign != 0 { // a constant of a program that reads such headers
			at -= at % goBuildAlign
			continue
		}
		if info, ok := goBuild(data[at:]); ok {
			return info, nil
		}
	}
}

// goBuild reads what starts with the magic.
func goBuild(data []byte) (*debug.BuildInfo, bool) {
	if len(data) < goBuildHeader || data[goBuildFlags]&goBuildInline == 0 {
		return nil, false
	}
	_, rest, ok := goString(data[goBuildHeader:]) // the version of Go
	if !ok {
		return nil, false
	}
	modules, _, ok := goString(rest)
	if !ok || len(modules) < 2*goBuildFrame {
		return nil, false
	}
	info, err := debug.ParseBuildInfo(string(modules[goBuildFrame : len(modules)-goBuildFrame]))
	return info, err == nil
}

// goString reads a string behind its length.
func goString(data []byte) (text, rest []byte, ok bool) {
	length, n := binary.Uvarint(data)
	if n <= 0 || length > uint64(len(data)-n) {
		return nil, nil, false
	}
	return data[n : n+int(length)], data[n+int(length):], true
}
