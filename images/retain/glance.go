package retain

import (
	"errors"
	"os"
	"slices"

	"github.com/sunaba-project/sunaba/images/disk"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// Sight is what a look at an image store from outside tells.
type Sight struct {
	records *store.State
	roots   []unpack.Root
}

// Glance looks at the image store below root, which another process may have open: nothing is
// locked and nothing is changed.
func Glance(root string) (Sight, error) {
	roots, err := unpack.GlanceRoots(root)
	if err != nil {
		return Sight{}, err
	}
	records, err := store.Glance(disk.RecordsPath(root))
	if errors.Is(err, os.ErrNotExist) {
		records, err = &store.State{}, nil // a store that has never held anything
	}
	return Sight{records: records, roots: roots}, err
}

// Keys returns the keys that have a root.
func (s Sight) Keys() []string {
	keys := make([]string, 0, len(s.roots))
	for _, r := range s.roots {
		keys = append(keys, r.Key)
	}
	return keys
}

// Stray returns what GC would remove of kept, which was looked at before the store. opened says
// that a process has the store open: then what came with an image counts only after a day as well,
// because a pull may be about to need it, and that process removes it by itself.
func (s Sight) Stray(kept []Prepared, opened bool) []Prepared {
	needed := programs(s.records, s.roots)
	return slices.DeleteFunc(slices.Clone(kept), func(p Prepared) bool {
		return !isStray(p, needed, !opened && s.records.Prepared[p.Digest.String()])
	})
}
