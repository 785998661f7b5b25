package identity

import (
	"slices"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is one that has user ids of its own: the UID of its pod, and the first ids of the ranges
// they are in.
type sandbox struct {
	uid    string
	firsts []uint32
}

// See takes in the user ids of a sandbox of the CRI server. Its pod has them, whoever made it, until
// Unsee. A lock does not say so: it ends with its run, but the pod of a run that was killed, or of
// one with --keep, does not.
func (r *Ranges) See(s *runtime.PodSandboxStatus) {
	var firsts []uint32
	for _, ids := range s.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions().GetUids() {
		from := uint64(ids.GetHostId())
		for n := from / RangeLength; n*RangeLength < from+uint64(ids.GetLength()); n++ {
			firsts = append(firsts, uint32(n*RangeLength))
		}
	}
	if firsts != nil {
		r.sandboxes[s.GetId()] = sandbox{s.GetMetadata().GetUid(), firsts}
	}
}

// Unsee forgets a sandbox that was removed.
func (r *Ranges) Unsee(id string) { delete(r.sandboxes, id) }

// UnseeAll forgets all sandboxes, before a new list of them is taken in.
func (r *Ranges) UnseeAll() { clear(r.sandboxes) }

// seen says whether the sandbox of a pod has a range, except of the one with this UID.
func (r *Ranges) seen(uid string, first uint32) bool {
	for _, s := range r.sandboxes {
		if (uid == "" || s.uid != uid) && slices.Contains(s.firsts, first) {
			return true
		}
	}
	return false
}
