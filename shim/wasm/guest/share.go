package guest

import (
	"errors"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/linear"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// openImage opens the file with the memory's first content.
func (p *process) openImage() error {
	l := p.config.Load
	if l.ImageSize == 0 {
		return nil
	}
	f, err := os.Open(path.Join(p.guest.cache, compile.ImageName))
	if err != nil {
		return faultf(link.Stale, "open image of memory: %w", err)
	}
	// Beyond its end a mapping of it would not be memory.
	if info, err := f.Stat(); err != nil || uint64(info.Size()) < l.ImageSize {
		f.Close()
		return faultf(link.Stale, "image of memory is short")
	}
	p.guest.memory.SetImage(linear.Image{File: f, At: l.ImageAt, Size: l.ImageSize})
	return nil
}

// share links the machine code that all guests of the module have in common into wazero, where the
// entry has a stub of it. It is run as it is, so every byte is checked before. The pages that this
// reads are released again, because they would all count as memory of this process.
func (p *process) share() error {
	l := p.config.Load
	if l.CodeSize == 0 {
		return nil
	}
	code, shared, err := mapCode(path.Join(p.guest.cache, compile.CodeName), l.CodeSize)
	if err != nil {
		return faultf(link.Stale, "map machine code: %w", err)
	}
	if compile.Sum(code) != l.CodeSum {
		return faultf(link.Stale, "machine code is damaged")
	}
	if shared {
		_ = unix.Madvise(code, unix.MADV_DONTNEED) // it stays in the page cache
	}
	offsets, err := compile.Offsets(p.guest.cache)
	if err == nil {
		err = compile.LinkCode(p.guest.compiled, code, offsets)
	}
	if err != nil {
		return faultf(link.Stale, "link machine code: %w", err)
	}
	p.guest.code, p.guest.shared = code, shared
	return nil
}

// mapCode maps a file of machine code, or, from a mount that forbids that, makes a private copy of
// it.
func mapCode(name string, size uint64) (code []byte, shared bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	// Beyond its end a mapping of it would not be memory.
	if info, err := f.Stat(); err != nil || uint64(info.Size()) < size {
		return nil, false, errors.New("file is short")
	}
	code, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err == nil {
		return code, true, nil
	}
	if code, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return nil, false, err
	}
	if _, err = io.ReadFull(f, code); err == nil {
		err = unix.Mprotect(code, unix.PROT_READ|unix.PROT_EXEC)
	}
	return code, false, err
}
