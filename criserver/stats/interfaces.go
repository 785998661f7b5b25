package stats

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// Interface is the traffic of one network interface.
type Interface struct {
	Name                               string
	RxBytes, RxErrors, TxBytes, TxErrs uint64
	RxPackets, RxDropped               uint64
	TxPackets, TxDropped               uint64
}

// Interfaces reads the traffic of all interfaces but the loopback of the network namespace pinned
// at path. pids are processes that should be in it: one of them spares entering the namespace.
func Interfaces(path string, pids ...int) ([]Interface, error) {
	var pin, own unix.Stat_t
	missing := unix.Stat(path, &pin)
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid)
		text, err := kernelfile.Read(dir + "/net/dev")
		// After the file: it is the same process that is asked.
		if err == nil && missing == nil && unix.Stat(dir+"/ns/net", &own) == nil && own.Dev == pin.Dev && own.Ino == pin.Ino {
			return parseInterfaces(text)
		}
	}
	var text string
	err := netns.Do(path, func() (err error) {
		text, err = kernelfile.Read("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("measure interfaces: %w", err)
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
