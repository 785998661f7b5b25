package usage

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// HugePages is what is used of pages of one size, in bytes.
type HugePages struct {
	Size        string // as cgroup files are named: "2MB"
	Usage, Peak uint64
	HasPeak     bool // version 2 keeps none
}

// hugePages reads the use of huge pages, where the kernel counts it.
func (r *Reader) hugePages(g *cgroup.Group) []HugePages {
	root, current := r.mounts.Unified, "current"
	if root == "" && r.mounts.V1["hugetlb"] != "" {
		root, current = r.mounts.V1["hugetlb"], "usage_in_bytes"
	} else if root == "" {
		root = r.mounts.Hybrid
	}
	if root == "" {
		return nil
	}
	var out []HugePages
	for _, size := range r.pageSizes {
		prefix := filepath.Join(root, g.Path(), "hugetlb."+size+".")
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
	text, err := kernelfile.ReadRecord(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(text), 10, 64)
}
