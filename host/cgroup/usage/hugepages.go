package usage

import "github.com/sunaba-project/sunaba/host/cgroup"

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
	in := (&cgroup.Mounts{Unified: root}).Group(g.Path()) // whatever the hierarchy is
	var out []HugePages
	for _, size := range r.pageSizes {
		prefix := "hugetlb." + size + "."
		usage, err := in.Number("", prefix+current)
		if err != nil {
			continue
		}
		h := HugePages{Size: size, Usage: usage}
		if current == "usage_in_bytes" {
			h.Peak, err = in.Number("", prefix+"max_usage_in_bytes")
			h.HasPeak = err == nil
		}
		out = append(out, h)
	}
	return out
}
