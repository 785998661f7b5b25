package spec

import (
	"fmt"
	"strconv"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxList bounds a list of processors or memory nodes, in bytes.
const maxList = 4 << 10

// CheckSets refuses processors and memory nodes that the host does not have, or has switched off.
// The kernel would refuse them when the container is made, with a number for an error.
//
// # Errors
//
// ErrInvalidArgument, starting with the field below the message.
func CheckSets(r *runtime.LinuxContainerResources, host Host) error {
	for _, set := range []struct{ field, list, online string }{
		{"cpuset_cpus", r.GetCpusetCpus(), host.CPUs}, {"cpuset_mems", r.GetCpusetMems(), host.MemoryNodes},
	} {
		if set.list == "" || set.online == "" {
			continue
		}
		if len(set.list) > maxList {
			return invalid(set.field, "it has %d bytes, more than %d", len(set.list), maxList)
		}
		online := map[uint64]bool{}
		if err := eachOf(set.online, func(n uint64) error { online[n] = true; return nil }); err != nil {
			return fmt.Errorf("read what is online: %w", err)
		}
		err := eachOf(set.list, func(n uint64) error {
			if !online[n] {
				return fmt.Errorf("%d is not on this host, which has %s", n, set.online)
			}
			return nil
		})
		if err != nil {
			return invalid(set.field, "%q: %v", set.list, err)
		}
	}
	return nil
}

// eachOf calls visit with each number of a list, until it returns an error. The list has the form
// of cpuList: in "0-31:2/4" the first two of each four are meant.
func eachOf(list string, visit func(uint64) error) error {
	for part := range strings.SplitSeq(list, ",") {
		bounds, stride, _ := strings.Cut(part, ":")
		from, to, isRange := strings.Cut(bounds, "-")
		if !isRange {
			to = from
		}
		used, group, isStrided := strings.Cut(stride, "/")
		if !isStrided {
			used, group = "1", "1"
		}
		var n [4]uint64
		for i, text := range []string{from, to, used, group} {
			var err error
			if n[i], err = strconv.ParseUint(text, 10, 32); err != nil {
				return fmt.Errorf("%.20q is no number of one", text)
			}
		}
		if n[0] > n[1] || n[2] == 0 || n[2] > n[3] {
			return fmt.Errorf("%.100q selects none", part)
		}
		for at := n[0]; at <= n[1]; at++ {
			if (at-n[0])%n[3] >= n[2] {
				continue
			}
			if err := visit(at); err != nil {
				return err
			}
		}
	}
	return nil
}
