// Package node starts a sunaba daemon with a root, a state folder, a socket and a network of its
// own, and speaks CRI to it. Scenarios, the demo and the benchmark stand on it.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/tests/leftovers"
)

// Options say where a node lives and how it differs from the defaults.
type Options struct {
	Bin    string // folder with the two binaries
	Dir    string // folder for everything of this node; made when it is not there
	Root   string // "" is one in Dir
	Socket string // "" is one in Dir
	Config string // TOML; "" runs the daemon without a configuration file
	Args   []string
	Env    []string
}

// Node is a running daemon and a CRI client of it.
type Node struct {
	runtime.RuntimeServiceClient
	runtime.ImageServiceClient

	Options             Options
	Root, State, Socket string
	ConfigFile, LogFile string
	Logs                string // parent of the pods' log directories
	texts               texts
	conn                *grpc.ClientConn
	daemon              *Server
}

// Start starts a daemon and returns when it reports that it and its network are ready.
func Start(ctx context.Context, options Options) (*Node, error) {
	n := &Node{
		Options: options,
		Root:    cmp.Or(options.Root, filepath.Join(options.Dir, "root")), State: filepath.Join(options.Dir, "state"),
		Socket: cmp.Or(options.Socket, filepath.Join(options.Dir, "sunaba.sock")), Logs: filepath.Join(options.Dir, "logs"),
		LogFile: filepath.Join(options.Dir, "daemon.log"),
	}
	if err := os.MkdirAll(n.Logs, 0o755); err != nil {
		return nil, err
	}
	if os.Getenv(DriverVariable) != "" && !strings.Contains(options.Config, "cgroup_driver") {
		options.Config = fmt.Sprintf("cgroup_driver = %q\n%s", Driver(), options.Config)
	}
	options.Config = anyDisk(options.Config)
	if options.Config != "" {
		n.ConfigFile = filepath.Join(options.Dir, "config.toml")
		if err := os.WriteFile(n.ConfigFile, []byte(options.Config), 0o600); err != nil {
			return nil, err
		}
	}
	conn, err := Dial(n.Socket, grpc.WithChainUnaryInterceptor(n.texts.intercept))
	if err != nil {
		return nil, err
	}
	n.conn = conn
	n.RuntimeServiceClient = runtime.NewRuntimeServiceClient(conn)
	n.ImageServiceClient = runtime.NewImageServiceClient(conn)
	if err := n.StartDaemon(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return n, nil
}

// anyDisk lets a node run pods and keep images however full the machine's disk is, if its
// configuration does not say otherwise.
func anyDisk(config string) string {
	if !strings.Contains(config, "[pods]\n") {
		return config
	}
	for table, keys := range map[string]string{
		"[pods.eviction]": "nodefs_available = \"0%\"\nnodefs_inodes_free = \"0%\"\nimagefs_available = \"0%\"\nimagefs_inodes_free = \"0%\"\n",
		"[pods.images]":   "high_percent = 100\n",
	} {
		if !strings.Contains(config, table+"\n") {
			config += "\n" + table + "\n" + keys
		}
	}
	return config
}

// Dial prepares a connection to a CRI server that is about to listen: it is asked again soon.
func Dial(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, append(more,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))...)
}

// StartDaemon starts the daemon of a node whose daemon has ended and waits until it is ready.
func (n *Node) StartDaemon(ctx context.Context) error {
	if err := n.Launch(); err != nil {
		return err
	}
	return n.AwaitReady(ctx)
}

// Launch starts the daemon of a node whose daemon has ended, and does not wait.
func (n *Node) Launch() error {
	args := []string{"serve", "--root", n.Root, "--state", n.State, "--socket", n.Socket}
	if n.ConfigFile != "" {
		args = append(args, "--config", n.ConfigFile)
	}
	cmd := exec.Command(filepath.Join(n.Options.Bin, "sunaba"), append(args, n.Options.Args...)...)
	cmd.Env = append(os.Environ(), n.Options.Env...)
	daemon, err := RunServer(cmd, n.LogFile)
	if err != nil {
		return err
	}
	n.daemon = daemon
	return nil
}

// AwaitReady waits until a daemon that was launched is ready.
func (n *Node) AwaitReady(ctx context.Context) error {
	// The first start in an emulated machine reads all it needs, kernel modules too, through that
	// machine's disks.
	return n.daemon.Await(ctx, Slow(3*time.Minute), Ready(n))
}

// PodClient connects to the socket for commands about pods, which a daemon makes after it is ready.
func (n *Node) PodClient(ctx context.Context) (client *api.Client, err error) {
	err = n.daemon.Await(ctx, Slow(time.Minute), func(ctx context.Context) (err error) {
		client, err = api.Connect(ctx, filepath.Join(n.State, api.SocketName))
		return err
	})
	return client, err
}

// notReady names each condition of a node that a pod needs and that does not hold; nil when all
// hold.
func notReady(conditions []*runtime.RuntimeCondition) error {
	var errs []error
	for _, kind := range []string{runtime.RuntimeReady, runtime.NetworkReady} {
		i := slices.IndexFunc(conditions, func(c *runtime.RuntimeCondition) bool { return c.GetType() == kind })
		if i < 0 {
			errs = append(errs, fmt.Errorf("the status has no condition %s", kind))
		} else if c := conditions[i]; !c.GetStatus() {
			errs = append(errs, fmt.Errorf("%s is false: %s: %s", kind, c.GetReason(), c.GetMessage()))
		}
	}
	return errors.Join(errs...)
}

// DaemonPID is the daemon's process id.
func (n *Node) DaemonPID() int { return n.daemon.PID() }

// Alive says whether the daemon still runs.
func (n *Node) Alive() bool { return n.daemon.Alive() }

// DaemonLog is what the daemon has said so far.
func (n *Node) DaemonLog() string { return n.daemon.Log() }

// SignalDaemon sends the daemon a signal and waits for its end. Pods run on.
func (n *Node) SignalDaemon(signal syscall.Signal) error {
	exited, err := n.daemon.Signal(signal)
	var exit *exec.ExitError
	if signal == syscall.SIGTERM && errors.As(exited, &exit) {
		return fmt.Errorf("the daemon ended with %w\n%s", exited, n.DaemonLog())
	}
	return err
}

// Scope is what belongs to this node on the machine.
func (n *Node) Scope() leftovers.Scope {
	return leftovers.Scope{Dirs: []string{n.Options.Dir}}
}

// RemovePods stops and removes every pod of the node.
func (n *Node) RemovePods(ctx context.Context) error { return RemovePods(ctx, n) }

// RemovePods stops and removes every pod of a server.
func RemovePods(ctx context.Context, n runtime.RuntimeServiceClient) error {
	pods, err := n.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var problems []error
	for _, pod := range pods.GetItems() {
		if _, err := n.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: pod.GetId()}); err != nil {
			problems = append(problems, fmt.Errorf("stop pod %q: %w", pod.GetId(), err))
		}
		if _, err := n.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: pod.GetId()}); err != nil {
			problems = append(problems, fmt.Errorf("remove pod %q: %w", pod.GetId(), err))
		}
	}
	return errors.Join(problems...)
}

// Close ends the daemon and then takes away all that is left of the node, also what should not have
// been left. It reports what it had to take away by force.
func (n *Node) Close() ([]string, error) {
	stopped := errors.Join(n.SignalDaemon(syscall.SIGTERM), n.wording())
	n.conn.Close()
	// The bridge and its rules stay when a server ends, for its pods and its next start. There is
	// none.
	destroyed := network.Destroy(network.Options{
		ConfDir: filepath.Join(n.Options.Dir, "cni"), StateDir: filepath.Join(n.Root, "network"),
		Embedded: network.EmbeddedOptions{Bridge: network.DefaultBridgeName(n.Root)},
	})
	forced, err := Sweep(n.Options.Dir)
	return forced, errors.Join(stopped, destroyed, err)
}

// Sweep kills every process of a node's folder, unmounts all below it and removes it. It returns
// what processes and mounts it found.
func Sweep(dir string) ([]string, error) {
	scope := leftovers.Scope{Dirs: []string{dir}, SkipFile: func(string) bool { return true }}
	forced, err := leftovers.Take(scope)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pids, err := leftovers.Processes(scope)
		if err != nil {
			return forced, err
		}
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			// It may have ended meanwhile, and that is what is wanted.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for range 10 {
		points, err := leftovers.MountPoints(scope)
		if err != nil {
			return forced, err
		}
		for i := len(points) - 1; i >= 0; i-- {
			if err := unix.Unmount(points[i], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				return forced, fmt.Errorf("unmount %q: %w", points[i], err)
			}
		}
		if len(points) == 0 {
			// Only with nothing mounted: removing a tree goes through mounts.
			return forced, os.RemoveAll(dir)
		}
	}
	return forced, fmt.Errorf("mounts below %q do not go away", dir)
}
