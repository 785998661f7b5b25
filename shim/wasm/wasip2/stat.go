package wasip2

import (
	"encoding/binary"
	"hash/fnv"
	"math"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// fileTypes maps types of files to the specification's descriptor-type.
var fileTypes = [...]uint8{
	wasi.TypeUnknown:         0,
	wasi.TypeBlockDevice:     1,
	wasi.TypeCharacterDevice: 2,
	wasi.TypeDirectory:       3,
	wasi.TypeFIFO:            4,
	wasi.TypeSymbolicLink:    5,
	wasi.TypeRegularFile:     6,
	wasi.TypeSocketDatagram:  7,
	wasi.TypeSocketStream:    7,
}

// putStat writes a descriptor-stat.
func putStat(c *canonical.Call, out uint32, st *unix.Stat_t) {
	c.Put8(out, fileTypes[wasi.TypeOf(st)])
	c.Put64(out+8, uint64(st.Nlink))
	c.Put64(out+16, uint64(st.Size))
	for i, t := range []unix.Timespec{st.Atim, st.Mtim, st.Ctim} {
		at := out + 24 + 24*uint32(i)
		seconds := int64(t.Sec)
		c.PutBool(at, seconds >= 0) // a datetime knows no time before 1970
		putDatetime(c, at+8, uint64(max(seconds, 0)), uint32(t.Nsec))
	}
}

// statOf is a call that puts what a descriptor is.
func statOf(put func(*canonical.Call, uint32, *unix.Stat_t)) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		var st unix.Stat_t
		if err := canonical.Get[*descriptor](c, p[0]).node.file.Stat(&st); err != nil {
			return err
		}
		put(c, out, &st)
		return nil
	}
}

// statAt is a call that puts what a path below a descriptor leads to.
func statAt(put func(*canonical.Call, uint32, *unix.Stat_t)) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		var st unix.Stat_t
		if err := lookUp(c, p, &st); err != nil {
			return err
		}
		put(c, out, &st)
		return nil
	}
}

// lookUp reads a descriptor, path-flags and a path from p, and fills in st of what they name.
func lookUp(c *canonical.Call, p []uint64, st *unix.Stat_t) error {
	dir, path, err := pathOf(c, p[0], p[2], p[3])
	if err != nil {
		return err
	}
	return dir.StatAt(path, follows(p[1]), st)
}

// putHash writes a metadata-hash-value. C libraries take it for the number of an inode, so it
// depends on the file's identity alone, as in wasmtime.
func putHash(c *canonical.Call, out uint32, st *unix.Stat_t) {
	identity := binary.LittleEndian.AppendUint64(nil, uint64(st.Dev))
	identity = binary.LittleEndian.AppendUint64(identity, st.Ino)
	hash := fnv.New128a()
	hash.Write(identity)
	sum := hash.Sum(nil)
	c.Put64(out, binary.BigEndian.Uint64(sum[8:]))
	c.Put64(out+8, binary.BigEndian.Uint64(sum))
}

func setTimes(c *canonical.Call, p []uint64, _ uint32) error {
	d := canonical.Get[*descriptor](c, p[0])
	times, err := timestamps(p[1:])
	if err != nil {
		return err
	}
	return d.node.file.SetTimes(&times)
}

func setTimesAt(c *canonical.Call, p []uint64, _ uint32) error {
	dir, path, err := pathOf(c, p[0], p[2], p[3])
	times, timesErr := timestamps(p[4:])
	if err != nil {
		return err
	}
	if timesErr != nil {
		return timesErr
	}
	return dir.SetTimesAt(path, follows(p[1]), &times)
}

// Cases of a new-timestamp.
const (
	timeNoChange uint32 = iota
	timeNow
	timeGiven
	timeCases
)

// timestamps reads the two new-timestamps of set-times: the case, seconds and nanoseconds of each.
func timestamps(p []uint64) (times [2]unix.Timespec, err error) {
	for i := range times {
		t, given := &times[i], p[3*i:]
		switch canonical.Discriminant(given[0], timeCases) {
		case timeNoChange:
			t.Nsec = unix.UTIME_OMIT
		case timeNow:
			t.Nsec = unix.UTIME_NOW
		case timeGiven:
			nanoseconds := uint32(given[2])
			carry := uint64(nanoseconds / 1e9)
			if given[1] > math.MaxInt64-carry || !set(&t.Sec, given[1]+carry) {
				err = unix.EOVERFLOW
				continue
			}
			set(&t.Nsec, uint64(nanoseconds%1e9))
		}
	}
	return times, err
}

// set sets a field whose size depends on the machine, and reports whether the value fits.
func set[T int32 | int64](field *T, v uint64) bool {
	*field = T(v)
	return uint64(*field) == v
}
