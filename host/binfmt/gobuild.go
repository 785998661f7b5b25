package binfmt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
// formats: 300 KB. Only the program's writable segments are read, where the linker puts the header:
// they are a small part of the file. A program for any address may have two.
//
// # Errors
//
// ErrNotFound where the program does not tell.
func GoModules(file string) (*debug.BuildInfo, error) {
	f, err := os.Open(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read build: %w: %w", err, errdefs.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("read build: %w", err)
	}
	defer f.Close()
	head := make([]byte, binary.Size(elf.Header64{}))
	if n, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read build: %w", err)
	} else if !bytes.HasPrefix(head[:n], []byte(elf.ELFMAG)) {
		return nil, fmt.Errorf("read build of %q: it is no program: %w", file, errdefs.ErrNotFound)
	}
	for _, part := range segments(f, head, func(kind elf.ProgType, flags elf.ProgFlag) bool { return kind == elf.PT_LOAD && flags&elf.PF_W != 0 }) {
		for _, most := range []uint64{16 << 10, part.size} { // it is at the start, if the linker is Go's own
			data, err := readPart(f, extent{part.at, min(part.size, most)})
			if err != nil {
				return nil, fmt.Errorf("read build of %q: %w", file, err)
			}
			if info, ok := findGoBuild(data); ok {
				return info, nil
			}
		}
	}
	return nil, fmt.Errorf("read build of %q: it does not tell: %w", file, errdefs.ErrNotFound)
}

// readPart reads a segment from the last aligned address before it.
func readPart(f *os.File, part extent) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if length := uint64(info.Size()); length > maxGoProgram || part.at > length || part.size > length-part.at {
		return nil, fmt.Errorf("it has no proper size: %w", errdefs.ErrNotFound)
	}
	before := part.at % goBuildAlign // in memory a segment has the same place in its page
	data := make([]byte, before+part.size)
	_, err = f.ReadAt(data, int64(part.at-before))
	return data, err
}

// findGoBuild reads the first header in aligned data that tells.
func findGoBuild(data []byte) (*debug.BuildInfo, bool) {
	for at := 0; at < len(data); at += goBuildAlign {
		next := bytes.Index(data[at:], []byte(goBuildMagic))
		if next < 0 {
			return nil, false
		}
		if at += next; at%goBuildAlign != 0 { // a constant of a program that reads such headers
			at -= at % goBuildAlign
			continue
		}
		if info, ok := goBuild(data[at:]); ok {
			return info, true
		}
	}
	return nil, false
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
