package catalog

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/reference"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/variant"
)

// Meant returns the targets that a container's image reference can resolve to, best candidate
// first.
//
// A name means its targets; those where the handler's choice is present come first, then the newer.
// An id means the targets that hold it: first the one that the pod's own reference leads to, then
// those of the same repository, then those with the handler's most preferred platform.
func Meant(st *store.State, image, userSpecified string, h variant.Handler) ([]store.Target, error) {
	present := func(t store.Target) int {
		if d, _, ok := variant.SelectAt(t.Entries, h.Platforms); ok && t.Images[d.Digest] != "" {
			return 0
		}
		return 1
	}
	if n, err := reference.Parse(image); err == nil {
		if targets := st.Named(n.Full); len(targets) > 0 {
			slices.SortStableFunc(targets, func(a, b store.Target) int { return present(a) - present(b) })
			return targets, nil
		}
	}
	if !reference.IsIDPrefix(image) {
		return nil, fmt.Errorf("image %q is not on this node, pull it first: %w", image, errdefs.ErrNotFound)
	}
	img, err := st.ByID(image)
	if err != nil {
		return nil, err
	}
	n, _ := reference.Parse(userSpecified) // the zero name, if it is not one, means nothing
	specified := make(map[digest.Digest]bool)
	for _, t := range st.Named(n.Full) {
		specified[t.Digest] = true
	}
	nearness := func(t store.Target) int {
		switch {
		case t.Repo != n.Repo:
			return 2
		case !specified[t.Digest]:
			return 1
		}
		return 0
	}
	liking := func(t store.Target) int {
		if _, place, ok := variant.SelectAt(t.Entries, h.Platforms); ok {
			return place
		}
		return len(h.Platforms)
	}
	targets := st.Holding(img.ID)
	slices.SortStableFunc(targets, func(a, b store.Target) int {
		return cmp.Or(nearness(a)-nearness(b), liking(a)-liking(b), present(a)-present(b))
	})
	return targets, nil
}
