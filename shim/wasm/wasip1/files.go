package wasip1

import (
	"math"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

func fdRead(h *Host, mem api.Memory, p []uint64) error {
	return h.vectored(mem, p, rightFdRead, 0, p[3], func(f *wasi.File, b wasi.Buffers, _ int64) (int, error) {
		return f.Read(b)
	})
}

func fdWrite(h *Host, mem api.Memory, p []uint64) error {
	return h.vectored(mem, p, rightFdWrite, 0, p[3], func(f *wasi.File, b wasi.Buffers, _ int64) (int, error) {
		return f.Write(b)
	})
}

func fdPread(h *Host, mem api.Memory, p []uint64) error {
	return h.vectored(mem, p, rightFdRead|rightFdSeek, p[3], p[4], (*wasi.File).ReadAt)
}

func fdPwrite(h *Host, mem api.Memory, p []uint64) error {
	return h.vectored(mem, p, rightFdWrite|rightFdSeek, p[3], p[4], (*wasi.File).WriteAt)
}

// vectored does what all reading and writing has in common: p starts with the descriptor and the
// list of buffers, and how many bytes call has moved is written to result. The calls refer to
// nothing around them: they are made often.
func (h *Host) vectored(mem api.Memory, p []uint64, needed rights, offset, result uint64,
	call func(*wasi.File, wasi.Buffers, int64) (int, error)) error {
	d, err := h.table.get(p[0], needed)
	if err != nil {
		return err
	}
	out, err := Record(mem, result, 4)
	if err != nil {
		return err
	}
	if offset > math.MaxInt64 {
		return unix.EINVAL
	}
	buffers, err := h.Buffers(mem, p[1], p[2])
	if err != nil {
		return err
	}
	n, err := call(d.file, buffers, int64(offset))
	h.Release()
	put32(out, uint32(n))
	return err
}

func fdSeek(h *Host, mem api.Memory, p []uint64) error {
	need := rightFdSeek
	if uint8(p[2]) == seekCurrent && p[1] == 0 {
		need = rightFdTell
	}
	d, err := h.table.seekable(p[0], need)
	if err != nil {
		return err
	}
	if uint32(p[2]) > uint32(seekEnd) {
		return unix.EINVAL
	}
	return seek(d.file, mem, int64(p[1]), uint8(p[2]), p[3])
}

func fdTell(h *Host, mem api.Memory, p []uint64) error {
	d, err := h.table.seekable(p[0], rightFdTell)
	if err != nil {
		return err
	}
	return seek(d.file, mem, 0, seekCurrent, p[1])
}

// seek moves a file's offset; the specification numbers the origins as Linux does.
func seek(f *wasi.File, mem api.Memory, offset int64, whence uint8, result uint64) error {
	out, err := Record(mem, result, 8)
	if err != nil {
		return err
	}
	position, err := f.Seek(offset, int(whence))
	if err != nil {
		return err
	}
	put64(out, uint64(position))
	return nil
}

// advices maps the specification's numbers to those of posix_fadvise.
var advices = [...]int{
	unix.FADV_NORMAL, unix.FADV_SEQUENTIAL, unix.FADV_RANDOM, unix.FADV_WILLNEED, unix.FADV_DONTNEED, unix.FADV_NOREUSE,
}

func fdAdvise(_ *Host, d *descriptor, _ api.Memory, p []uint64) error {
	if p[1] > math.MaxInt64 || p[2] > math.MaxInt64 || uint32(p[3]) >= uint32(len(advices)) {
		return unix.EINVAL
	}
	return d.file.Advise(int64(p[1]), int64(p[2]), advices[uint32(p[3])])
}

func fdAllocate(_ *Host, d *descriptor, _ api.Memory, p []uint64) error {
	if p[1] > math.MaxInt64 || p[2] > math.MaxInt64 || p[2] == 0 {
		return unix.EINVAL
	}
	return d.file.Allocate(int64(p[1]), int64(p[2]))
}

// on is a function whose first parameter is a descriptor, for which it needs rights.
func on(need rights, do func(*Host, *descriptor, api.Memory, []uint64) error) func(*Host, api.Memory, []uint64) error {
	return func(h *Host, mem api.Memory, p []uint64) error {
		d, err := h.table.get(p[0], need)
		if err != nil {
			return err
		}
		return do(h, d, mem, p)
	}
}

// onFile is a function that does something with a file, for which it needs a right.
func onFile(need rights, do func(*wasi.File) error) func(*Host, api.Memory, []uint64) error {
	return on(need, func(_ *Host, d *descriptor, _ api.Memory, _ []uint64) error { return do(d.file) })
}
