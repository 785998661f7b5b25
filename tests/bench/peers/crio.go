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
	process *node.Server
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
	cmd := exec.Command(filepath.Join(programs, "crio"), "--config", filepath.Join(dir, "crio.conf"), "--config-dir", filepath.Join(dir, "none"))
	cmd.Env = append(os.Environ(),
		"CONTAINER_REGISTRIES_CONF="+filepath.Join(dir, "registries.conf"), "CONTAINERS_STORAGE_CONF="+filepath.Join(dir, "storage.conf"))
	c := &crio{dir: dir}
	if c.conn, err = node.Dial(filepath.Join(dir, "c.sock")); err != nil {
		return nil, err
	}
	if c.process, err = node.RunServer(cmd, filepath.Join(dir, "daemon.log")); err != nil {
		return nil, errors.Join(err, c.conn.Close())
	}
	if err := c.process.Await(ctx, 30*time.Second, node.Answers(runtime.NewRuntimeServiceClient(c.conn))); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close ends it and takes away what is left of it. It keeps its storage's mounts and its shared
// memory mounted, which is no error.
func (c *crio) close() error {
	_, err := c.process.Signal(syscall.SIGTERM)
	_, swept := node.Sweep(c.dir) // kills it if it has not ended
	return errors.Join(err, c.conn.Close(), swept)
}
