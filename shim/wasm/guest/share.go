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

// linkCode maps the machine code that all guests of the module have in common, where the entry has a
// stub of it, and links it into wazero. The engine checks it meanwhile, and lets no guest start
// before. Only what is run is looked at here, because every page that is would count as memory of
// this process.
func (g *guest) linkCode(l compile.Load) (err error) {
	if l.CodeSize == 0 {
		return nil
	}
	var offsets []int
	if g.code, g.shared, err = mapCode(path.Join(g.cache, compile.CodeName), l.CodeSize); err == nil {
		offsets, err = compile.Offsets(g.cache)
	}
	if err == nil {
		err = compile.LinkCode(g.compiled, g.code, offsets)
	}
	if err != nil {
		return faultf(link.Stale, "link machine code: %w", err)
	}
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
	code, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
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
