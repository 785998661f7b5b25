package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/process"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim/bundle"
)

// ReadExit returns how the init process of a bundle ended, false when it has not, or had not when
// its shim died.
func ReadExit(bundleDir string) (Exit, bool) { return bundle.ReadExit(bundleDir) }

// Cleanup releases what a dead shim left in dir: for every bundle below it what runs is killed,
// the OCI runtime's state and the cgroup are removed and the root is unmounted. A shim that still
// works in dir (and hangs) is killed first. The directories stay; the call is idempotent.
func Cleanup(ctx context.Context, binary, namespace, dir, id string) error {
	if err := killShim(ctx, dir, id); err != nil {
		return fmt.Errorf("end shim: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(path, bundle.ConfigName)); !e.IsDir() || err != nil {
			continue
		}
		errs = append(errs, deleteBundle(ctx, binary, namespace, e.Name(), path))
	}
	return errors.Join(append(errs, durable.Remove(dir, SocketName, PidName))...)
}

func deleteBundle(ctx context.Context, binary, namespace, id, path string) error {
	cmd := exec.CommandContext(ctx, binary, "-namespace", namespace, "-id", id, "-bundle", path, "delete")
	cmd.Dir = path
	cmd.Env = shimEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("clean up bundle %q: %w: %s", path, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// killShim ends the shim that works in dir, if there is one: the process that dir's pid file names,
// and the shim if that was a supervisor. Where a caller died after starting the shim and before
// writing that file, it ends any process that says it is the shim of this id. The working directory
// of each must be dir, whoever has the pid now.
func killShim(ctx context.Context, dir, id string) error {
	here, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	worksHere := func(pid int) func() bool {
		return func() bool {
			cwd, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/cwd")
			return err == nil && os.SameFile(here, cwd)
		}
	}
	sock := filepath.Join(dir, SocketName)
	if pid := ReadPID(dir); pid != 0 {
		if err := process.Kill(ctx, pid, worksHere(pid)); err != nil {
			return err
		}
		conn, err := unixsocket.Dial(ctx, sock)
		if err != nil {
			return nil // that was all
		}
		conn.Close() // it was the supervisor of a shim
		id = sock
	}
	if _, err := os.Lstat(sock); err != nil {
		return nil // none was started
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !hasArgument(pid, id) {
			continue
		}
		if err := process.Kill(ctx, pid, worksHere(pid)); err != nil {
			return err
		}
	}
	return nil
}

// hasArgument says whether a process was started with an argument.
func hasArgument(pid int, arg string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.Contains(data, []byte("\x00"+arg+"\x00"))
}

// Holds says whether a shim has, or had when it died, a container in this bundle that it did not
// give back.
func Holds(bundleDir string) bool {
	_, err := bundle.ReadTask(bundleDir)
	return !errdefs.IsNotFound(err)
}
