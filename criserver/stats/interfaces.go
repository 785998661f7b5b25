package stats

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// readInterfaces reads the traffic of all interfaces but the loopback from a process's
// /proc/<pid>/net/dev. The process must be in the network namespace ns.
//
// # Errors
//
// fs.ErrNotExist if it does not exist or is in another namespace.
func readInterfaces(pid int, ns os.FileInfo) ([]Interface, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := kernelfile.Read(filepath.Join(dir, "net", "dev"))
	if err != nil {
		return nil, err
	}
	own, err := os.Stat(filepath.Join(dir, "ns", "net")) // after the file: it is the same process that is asked
	if err != nil || !os.SameFile(own, ns) {
		return nil, fmt.Errorf("process %d is in another network namespace: %w", pid, fs.ErrNotExist)
	}
	return parseInterfaces(text)
}

// parseInterfaces reads the form of /proc/net/dev: two lines of heading, then a line for each
// interface.
func parseInterfaces(text string) ([]Interface, error) {
	out := []Interface{}
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if n < 2 {
			continue
		}
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) < 12 {
			return nil, fmt.Errorf("line %q of /proc/net/dev", line)
		}
		if name = strings.TrimSpace(name); name == "lo" {
			continue
		}
		i := Interface{Name: name}
		for column, to := range map[int]*uint64{
			0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped,
			8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrs, 11: &i.TxDropped,
		} {
			v, err := strconv.ParseUint(f[column], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("line %q of /proc/net/dev: %w", line, err)
			}
			*to = v
		}
		out = append(out, i)
	}
	return out, nil
}
