package memory

import (
	"debug/elf"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keys of the auxiliary vector: see getauxval(3).
const (
	auxHeaders    = 3 // AT_PHDR
	auxHeaderSize = 4 // AT_PHENT
	auxHeaderNum  = 5 // AT_PHNUM
)

// UnmapProgram lets the process forget the pages of its code and constants that it has looked at.
// They are clean pages of a file: nothing is lost, and a page that is needed is mapped again by its
// next use. What starts a process looks at most of the program, which nothing looks at again.
func UnmapProgram() {
	parts := programParts()
	for _, p := range parts { // last, and by itself: whatever runs from here on is mapped again
		_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, p.start, p.length, unix.MADV_DONTNEED)
	}
}

// part is a range of addresses.
type part struct{ start, length uintptr }

// programParts are the parts of the program that are never written, by the headers that the kernel
// tells each process of: a guest process has no /proc. nil where it tells of none.
func programParts() []part {
	vector, err := unix.Auxv()
	if err != nil {
		return nil
	}
	var at, size, number uintptr
	for _, pair := range vector {
		switch pair[0] {
		case auxHeaders:
			at = pair[1]
		case auxHeaderSize:
			size = pair[1]
		case auxHeaderNum:
			number = pair[1]
		}
	}
	if at == 0 || size != unsafe.Sizeof(header{}) {
		return nil
	}
	return partsOf(unsafe.Slice((*header)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), number), at, uintptr(os.Getpagesize()))
}

// partsOf reads program headers that lie at an address.
func partsOf(headers []header, at, page uintptr) []part {
	var base uintptr // how far from its addresses the program lies
	for _, h := range headers {
		if h.Type == uint32(elf.PT_PHDR) {
			base = at - uintptr(h.Vaddr)
		}
	}
	var parts []part
	for _, h := range headers {
		if h.Type != uint32(elf.PT_LOAD) || h.Flags&uint32(elf.PF_W) != 0 || h.Filesz == 0 {
			continue
		}
		start := (base + uintptr(h.Vaddr)) &^ (page - 1)
		end := (base + uintptr(h.Vaddr) + uintptr(h.Filesz) + page - 1) &^ (page - 1)
		parts = append(parts, part{start, end - start})
	}
	return parts
}
