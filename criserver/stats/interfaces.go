package stats

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// readInterfaces reads the traffic of all interfaces but the loopback from a process's
// /proc/<pid>/net/dev. The process must be in the network namespace ns.
//
// # Errors
//
// fs.ErrNotExist if it does not exist or is in another namespace.
func readInterfaces(pid int, ns *unix.Stat_t) ([]Interface, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	text, err := kernelfile.Read(dir + "/net/dev")
	if err != nil {
		return nil, err
	}
	var own unix.Stat_t // after the file: it is the same process that is asked
	if err := unix.Stat(dir+"/ns/net", &own); err != nil || own.Dev != ns.Dev || own.Ino != ns.Ino {
		return nil, fmt.Errorf("process %d is in another network namespace: %w", pid, fs.ErrNotExist)
	}
	return parseInterfaces(text)
}

// parseInterfaces reads the form of /proc/net/dev: two lines of heading, then a line for each
// interface.
func parseInterfaces(text string) ([]Interface, error) {
	out := []Interface{}
	heading := 2
	for line := range strings.Lines(text) {
		if heading--; heading >= 0 {
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); name == "lo" {
			continue
		}
		i := Interface{Name: name}
		figures := [...]*uint64{
			0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped,
			8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrs, 11: &i.TxDropped,
		}
		column := 0
		for figure := range strings.FieldsSeq(rest) {
			if column < len(figures) && figures[column] != nil {
				v, err := strconv.ParseUint(figure, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("line %q of /proc/net/dev: %w", line, err)
				}
				*figures[column] = v
			}
			column++
		}
		if column < len(figures) {
			return nil, fmt.Errorf("line %q of /proc/net/dev", line)
		}
		out = append(out, i)
	}
	return out, nil
}
