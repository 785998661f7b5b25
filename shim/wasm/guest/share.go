package guest

import (
	"errors"
	"io"
	"os"
	"path"
	"runtime"

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

// worthAProcessor is the size of machine code that is checked on a processor of its own, in bytes.
const worthAProcessor = 4 << 20

// fetchCode maps the machine code that all guests of the module have in common, where the entry has
// a stub of it, and checks it beside what loading does meanwhile: a module of 15,000 functions has
// 30 MB. It is run as it is, so that every byte is checked before. The pages that this reads are
// released again, because they would all count as memory of this process. share links the code into
// wazero.
func (g *guest) fetchCode(l compile.Load) (share func() error) {
	if l.CodeSize == 0 {
		return func() error { return nil }
	}
	if l.CodeSize >= worthAProcessor {
		runtime.GOMAXPROCS(processors)
	}
	var err error
	var offsets []int
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		if g.code, g.shared, err = mapCode(path.Join(g.cache, compile.CodeName), l.CodeSize); err != nil {
			return
		}
		if compile.Sum(g.code) != l.CodeSum {
			err = errors.New("it is damaged")
			return
		}
		if g.shared {
			_ = unix.Madvise(g.code, unix.MADV_DONTNEED) // it stays in the page cache
		}
		offsets, err = compile.Offsets(g.cache)
	}()
	return func() error {
		if <-fetched; err == nil {
			err = compile.LinkCode(g.compiled, g.code, offsets)
		}
		if err != nil {
			return faultf(link.Stale, "link machine code: %w", err)
		}
		return nil
	}
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
