package stats

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
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
	if len(pids) > 0 {
		var pin unix.Stat_t
		if err := unix.Stat(path, &pin); err != nil {
			return nil, fmt.Errorf("open network namespace %q: %w", path, err)
		}
		for _, pid := range pids {
			if links, err := readInterfaces(pid, &pin); err == nil {
				return links, nil
			}
		}
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %q: %w", path, err)
	}
	defer ns.Close()
	// Without a family the handle opens a socket of each, which a kernel may lack (XFRM).
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("enter network namespace %q: %w", path, err)
	}
	defer handle.Close()
	links, err := handle.LinkList()
	for range 10 { // an interface came or went while the kernel listed them, as in a pod that is being made
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		links, err = handle.LinkList()
	}
	if err != nil {
		return nil, fmt.Errorf("list interfaces in %q: %w", path, err)
	}
	out := []Interface{}
	for _, l := range links {
		a := l.Attrs()
		if a.Name == "lo" || a.Statistics == nil {
			continue
		}
		out = append(out, Interface{
			Name: a.Name, RxBytes: a.Statistics.RxBytes, RxErrors: a.Statistics.RxErrors,
			TxBytes: a.Statistics.TxBytes, TxErrs: a.Statistics.TxErrors,
			RxPackets: a.Statistics.RxPackets, RxDropped: a.Statistics.RxDropped,
			TxPackets: a.Statistics.TxPackets, TxDropped: a.Statistics.TxDropped,
		})
	}
	return out, nil
}
