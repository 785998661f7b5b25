package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Device is what was read from and written to one block device.
type Device struct {
	Major, Minor          uint64
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64 // operations
}

// devices1 reads the counters of version 1. Those of the throttling layer count whatever the scheduler is.
func (r *Reader) devices1(cg string) []Device {
	var out []Device
	for i, name := range []string{"blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"} {
		data, err := readFile(r.hierarchy.File(cg, "blkio", name+"_recursive"))
		if err != nil {
			data, err = readFile(r.hierarchy.File(cg, "blkio", name))
		}
		if err != nil {
			return out
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line) // "8:0 Read 4096"
			if len(f) != 3 {
				continue
			}
			n, err := strconv.ParseUint(f[2], 10, 64)
			if err != nil {
				continue
			}
			d := device(&out, f[0])
			switch {
			case d == nil:
			case f[1] == "Read" && i == 0:
				d.ReadBytes = n
			case f[1] == "Write" && i == 0:
				d.WriteBytes = n
			case f[1] == "Read":
				d.Reads = n
			case f[1] == "Write":
				d.Writes = n
			}
		}
	}
	return out
}

// devices2 reads "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0" lines.
func (r *Reader) devices2(cg string) []Device {
	data, err := readFile(r.hierarchy.File(cg, "io", "io.stat"))
	if err != nil {
		return nil
	}
	var out []Device
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		d := device(&out, f[0])
		if d == nil {
			continue
		}
		for _, pair := range f[1:] {
			key, value, _ := strings.Cut(pair, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			switch key {
			case "rbytes":
				d.ReadBytes = n
			case "wbytes":
				d.WriteBytes = n
			case "rios":
				d.Reads = n
			case "wios":
				d.Writes = n
			}
		}
	}
	return out
}

// device finds or adds the entry of "8:0", nil for anything else.
func device(list *[]Device, number string) *Device {
	a, b, ok := strings.Cut(number, ":")
	major, err1 := strconv.ParseUint(a, 10, 32)
	minor, err2 := strconv.ParseUint(b, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return nil
	}
	i := slices.IndexFunc(*list, func(d Device) bool { return d.Major == major && d.Minor == minor })
	if i < 0 {
		i = len(*list)
		*list = append(*list, Device{Major: major, Minor: minor})
	}
	return &(*list)[i]
}

// DeviceNames knows what block devices are called. It remembers the answers.
type DeviceNames struct{ names sync.Map }

// Name is a device's path, such as /dev/sda; its number where it has none.
func (n *DeviceNames) Name(major, minor uint64) string {
	number := fmt.Sprintf("%d:%d", major, minor)
	if name, ok := n.names.Load(number); ok {
		return name.(string)
	}
	target, err := os.Readlink("/sys/dev/block/" + number)
	if err != nil {
		return number // it may get one
	}
	name := "/dev/" + filepath.Base(target)
	n.names.Store(number, name)
	return name
}

// HugePages is what is used of pages of one size, in bytes.
type HugePages struct {
	Size        string // as cgroup files are named: "2MB"
	Usage, Peak uint64
	HasPeak     bool // version 2 keeps none
}

// hugePages reads the use of huge pages, where the kernel counts it.
func (r *Reader) hugePages(cg string) []HugePages {
	root, current := r.hierarchy.Unified, "current"
	if root == "" && r.hierarchy.V1["hugetlb"] != "" {
		root, current = r.hierarchy.V1["hugetlb"], "usage_in_bytes"
	} else if root == "" {
		root = r.hierarchy.Hybrid
	}
	if root == "" {
		return nil
	}
	var out []HugePages
	for _, size := range r.pageSizes {
		prefix := filepath.Join(root, cg, "hugetlb."+size+".")
		usage, err := readNumber(prefix + current)
		if err != nil {
			continue
		}
		h := HugePages{Size: size, Usage: usage}
		if current == "usage_in_bytes" {
			h.Peak, err = readNumber(prefix + "max_usage_in_bytes")
			h.HasPeak = err == nil
		}
		out = append(out, h)
	}
	return out
}

func readNumber(file string) (uint64, error) {
	data, err := readFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// pageSizes are the sizes of huge pages that the machine has, as cgroup files are named.
func pageSizes(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		switch {
		case err != nil:
		case kb >= 1<<20:
			out = append(out, fmt.Sprintf("%dGB", kb>>20))
		case kb >= 1<<10:
			out = append(out, fmt.Sprintf("%dMB", kb>>10))
		default:
			out = append(out, fmt.Sprintf("%dKB", kb))
		}
	}
	return out
}
