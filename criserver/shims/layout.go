package shims

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Layout says where shims work.
type Layout struct {
	// Pods holds a folder for each pod, named by its id, with the bundles of its containers. A shim
	// of its own works there.
	Pods string
	// Shared holds a folder for each handler whose pods share a shim, named by the handler. That
	// shim works there.
	Shared  string
	Cgroups *cgroup.Manager
}

// Dir is the folder of a pod.
func (l Layout) Dir(id string) string { return filepath.Join(l.Pods, id) }

// Leaf is the cgroup of a pod's shim, as OCI cgroupsPath.
func (l Layout) Leaf(pod state.Sandbox) string {
	if shares(pod) {
		return l.sharedLeaf(pod.HandlerName)
	}
	return l.Cgroups.Leaf(pod.CgroupParent, pod.ID)
}

// sharedDir is the folder of a handler's shared shim.
func (l Layout) sharedDir(handler string) string { return filepath.Join(l.Shared, handler) }

// sharedLeaf is the cgroup of a handler's shared shim. Its name differs from that of another server
// on the machine, which may have a handler of the same name.
func (l Layout) sharedLeaf(handler string) string {
	sum := sha256.Sum256([]byte(l.Shared))
	return l.Cgroups.ShimLeaf(handler + "-" + hex.EncodeToString(sum[:4]))
}

// Drawn returns the cgroups of a pod's containers whose ids were drawn ahead, by these ids, as OCI
// cgroupsPath. Among them is that of a prewarmed process which is no container's yet.
func (l Layout) Drawn(pod state.Sandbox) (map[string]string, error) {
	ids, err := l.Cgroups.Leaves(pod.CgroupParent)
	if err != nil {
		return nil, err
	}
	leaves := map[string]string{}
	for _, id := range ids {
		if state.IsDrawn(id, pod.ID) {
			leaves[id] = l.Cgroups.Leaf(pod.CgroupParent, id)
		}
	}
	return leaves, nil
}

// shares says that the pod's shim is that of all such pods of its handler.
func shares(pod state.Sandbox) bool { return pod.ShimScope == runtimeclass.ScopeNode }
