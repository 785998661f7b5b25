package usage

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Device is what was read from and written to one block device.
type Device struct {
	Major, Minor          uint64
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64 // operations
}

// devices1 reads the counters of version 1. Those of the throttling layer count whatever the
// scheduler is.
func devices1(g *cgroup.Group) []Device {
	var out []Device
	for _, file := range []struct{ name, unit string }{{"blkio.throttle.io_service_bytes", "bytes"}, {"blkio.throttle.io_serviced", ""}} {
		text, err := kernelfile.Read(g.File("blkio", file.name+"_recursive"))
		if err != nil {
			text, err = kernelfile.Read(g.File("blkio", file.name))
		}
		if err != nil {
			return out
		}
		out = count(out, text, file.unit)
	}
	return out
}

// Devices2 reads the counters of version 2.
func Devices2(g *cgroup.Group) []Device {
	text, _ := kernelfile.Read(g.File("io", "io.stat")) // what cannot be read is missing
	return count(nil, text, "")
}

// count adds what a file counts; its names do not say the unit in version 1.
func count(out []Device, text, unit string) []Device {
	for at, c := range DeviceCounts(text) {
		d := device(&out, at)
		switch unit + c.Name {
		case "bytesRead", "rbytes":
			d.ReadBytes = c.Value
		case "bytesWrite", "wbytes":
			d.WriteBytes = c.Value
		case "Read", "rios":
			d.Reads = c.Value
		case "Write", "wios":
			d.Writes = c.Value
		}
	}
	return out
}

// device finds or adds the entry of a device.
func device(list *[]Device, at DeviceNumber) *Device {
	i := slices.IndexFunc(*list, func(d Device) bool { return d.Major == at.Major && d.Minor == at.Minor })
	if i < 0 {
		i = len(*list)
		*list = append(*list, Device{Major: at.Major, Minor: at.Minor})
	}
	return &(*list)[i]
}

// DeviceNumber is the kernel's number of a block device.
type DeviceNumber struct{ Major, Minor uint64 }

// DeviceCount is what a file counts of a device under one name.
type DeviceCount struct {
	Name  string // as the kernel writes it: "Read" in version 1, "rbytes" in version 2
	Value uint64
}

// DeviceCounts are the counts in the text of a file about devices, in its order: lines of "8:0 Read
// 4096" in version 1, of "8:0 rbytes=4096 wbytes=0" in version 2. What has another form is skipped,
// such as the total of all devices.
func DeviceCounts(text string) iter.Seq2[DeviceNumber, DeviceCount] {
	return func(yield func(DeviceNumber, DeviceCount) bool) {
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			at, ok := deviceNumber(fields[0])
			if !ok {
				continue
			}
			counts := fields[1:]
			if len(counts) == 2 && !strings.Contains(counts[0], "=") {
				counts = []string{counts[0] + "=" + counts[1]}
			}
			for _, count := range counts {
				name, value, _ := strings.Cut(count, "=")
				n, err := strconv.ParseUint(value, 10, 64)
				if err == nil && !yield(at, DeviceCount{name, n}) {
					return
				}
			}
		}
	}
}

// deviceNumber reads "8:0".
func deviceNumber(text string) (DeviceNumber, bool) {
	a, b, ok := strings.Cut(text, ":")
	major, err1 := strconv.ParseUint(a, 10, 32)
	minor, err2 := strconv.ParseUint(b, 10, 32)
	return DeviceNumber{major, minor}, ok && err1 == nil && err2 == nil
}
