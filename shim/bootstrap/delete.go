package bootstrap

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/cgroup"
	"github.com/sunaba-project/sunaba/shim/runc"
)

// deleteTime bounds the cleaning up of one bundle.
const deleteTime = 30 * time.Second

// killedByUs is how a container ended that a dead shim left running.
const killedByUs = 128 + uint32(unix.SIGKILL)

// Delete cleans up after a container whose shim is dead, from its bundle directory alone: it kills
// what runs, removes the OCI runtime's state and the cgroup, and unmounts the root. Every
// step is tried whatever became of the others, and all of it may be repeated. It returns how the
// container ended: as its shim wrote down, or killed now.
func Delete(ctx context.Context, dir, id string) (api.Exit, error) {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return api.Exit{}, err
	}
	record, err := bundle.ReadTask(dir)
	if err != nil && !errdefs.IsNotFound(err) {
		return api.Exit{}, err
	}
	var errs []error
	if record.Engine == "runc" {
		errs = append(errs, runc.Delete(ctx, dir, id, record))
	}
	errs = append(errs, endProcesses(ctx, dir, record),
		bundle.UnmountRoot(dir), bundle.UnmapVolumes(dir), bundle.UnmountImages(dir))
	exit, known := bundle.ReadExit(dir)
	if !known {
		exit = api.Exit{Code: killedByUs, At: time.Now(), Message: "the shim died before the container ended"}
	}
	if err := errors.Join(errs...); err != nil {
		return exit, err
	}
	return exit, bundle.Forget(dir)
}

// endProcesses kills what is left in the container's cgroup and removes it. A pause process
// shares its cgroup with the shim, so only its own pid is meant there.
func endProcesses(ctx context.Context, dir string, record bundle.Task) error {
	if record.Cgroup == "" {
		return nil
	}
	group, err := cgroup.Open(record.Cgroup)
	if err != nil {
		return err
	}
	pids, err := group.Pids()
	if err != nil {
		return err
	}
	if record.Engine == "pause" {
		init := bundle.ReadPid(dir)
		var others []int
		for _, pid := range pids {
			if pid != init {
				others = append(others, pid)
			}
		}
		if err := group.Kill(ctx, others...); err != nil || len(others) > 0 {
			return err
		}
		return group.Remove()
	}
	return errors.Join(group.Kill(ctx, os.Getpid()), group.Remove())
}
