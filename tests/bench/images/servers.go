package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// server is a CRI server that pulls.
type server interface {
	name() string
	start(ctx context.Context, dir string) error
	client() runtime.ImageServiceClient
	pid() int
	stop() error
}

// daemon is a server's process and a connection to it.
type daemon struct {
	process *node.Server
	conn    *grpc.ClientConn
}

// launch starts a program whose socket is in dir and waits until it answers.
func (d *daemon) launch(ctx context.Context, dir, program string, args ...string) (err error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if d.conn, err = node.Dial(filepath.Join(dir, "sock")); err != nil {
		return err
	}
	if d.process, err = node.RunServer(cmd, filepath.Join(dir, "log")); err != nil {
		return errors.Join(err, d.conn.Close())
	}
	if err := d.process.Await(ctx, 30*time.Second, func(ctx context.Context) error {
		_, err := d.client().ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
		return err
	}); err != nil {
		return errors.Join(err, d.stop())
	}
	return nil
}

func (d *daemon) client() runtime.ImageServiceClient { return runtime.NewImageServiceClient(d.conn) }

func (d *daemon) pid() int { return d.process.PID() }

func (d *daemon) stop() error {
	_, err := d.process.Signal(syscall.SIGTERM)
	return errors.Join(err, d.conn.Close())
}

type sunaba struct {
	daemon
	bin string
}

func (s *sunaba) name() string { return "sunaba" }

func (s *sunaba) start(ctx context.Context, dir string) error {
	config := fmt.Sprintf("cgroup_driver = \"cgroupfs\"\n[images]\nhosts_dir = \"\"\ncredentials_file = \"\"\n[network]\nconf_dir = %q\n", filepath.Join(dir, "cni"))
	if err := network(dir); err != nil {
		return err
	}
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	return s.launch(ctx, dir, filepath.Join(s.bin, "sunaba"), "serve", "--config", file,
		"--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--socket", filepath.Join(dir, "sock"))
}

// network writes a CNI configuration that nothing will use: pods are not run, and no server is to
// make a network.
func network(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "cni"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cni", "10-none.conflist"), []byte(`{"cniVersion":"1.0.0","name":"none","plugins":[{"type":"loopback"}]}`), 0o644)
}

type containerd struct {
	daemon
	bin string
}

func (c *containerd) name() string { return "containerd" }

// containerdConfig keeps containerd below one folder: %[1]s. What is not needed for pulls and would
// leave traces elsewhere is turned off; everything about pulls is as containerd has it.
const containerdConfig = `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "%[1]s/sock"
[ttrpc]
address = "%[1]s/sock.ttrpc"
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.runtime"]
netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["%[2]s"]
conf_dir = "%[1]s/cni"
`

func (c *containerd) start(ctx context.Context, dir string) error {
	if err := network(dir); err != nil {
		return err
	}
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, containerdConfig, dir, c.bin), 0o600); err != nil {
		return err
	}
	return c.launch(ctx, dir, filepath.Join(c.bin, "containerd"), "--config", file)
}
