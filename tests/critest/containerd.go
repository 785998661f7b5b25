package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/leftovers"
	"github.com/sunaba-project/sunaba/tests/node"
)

// containerdConfig has everything below one folder: %[1]s the folder, %[2]s the binaries, %[3]s the
// OCI runtime, %[4]s the sandbox image, %[5]s the shim, "" for its own. The type is always runc's:
// of another one containerd does not understand the options itself, and then makes no containers
// with a user namespace. It turns on what its defaults leave off and critest asks for, as its
// documents advise.
const containerdConfig = `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
address = "%[1]s/containerd.sock"
[ttrpc]
address = "%[1]s/containerd.sock.ttrpc"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "%[4]s"
[plugins."io.containerd.cri.v1.images".registry]
config_path = "%[1]s/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
netns_mounts_under_state_dir = true
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["%[2]s"]
conf_dir = "%[1]s/cni"
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "%[5]s"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "%[3]s"
`

// containerdNetwork is a bridge with host ports, by nftables: %[1]s is the folder.
const containerdNetwork = `{"cniVersion": "1.0.0", "name": "critest", "plugins": [
 {"type": "bridge", "bridge": "critest0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "promiscMode": true,
  "ipam": {"type": "host-local", "dataDir": "%[1]s/ipam", "ranges": [[{"subnet": "10.188.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"}
]}
`

// containerdFolders are where containerd and its network plugins put what no configuration moves.
var containerdFolders = []string{"/run/containerd", "/run/sunaba", "/var/lib/cni"}

// startContainerd is the target that others are compared with.
func (s *settings) startContainerd(ctx context.Context, v variant, mirror, work string) (*server, error) {
	return s.startWith(ctx, v, mirror, &containerd{dir: filepath.Join(work, "containerd-"+v.name)}, containerdName)
}

// startPlugin is containerd with our shim as its default runtime.
func (s *settings) startPlugin(ctx context.Context, v variant, mirror, work string) (*server, error) {
	c := &containerd{dir: filepath.Join(work, "shim-"+v.name), shim: filepath.Join(s.bin, "containerd-shim-sunaba-v1")}
	return s.startWith(ctx, v, mirror, c, pluginName)
}

func (s *settings) startWith(ctx context.Context, v variant, mirror string, c *containerd, name string) (_ *server, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.sweep())
		}
	}()
	if err := c.configure(s.containerd, v, mirror); err != nil {
		return nil, fmt.Errorf("configure containerd: %w", err)
	}
	if err := c.start(ctx, s.containerd); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	return &server{name: name, socket: c.socket(), close: c.close}, nil
}

// containerd is a daemon in a folder.
type containerd struct {
	dir    string
	shim   string // our shim; "" = it runs its own
	daemon *node.Server
	conn   *grpc.ClientConn
	hidden []string // folders with a file system of ours on them
	made   []string // folders that were not there
}

func (c *containerd) socket() string { return filepath.Join(c.dir, "containerd.sock") }

func (c *containerd) configure(bin string, v variant, mirror string) error {
	for _, dir := range []string{"cni", "root", "state"} {
		if err := os.MkdirAll(filepath.Join(c.dir, dir), 0o711); err != nil {
			return err
		}
	}
	for _, host := range mirrored {
		dir := filepath.Join(c.dir, "certs.d", host)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		hosts := fmt.Sprintf("server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", "https://"+host, "http://"+mirror)
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o644); err != nil {
			return err
		}
	}
	for _, path := range containerdFolders {
		if err := c.hide(path); err != nil {
			return err
		}
	}
	binary := filepath.Join(bin, "runc")
	if v.crun {
		found, err := exec.LookPath("crun")
		if err != nil {
			return err
		}
		binary = found
	}
	config := fmt.Sprintf(containerdConfig, c.dir, bin, binary, mirrored[0]+"/"+sandboxImage, c.shim)
	return errors.Join(
		os.WriteFile(filepath.Join(c.dir, "config.toml"), []byte(config), 0o644),
		os.WriteFile(filepath.Join(c.dir, "cni", "10-critest.conflist"), fmt.Appendf(nil, containerdNetwork, c.dir), 0o644))
}

// hide puts an empty file system over a folder of the machine, in this process's mount namespace
// only.
func (c *containerd) hide(path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := os.Mkdir(path, 0o711); err != nil {
			return err
		}
		c.made = append(c.made, path)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "mode=711"); err != nil {
		return fmt.Errorf("hide %q: %w", path, err)
	}
	c.hidden = append(c.hidden, path)
	return nil
}

func (c *containerd) start(ctx context.Context, bin string) (err error) {
	cmd := exec.Command(filepath.Join(bin, "containerd"), "--config", filepath.Join(c.dir, "config.toml"))
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")) // its shim
	if c.conn, err = node.Dial(c.socket()); err != nil {
		return err
	}
	if c.daemon, err = node.RunServer(cmd, filepath.Join(c.dir, "daemon.log")); err != nil {
		return err
	}
	return c.daemon.Await(ctx, 30*time.Second, node.Ready(runtime.NewRuntimeServiceClient(c.conn)))
}

// close implements server.close. What containerd leaves is taken away without a word, but what our
// shim leaves.
func (c *containerd) close(ctx context.Context, out string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	removed := node.RemovePods(ctx, runtime.NewRuntimeServiceClient(c.conn))
	kept := os.WriteFile(filepath.Join(out, "daemon.log"), []byte(c.daemon.Log()), 0o644)
	return errors.Join(removed, kept, c.leftovers(), c.sweep())
}

// leftovers is an error about what our shim has left of pods that were removed.
func (c *containerd) leftovers() error {
	if c.shim == "" {
		return nil
	}
	found, err := leftovers.Take(leftovers.Scope{
		Dirs: []string{filepath.Join(c.dir, "state"), "/run/sunaba", filepath.Dir(c.shim)},
		SkipFile: func(path string) bool {
			return !strings.HasPrefix(path, "/run/sunaba/runc/k8s.io/") && !strings.HasPrefix("/run/sunaba/runc/k8s.io/", path)
		},
	})
	if err != nil {
		return err
	}
	for _, line := range found {
		if line == "mount on /run/sunaba" { // hidden by this very program
			continue
		}
		if !strings.HasPrefix(line, "file ") || strings.HasPrefix(line, "file /run/sunaba/runc/k8s.io/") {
			err = errors.Join(err, fmt.Errorf("left behind: %s", line))
		}
	}
	return err
}

// sweep ends the daemon and removes everything of it.
func (c *containerd) sweep() error {
	var errs []error
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
	}
	if c.daemon != nil {
		_, err := c.daemon.Signal(syscall.SIGTERM)
		errs = append(errs, err)
	}
	_, err := node.Sweep(c.dir)
	errs = append(errs, err)
	for _, path := range c.hidden {
		errs = append(errs, unix.Unmount(path, unix.MNT_DETACH))
	}
	for _, path := range c.made {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}
