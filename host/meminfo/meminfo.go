// Package meminfo reads how much memory the node has.
package meminfo

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Names of sizes (proc_meminfo(5)). Available is the kernel's estimate of what can be used without
// swapping.
const (
	Total     = "MemTotal"
	Available = "MemAvailable"
)

// Read returns the sizes in bytes that the meminfo of a /proc names, by their names.
//
// # Errors
//
// ErrDataLoss if the total is missing; else those of the file.
func Read(proc string) (map[string]int64, error) {
	path := filepath.Join(proc, "meminfo")
	text, err := kernelfile.Read(path)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		if kb, err := strconv.ParseInt(fields[1], 10, 53); err == nil {
			sizes[strings.TrimSuffix(fields[0], ":")] = kb << 10
		}
	}
	if sizes[Total] <= 0 {
		return nil, fmt.Errorf("read %q: it has no %s: %w", path, Total, errdefs.ErrDataLoss)
	}
	return sizes, nil
}
