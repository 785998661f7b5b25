package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// openMaps opens this process's list of mappings while /proc is in sight: share may want it.
func (p *process) openMaps() {
	// Without it nothing is shared, and that is all.
	p.guest.maps, _ = os.Open("/proc/self/maps")
}

// openImage opens the file that the memory begins with.
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
	p.guest.memory.image = image{file: f, at: l.ImageAt, size: l.ImageSize}
	return nil
}

// share exchanges this process's own copy of the machine code for the file that all guests of the module have in common.
// Where wazero has put its copy is found by looking; what is not equal in every byte is left alone. So
// is everything if something is not as it was thought to be: then the code is private, and runs.
func (p *process) share() {
	if p.guest.maps == nil {
		return
	}
	defer p.guest.maps.Close()
	if p.config.Load.CodeSize == 0 {
		return
	}
	f, err := os.Open(path.Join(p.guest.cache, compile.CodeName))
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || uint64(info.Size()) < p.config.Load.CodeSize {
		return
	}
	// Executable, although it is only read here: what the mount forbids is found out before anything is touched.
	code, err := unix.Mmap(int(f.Fd()), 0, int(p.config.Load.CodeSize), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return
	}
	defer func() { _ = unix.Munmap(code) }() // ours, just mapped
	list, err := io.ReadAll(p.guest.maps)
	if err != nil {
		return
	}
	if at, size := findCopy(anonymousCode(string(list)), code); at != nil {
		p.guest.shared = overlay(at, size, f) == nil
	}
}

// span is a range of this process's memory.
type span struct{ from, to uintptr }

// anonymousCode lists the private anonymous mappings that can be read and executed and not written, from the
// lines of /proc/self/maps: "from-to rights offset device inode path".
func anonymousCode(maps string) []span {
	var found []span
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[1] != "r-xp" || fields[4] != "0" || len(fields) > 5 && !strings.HasPrefix(fields[5], "[anon:") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		low, err1 := strconv.ParseUint(from, 16, strconv.IntSize)
		high, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
		if err1 == nil && err2 == nil && low < high {
			found = append(found, span{uintptr(low), uintptr(high)})
		}
	}
	return found
}

// findCopy looks for code in these ranges, at the beginning of any page: neighbours are listed as one. The code ends within
// its last page, and zeros follow, in the file (up to the largest page size there is) as in memory.
func findCopy(ranges []span, code []byte) (at unsafe.Pointer, size uintptr) {
	page := uintptr(os.Getpagesize())
	size = roundUp(uintptr(len(bytes.TrimRight(code, "\x00"))), page)
	if code = code[:size]; size == 0 {
		return nil, 0
	}
	for _, r := range ranges {
		for from := r.from; from+size <= r.to; from += page {
			// The kernel has just said that this can be read, nobody unmaps code, and it is no memory of Go's.
			at := *(*unsafe.Pointer)(unsafe.Pointer(&from))
			memory := unsafe.Slice((*byte)(at), size)
			if bytes.Equal(memory[:page], code[:page]) && bytes.Equal(memory, code) {
				return at, size
			}
		}
	}
	return nil, 0
}

func roundUp(n, to uintptr) uintptr { return (n + to - 1) / to * to }

// overlay maps the beginning of a file, which is equal to the memory at this address, over it.
func overlay(at unsafe.Pointer, size uintptr, file *os.File) error {
	got, err := unix.MmapPtr(int(file.Fd()), 0, at, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED|unix.MAP_FIXED)
	if err == nil && got != at {
		err = errors.New("code was mapped elsewhere")
	}
	return err
}
