package bootstrap

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/runc"
)

// deleteTime bounds the cleaning up of one bundle.
const deleteTime = 30 * time.Second

// killedByUs is how a container ended that a dead shim left running.
const killedByUs = 128 + uint32(unix.SIGKILL)

// Delete cleans up after a container whose shim is dead, from its bundle directory alone: it kills
// what runs, removes the OCI runtime's state and the cgroup, and unmounts the root. Every step is
// tried whatever happened to the others, and all of it may be repeated. It returns how the
// container ended, as its shim wrote down or killed now, and the pid that it had, 0 if that is not
// known.
func Delete(ctx context.Context, dir, id string) (exit api.Exit, pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	if dir, err = filepath.Abs(dir); err != nil {
		return exit, 0, err
	}
	record, err := bundle.ReadTask(dir)
	if err != nil && !errdefs.IsNotFound(err) {
		return exit, 0, err
	}
	pid = bundle.ReadPid(dir)
	var errs []error
	if record.Engine == "runc" {
		errs = append(errs, runc.Delete(ctx, dir, id, record))
	}
	errs = append(errs, endProcesses(ctx, dir, record),
		bundle.UnmountRoot(dir), bundle.UnmapVolumes(dir), bundle.UnmountImages(dir), removeSocket(ctx, dir))
	exit, known := bundle.ReadExit(dir)
	if !known {
		exit = api.Exit{Code: killedByUs, At: time.Now(), Message: "the shim died before the container ended"}
	}
	if err := errors.Join(errs...); err != nil {
		return exit, pid, err
	}
	return exit, pid, bundle.Forget(dir)
}

// removeSocket removes the socket of the shim that was started in a bundle, if it has no listener.
func removeSocket(ctx context.Context, dir string) error {
	address, err := os.ReadFile(filepath.Join(dir, addressName))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was started for another container of the pod, or by our own server
	}
	if err != nil {
		return err
	}
	path := strings.TrimPrefix(string(address), "unix://")
	_, err = unixsocket.RemoveDead(ctx, path) // a live one serves others
	return err
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
	if record.Engine == shim.PauseName {
		init := bundle.ReadPid(dir)
		others := slices.DeleteFunc(pids, func(pid int) bool { return pid == init })
		if err := group.Kill(ctx, others...); err != nil || len(others) > 0 {
			return err
		}
		return group.Remove()
	}
	return errors.Join(group.Kill(ctx), group.Remove())
}
