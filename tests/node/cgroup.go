package node

import (
	"os"
	"strconv"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
)

// DriverVariable is the environment variable with the cgroup driver of all nodes whose
// configuration names none. tests/vm sets it.
const DriverVariable = "SUNABA_TEST_CGROUP_DRIVER"

// Driver is what the variable says, cgroupfs where it is not set.
func Driver() string {
	if driver := os.Getenv(DriverVariable); driver != "" {
		return driver
	}
	return "cgroupfs"
}

// Layout says where the cgroups of every node are.
func Layout() cgroup.Layout { return cgroup.Layout{Driver: cgroup.Driver(Driver())} }

// PodCgroup is where the cgroup of a pod is that the daemon made, below the mount point of a
// hierarchy.
func PodCgroup(id string) string {
	return Layout().Path(podParent(id))
}

// ContainerCgroup is where the cgroup of a container is in such a pod.
func ContainerCgroup(pod, id string) string {
	return Layout().Path(Layout().Leaf(podParent(pod), id))
}

func podParent(id string) string {
	parent, _, err := Layout().Pod(id, "")
	if err != nil {
		panic(err) // only a given parent can be wrong
	}
	return parent
}

// WithEngine says whether a cgroup's limit of memory is that of a guest's container with what its
// engine may take beside it.
func WithEngine(limit, container string) bool {
	const least, most = 1 << 20, 64 << 20
	whole, err1 := strconv.ParseInt(limit, 10, 64)
	guest, err2 := strconv.ParseInt(container, 10, 64)
	return err1 == nil && err2 == nil && whole >= guest+least && whole <= guest+most
}
