package ociruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

const (
	// trialLimit is how long a runtime may take to make a container, and again to delete it.
	trialLimit = 30 * time.Second
	// maxWords is how much of what a runtime says about its failure is kept.
	maxWords = 500
	// runtimeFile names the runtime in a trial's folder, for whoever removes what is left.
	runtimeFile = "runtime"
)

// try makes a container, which never starts, and deletes it.
func (b *Book) try(ctx context.Context, path string) (err error) {
	dir, err := os.MkdirTemp(b.o.Trials, "sunaba-trial-")
	if err != nil {
		return nil // there is no room to try it in
	}
	defer func() {
		if rerr := b.remove(path, dir); err == nil {
			err = rerr
		}
	}()
	if err := b.lay(path, dir); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	return b.run(ctx, path, dir, "create", "--bundle", dir)
}

// lay writes a trial's folder: a bundle whose program is an empty file.
func (b *Book) lay(path, dir string) error {
	config := specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{Args: []string{"/init"}, Cwd: "/", Env: []string{"PATH=/"}},
		Root:    &specs.Root{Path: "rootfs"},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		},
		Annotations: annotation.Facts{SandboxID: "sunaba-trial"}.Annotations(), // as those to come
		Linux: &specs.Linux{
			CgroupsPath: b.leaf(dir),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.NetworkNamespace},
			},
		},
	}
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	for _, sub := range []string{"rootfs/proc", "rootfs/dev", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o711); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, runtimeFile), []byte(path), 0o600),
		os.WriteFile(filepath.Join(dir, "rootfs", "init"), nil, 0o755),
		os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600))
}

// leaf is the cgroup of a trial.
func (b *Book) leaf(dir string) string {
	id := filepath.Base(dir)
	if b.o.Cgroups.Driver == cgroup.Systemd {
		return "system.slice:sunaba:" + strings.TrimPrefix(id, "sunaba-")
	}
	return "/" + id
}

// run has a runtime do something with the container of a trial. Its error is the first line that
// the runtime says.
func (b *Book) run(ctx context.Context, path, dir, verb string, args ...string) error {
	said, err := os.OpenFile(filepath.Join(dir, "said"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil
	}
	defer said.Close()
	all := []string{"--root", filepath.Join(dir, "state"), "--log", filepath.Join(dir, "log")}
	if b.o.Cgroups.Driver == cgroup.Systemd {
		all = append(all, "--systemd-cgroup")
	}
	cmd := exec.CommandContext(ctx, path, append(append(append(all, verb), args...), filepath.Base(dir))...)
	cmd.Dir = dir
	cmd.Stderr = said // a file: the container's process has it too, and must not be waited for
	// One that works on when the server is killed would make again what the next server removes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if thread.Run(func() { err = cmd.Run() }); err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s did not end within %v", verb, trialLimit)
	}
	words := make([]byte, maxWords)
	n, _ := said.ReadAt(words, 0)
	if first, _, _ := strings.Cut(strings.TrimSpace(string(words[:n])), "\n"); first != "" {
		return errors.New(strings.ToValidUTF8(first, "?"))
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// remove takes a trial back, whatever there is of it.
func (b *Book) remove(path, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), trialLimit)
	defer cancel()
	var err error
	if entries, _ := os.ReadDir(filepath.Join(dir, "state")); len(entries) > 0 {
		err = b.run(ctx, path, dir, "delete", "--force")
	}
	// A runtime that was killed on its way has made its cgroup, and processes in it, before its state.
	leaf := b.leaf(dir)
	_, eerr := b.o.Cgroups.EndAll(ctx, leaf)
	err = errors.Join(err, eerr, b.o.Cgroups.RemoveLeaf(leaf))
	// A runtime may keep mounts of its own in its state.
	if merr := mount.DetachBelow(dir); merr != nil {
		return errors.Join(err, merr) // removing a tree would follow mounts
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// sweep removes what was left of the trials of a server that was killed.
func (b *Book) sweep() error {
	if err := os.MkdirAll(b.o.Trials, 0o711); err != nil {
		return err
	}
	left, err := os.ReadDir(b.o.Trials)
	if err != nil {
		return err
	}
	for _, e := range left {
		dir := filepath.Join(b.o.Trials, e.Name())
		path, rerr := os.ReadFile(filepath.Join(dir, runtimeFile))
		if rerr != nil {
			err = errors.Join(err, os.RemoveAll(dir)) // nothing was made in it yet
			continue
		}
		err = errors.Join(err, b.remove(string(path), dir))
	}
	return err
}
