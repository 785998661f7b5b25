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

	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// crio is a running CRI-O.
type crio struct {
	dir     string
	process *exec.Cmd
	ended   chan error
	conn    *grpc.ClientConn
}

// crioConfig is its configuration: all that it makes is in the folder %[1]q. %[2]q is the folder of
// its programs, %[3]q conmon, %[4]q the folder of CNI plugins, %[5]q the pause image.
const crioConfig = `[crio]
root = "%[1]s/root"
runroot = "%[1]s/state/storage"
storage_driver = "overlay"
log_dir = "%[1]s/logs"
version_file = "%[1]s/state/version"
version_file_persist = "%[1]s/version"
clean_shutdown_file = "%[1]s/clean"
[crio.api]
listen = "%[1]s/c.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
container_exits_dir = "%[1]s/state/exits"
container_attach_socket_dir = "%[1]s/state/attach"
namespaces_dir = "%[1]s/state/namespaces"
pinns_path = "%[2]s/pinns"
decryption_keys_path = "%[1]s/keys"
hooks_dir = ["%[1]s/hooks"]
irqbalance_config_file = "disable"
irqbalance_config_restore_file = "disable"
enable_criu_support = false
[crio.image]
pause_image = %[5]q
signature_policy = "%[1]s/policy.json"
signature_policy_dir = "%[1]s/policies"
[crio.network]
network_dir = "%[1]s/cni"
plugin_dirs = [%[4]q]
[crio.nri]
enable_nri = false
`

// crioRuntime is one runtime: its name, its program and conmon.
const crioRuntime = `[crio.runtime.runtimes.%[2]s]
runtime_path = %[3]q
runtime_root = "%[1]s/state/%[2]s"
monitor_path = %[4]q
monitor_cgroup = "pod"
`

const crioNetwork = `{"cniVersion":"1.0.0","name":"peers","plugins":[
{"type":"bridge","bridge":"crio0","isGateway":true,"promiscMode":true,
 "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.87.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
{"type":"portmap","capabilities":{"portMappings":true},"backend":"nftables"}]}`

// startCRIO starts CRI-O in a folder, with its programs of another and with OCI runtimes by name.
// It returns when CRI-O answers.
func startCRIO(ctx context.Context, dir, programs, plugins, pause string, runtimes map[string]string) (*crio, error) {
	conmon, err := exec.LookPath("conmon")
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(crioConfig, dir, programs, conmon, plugins, pause)
	for name, program := range runtimes {
		config += fmt.Sprintf(crioRuntime, dir, name, program, conmon)
	}
	registry, _, _ := strings.Cut(pause, "/")
	for _, folder := range []string{"logs", "cni", "keys", "hooks", "policies"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"crio.conf":         config,
		"policy.json":       `{"default":[{"type":"insecureAcceptAnything"}]}`,
		"registries.conf":   fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", registry),
		"storage.conf":      "[storage]\ndriver = \"overlay\"\n",
		"cni/10-p.conflist": fmt.Sprintf(crioNetwork, filepath.Join(dir, "ipam")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(filepath.Join(dir, "daemon.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &crio{dir: dir, ended: make(chan error, 1)}
	c.process = exec.Command(filepath.Join(programs, "crio"), "--config", filepath.Join(dir, "crio.conf"), "--config-dir", filepath.Join(dir, "none"))
	c.process.Stdout, c.process.Stderr = log, log
	c.process.Env = append(os.Environ(),
		"CONTAINER_REGISTRIES_CONF="+filepath.Join(dir, "registries.conf"), "CONTAINERS_STORAGE_CONF="+filepath.Join(dir, "storage.conf"))
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	go func() { c.ended <- c.process.Wait() }()
	if c.conn, err = node.Dial(filepath.Join(dir, "c.sock")); err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		_ = c.process.Process.Kill() // it may have ended
		said, _ := os.ReadFile(log.Name())
		_, swept := node.Sweep(dir)
		return nil, errors.Join(fmt.Errorf("start CRI-O: %w\n%s", err, said), swept)
	}
	return c, nil
}

func (c *crio) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := runtime.NewRuntimeServiceClient(c.conn).Version(ctx, &runtime.VersionRequest{}, grpc.WaitForReady(true))
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case ended := <-c.ended:
		c.ended <- ended
		return fmt.Errorf("it ended: %v", ended)
	}
}

// close ends it and takes away what is left of it. It keeps its storage's mounts and its shared
// memory mounted, which is no error.
func (c *crio) close() error {
	err := c.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(node.Patience):
		err = errors.Join(err, errors.New("CRI-O did not end"), c.process.Process.Kill())
	}
	_, swept := node.Sweep(c.dir)
	return errors.Join(err, c.conn.Close(), swept)
}
