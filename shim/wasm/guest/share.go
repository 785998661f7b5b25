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

// machineCode is the code that all guests of a module have in common.
type machineCode struct {
	code    []byte
	offsets []int // of its functions
	shared  bool
	err     error
}

// fetchCode maps that code, where the entry has a stub of it, and checks it beside what loading
// does meanwhile: a module of 15,000 functions has 30 MB. The code is run as it is, so that every
// byte is checked before. The pages that this reads are released again, because they would all
// count as memory of this process.
func fetchCode(cache string, l compile.Load) <-chan machineCode {
	fetched := make(chan machineCode, 1)
	name := path.Join(cache, compile.CodeName)
	if l.CodeSize >= worthAProcessor {
		runtime.GOMAXPROCS(processors)
	}
	go func() {
		var c machineCode
		if l.CodeSize > 0 {
			c.code, c.shared, c.err = mapCode(name, l.CodeSize)
		}
		if c.err == nil && compile.Sum(c.code) != l.CodeSum { // 0 of no code
			c.err = errors.New("it is damaged")
		}
		if c.shared {
			_ = unix.Madvise(c.code, unix.MADV_DONTNEED) // it stays in the page cache
		}
		if c.err == nil && c.code != nil {
			c.offsets, c.err = compile.Offsets(cache)
		}
		fetched <- c
	}()
	return fetched
}

// share links that code into wazero.
func (p *process) share(c machineCode) error {
	if c.err == nil && c.code != nil {
		c.err = compile.LinkCode(p.guest.compiled, c.code, c.offsets)
	}
	if c.err != nil {
		return faultf(link.Stale, "link machine code: %w", c.err)
	}
	p.guest.code, p.guest.shared = c.code, c.shared
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
