// Package containerd starts containerd daemons of two generations with a root, a state folder and
// sockets of their own, and our shim as a runtime. Its tests show that the shim is a true plugin:
// of Debian's containerd 1.6 and of containerd 2.4, by ctr, by the Task API and by containerd's
// CRI.
package containerd

import (
	"bytes"
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

// Options say where a daemon lives and what it runs.
type Options struct {
	Release  Release
	Dir      string   // for everything of this daemon; made when it is not there. Short: shims' sockets lie in it
	Path     []string // folders in which it finds shims and OCI runtimes, before those of PATH
	Sandbox  string   // reference of the pause image
	Runtimes []Runtime
	Render   func(config string) (string, error) // changes the configuration; nil = as it is
	Default  string                              // name of the runtime of pods that name none
	Mirrors  map[string]string                   // host of image references to URL
	CNI      string                              // folder of CNI plugins; "" = pods on the host's network only
}

// Runtime is one runtime handler of containerd's CRI.
type Runtime struct {
	Name, Type string
	Path       string // of the shim; "" = found by its type
	Options    string // lines of its options table
}

// Daemon is a running containerd, and a client of its CRI.
type Daemon struct {
	runtime.RuntimeServiceClient
	runtime.ImageServiceClient

	Options
	Socket, State, LogFile, Logs string
	Conn                         *grpc.ClientConn
	process                      *node.Server
}

// Start writes the configuration and starts the daemon. It returns when the daemon answers.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	d := &Daemon{
		Options: o, Socket: filepath.Join(o.Dir, "c.sock"), State: filepath.Join(o.Dir, "state"),
		LogFile: filepath.Join(o.Dir, "containerd.log"), Logs: filepath.Join(o.Dir, "logs"),
	}
	for _, dir := range []string{d.Logs, d.socketDir()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	if err := d.configure(); err != nil {
		return nil, fmt.Errorf("configure containerd: %w", err)
	}
	conn, err := node.Dial(d.Socket)
	if err != nil {
		return nil, err
	}
	d.Conn = conn
	d.RuntimeServiceClient = runtime.NewRuntimeServiceClient(conn)
	d.ImageServiceClient = runtime.NewImageServiceClient(conn)
	if err := d.Run(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return d, nil
}

// Run starts the daemon, also one that was ended, and waits until its CRI answers.
func (d *Daemon) Run(ctx context.Context) error {
	cmd := exec.Command(filepath.Join(d.Release.Bin, "containerd"), "--config", d.configFile(), "--log-level", "info")
	cmd.Env = d.environment()
	process, err := node.RunServer(cmd, d.LogFile)
	if err != nil {
		return err
	}
	d.process = process
	return process.Await(ctx, 3*time.Minute, node.Answers(d))
}

// environment of the daemon and of ctr: the shim and its OCI runtime are found by PATH.
func (d *Daemon) environment() []string {
	path := append(d.Path[:len(d.Path):len(d.Path)], d.Release.Bin, os.Getenv("PATH"))
	return append(os.Environ(), "PATH="+strings.Join(path, ":"))
}

// Pid is the daemon's.
func (d *Daemon) Pid() int { return d.process.PID() }

// Signal ends the daemon by a signal. What it runs continues.
func (d *Daemon) Signal(signal syscall.Signal) error {
	_, err := d.process.Signal(signal)
	return err
}

// Log is what the daemon and, through it, its shims have said so far.
func (d *Daemon) Log() string { return d.process.Log() }

// Ctr runs containerd's own client in a namespace and returns what it printed on standard output.
// The error carries what it printed on standard error.
func (d *Daemon) Ctr(ctx context.Context, namespace string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := d.CtrCommand(ctx, namespace, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("ctr %q: %w: %s", args, err, said(stderr.String()))
	}
	return stdout.String(), nil
}

// CtrCommand is Ctr, not yet run.
func (d *Daemon) CtrCommand(ctx context.Context, namespace string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(d.Release.Bin, "ctr"), append([]string{"--address", d.Socket, "--namespace", namespace}, args...)...)
	cmd.Env = d.environment()
	return cmd
}

// said leaves out ctr's remarks on what will be removed some day.
func said(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "DEPRECATION") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

// RemovePods stops and removes every pod.
func (d *Daemon) RemovePods(ctx context.Context) error { return node.RemovePods(ctx, d) }

// Close ends the daemon and takes away all that is left of it. It returns the processes and mounts
// that it had to take away by force.
func (d *Daemon) Close() ([]string, error) {
	stopped := d.Signal(syscall.SIGTERM)
	d.Conn.Close()
	forced, err := node.Sweep(d.Dir)
	return forced, errors.Join(stopped, err)
}
