package shim

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// endExecs kills what a dead shim had executed in a container, with what that started as far as its parents live: the sessions are gone. The
// parent of such a process is the supervisor now. In a container with a PID namespace of its own it is that of nothing else but
// init; elsewhere it is of what left its own parent too, so only those that are recorded are meant.
func endExecs(ctx context.Context, group *cgroup.Group, init int, recorded []int, ownPids bool) error {
	heir := os.Getppid()
	var tree cgroup.Tree
	err := tree.Grow(ctx, group, func(pid int, from cgroup.Descent) bool {
		orphan := from.Parent == heir && (ownPids || slices.Contains(recorded, pid))
		return pid != init && (orphan || tree.Has(from.Parent))
	})
	return errors.Join(err, tree.Kill())
}
