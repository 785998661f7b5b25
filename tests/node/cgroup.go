package node

import (
	"os"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
)

// DriverVariable is the environment variable with the cgroup driver of all nodes whose configuration names none. tests/vm
// sets it.
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

// PodCgroup is where the cgroup of a pod is that the daemon made, below the mount point of a hierarchy.
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
