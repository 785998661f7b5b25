package wasip1

import (
	"math"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// putFilestat writes a filestat record.
func putFilestat(out []byte, st *unix.Stat_t, filetype wasi.Type) {
	clear(out)
	put64(out, uint64(st.Dev))
	put64(out[8:], uint64(st.Ino))
	out[16] = filetypes[filetype]
	put64(out[24:], uint64(st.Nlink))
	put64(out[32:], uint64(st.Size))
	put64(out[40:], wasi.Nanoseconds(st.Atim))
	put64(out[48:], wasi.Nanoseconds(st.Mtim))
	put64(out[56:], wasi.Nanoseconds(st.Ctim))
}

func fdFilestatGet(_ *Host, d *descriptor, mem api.Memory, p []uint64) error {
	out, err := Record(mem, p[1], sizeFilestat)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := d.file.Stat(&st); err != nil {
		return err
	}
	putFilestat(out, &st, d.file.Type())
	return nil
}

func fdFilestatSetSize(_ *Host, d *descriptor, _ api.Memory, p []uint64) error {
	if p[1] > math.MaxInt64 {
		return unix.EINVAL
	}
	return d.file.SetSize(int64(p[1]))
}

func fdFilestatSetTimes(_ *Host, d *descriptor, _ api.Memory, p []uint64) error {
	times, err := timespecs(p[1], p[2], p[3])
	if err != nil {
		return err
	}
	return d.file.SetTimes(&times)
}

func pathFilestatGet(h *Host, mem api.Memory, p []uint64) error {
	d, path, err := h.pathOf(mem, p[0], p[2], p[3], rightPathFilestatGet)
	if err != nil {
		return err
	}
	out, err := Record(mem, p[4], sizeFilestat)
	if err != nil {
		return err
	}
	follow, err := getLookup(p[1])
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := d.StatAt(path, follow, &st); err != nil {
		return err
	}
	putFilestat(out, &st, wasi.TypeOf(&st))
	return nil
}

func pathFilestatSetTimes(h *Host, mem api.Memory, p []uint64) error {
	d, path, err := h.pathOf(mem, p[0], p[2], p[3], rightPathFilestatSetTimes)
	if err != nil {
		return err
	}
	follow, err := getLookup(p[1])
	if err != nil {
		return err
	}
	times, err := timespecs(p[4], p[5], p[6])
	if err != nil {
		return err
	}
	return d.SetTimesAt(path, follow, &times)
}

// timespecs reads the arguments of the set_times functions.
func timespecs(access, modify, flags uint64) ([2]unix.Timespec, error) {
	var times [2]unix.Timespec
	set := uint16(flags)
	both := func(a, b uint16) bool { return set&a != 0 && set&b != 0 }
	if uint32(flags)&^uint32(timesAll) != 0 || both(timeAccess, timeAccessNow) || both(timeModify, timeModifyNow) {
		return times, unix.EINVAL
	}
	fill := func(t *unix.Timespec, value uint64, exact, now uint16) error {
		switch {
		case set&exact != 0:
			if value > math.MaxInt64 {
				return unix.EOVERFLOW
			}
			*t = unix.NsecToTimespec(int64(value))
			if int64(t.Sec) != int64(value/1e9) {
				return unix.EOVERFLOW // 32-bit kernels' seconds
			}
		case set&now != 0:
			t.Nsec = unix.UTIME_NOW
		default:
			t.Nsec = unix.UTIME_OMIT
		}
		return nil
	}
	if err := fill(&times[0], access, timeAccess, timeAccessNow); err != nil {
		return times, err
	}
	return times, fill(&times[1], modify, timeModify, timeModifyNow)
}
