package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/leftovers"
)

// offBound bounds how long what was killed may stay in its cgroup.
const offBound = 30 * time.Second

// PowerOff takes away what does not outlive the machine, after the daemon was killed: every process
// and mount, the state folder, cgroups of pods with these ids, and all links of the network
// namespace.
func (n *Node) PowerOff(pods []string) error {
	scope := n.Scope()
	for _, id := range pods {
		scope.Cgroups = append(scope.Cgroups, strings.TrimPrefix(PodCgroup(id), "/"))
	}
	for range 100 { // a shim's end may leave others, which are then found
		pids, err := leftovers.Processes(scope)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
	points, err := leftovers.MountPoints(scope)
	if err != nil {
		return err
	}
	for _, point := range slices.Backward(points) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := errors.Join(os.RemoveAll(n.State), removeCgroups(pods)); err != nil {
		return err
	}
	links, err := leftovers.Links()
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.Attrs().Name != "lo" {
			_ = netlink.LinkDel(link) // its other end may have taken it along
		}
	}
	return nil
}

func removeCgroups(pods []string) error {
	for _, id := range pods {
		tops, err := filepath.Glob("/sys/fs/cgroup/*" + PodCgroup(id))
		if err != nil {
			return err
		}
		for _, top := range append(tops, "/sys/fs/cgroup"+PodCgroup(id)) {
			leaves, _ := filepath.Glob(filepath.Join(top, "*/")) // the pattern is right
			for _, dir := range append(leaves, top) {
				if !Within(offBound, func() bool {
					err = unix.Rmdir(dir)
					return !errors.Is(err, unix.EBUSY)
				}) || err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
					return &os.PathError{Op: "rmdir", Path: dir, Err: err}
				}
			}
		}
	}
	return nil
}
