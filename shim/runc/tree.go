package runc

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// killTree kills a process of a group and all that it started, as far as the kernel still knows
// that it did: its descendants, and every process in its process group or in a session that one of
// these leads, also where the parent has exited. A daemon, which has left its parent and its
// session, is not among them.
//
// A process that has ended is no error.
func killTree(ctx context.Context, group *cgroup.Group, top int) error {
	var tree cgroup.Tree
	own, err := tree.Add(top)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	common := own.Group // the runtime's, or its own where the runtime gave it a session
	if common == unix.Getpgrp() {
		common = top
	}
	if err == nil {
		err = tree.Grow(ctx, group, func(_ int, from cgroup.Descent) bool {
			return tree.Has(from.Parent) || tree.Has(from.Session) || from.Group == common
		})
	}
	return errors.Join(err, tree.Kill())
}
