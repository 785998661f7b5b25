package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim/bundle"
)

// Start starts a shim and returns as soon as its process exists; the first call waits for it.
// On error nothing is left behind. ErrAlreadyExists when a shim answers in the directory already.
func Start(ctx context.Context, o StartOptions) (_ *Client, err error) {
	sock := filepath.Join(o.Dir, SocketName)
	live, err := unixsocket.RemoveDead(ctx, sock)
	if live {
		err = fmt.Errorf("shim at %q: %w", sock, errdefs.ErrAlreadyExists)
	}
	if err != nil {
		return nil, err
	}
	listener, err := unixsocket.Listen(sock, 0o600)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	defer func() {
		if err != nil {
			os.Remove(sock)
		}
	}()
	conn, err := unixsocket.Dial(ctx, sock) // the kernel queues it until the shim accepts
	if err != nil {
		return nil, err
	}
	cmd, err := spawn(o, listener)
	if err != nil {
		conn.Close()
		return nil, err
	}
	pid := cmd.Process.Pid
	err = settle(o, pid)
	if err != nil {
		conn.Close()
		cmd.Process.Kill()
		cmd.Wait()
		os.Remove(filepath.Join(o.Dir, PidName))
		return nil, err
	}
	c := &Client{Connection{done: make(chan struct{})}}
	if o.Supervised {
		go cmd.Wait() // it may end before its shim; a thread for all pods of a handler is not much
		c.socket, c.supervisor, c.succeeded = sock, pid, o.Succeeded
	} else {
		// Reaped when the connection ends: a waiting goroutine would hold a thread for as long as
		// the shim lives.
		c.onGone = func() { go cmd.Wait() }
		c.pid.Store(int64(pid))
	}
	c.connect(conn)
	return c, nil
}

// settle is what has to be done once the process exists.
func settle(o StartOptions, pid int) error {
	if o.Place != nil {
		if err := o.Place(pid); err != nil {
			return fmt.Errorf("place shim %d: %w", pid, err)
		}
	}
	return os.WriteFile(filepath.Join(o.Dir, PidName), []byte(strconv.Itoa(pid)), 0o600)
}

// spawn starts the shim, or its supervisor, on the listener.
func spawn(o StartOptions, listener *net.UnixListener) (*exec.Cmd, error) {
	fd, err := listener.File()
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	logFile, err := os.OpenFile(filepath.Join(o.Dir, LogName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	args := []string{"-namespace", o.Namespace, "-socket", filepath.Join(o.Dir, SocketName)}
	face := "supervise"
	if !o.Supervised {
		args, face = append(args, "-id", o.ID), "serve"
	}
	if o.WasmCache != "" {
		args = append(args, "-wasm-cache", o.WasmCache)
	}
	if o.Debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command(o.Binary, append(args, face)...)
	cmd.Dir = o.Dir
	cmd.Env = shimEnv()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{fd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = launch(cmd, o.Born)
	// Nothing else makes these few arguments too long: the kernel found no memory for them in the
	// cgroup.
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOMEM) {
		err = fmt.Errorf("the memory limit of its pod does not hold it: %w", errdefs.ErrResourceExhausted)
	}
	if err != nil {
		return nil, fmt.Errorf("start shim %q: %w", o.Binary, err)
	}
	return cmd, nil
}

// launch starts a command, whose birth born prepares if it is given.
func launch(cmd *exec.Cmd, born func(*syscall.SysProcAttr) (func(), error)) (err error) {
	if born == nil {
		return cmd.Start()
	}
	thread.Run(func() {
		var release func()
		if release, err = born(cmd.SysProcAttr); err != nil {
			return
		}
		err = cmd.Start()
		if release != nil {
			release()
		}
	})
	return err
}

// shimEnv is the environment of a shim: enough to find an OCI runtime, and nothing of the daemon's
// own. Huge pages would make its heap twice as large: docs/RATIONALE.md, "Small heaps in shims and
// guests".
func shimEnv() []string {
	path := cmp.Or(os.Getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	return []string{"PATH=" + path, "GODEBUG=disablethp=1"}
}

// Connect reaches the shim that works in dir, after a restart of the daemon.
// ErrNotFound when it has exited, ErrUnavailable when it does not answer.
func Connect(ctx context.Context, dir string) (*Client, error) {
	return reach(ctx, dir, &Client{Connection{done: make(chan struct{})}})
}

// ConnectSupervised is Connect for a supervised shim. succeeded is as StartOptions.Succeeded.
func ConnectSupervised(ctx context.Context, dir string, succeeded func(pid int)) (*Client, error) {
	return reach(ctx, dir, &Client{Connection{
		done: make(chan struct{}), socket: filepath.Join(dir, SocketName), supervisor: ReadPID(dir), succeeded: succeeded,
	}})
}

func reach(ctx context.Context, dir string, c *Client) (*Client, error) {
	conn, err := unixsocket.Dial(ctx, filepath.Join(dir, SocketName))
	switch {
	case err != nil && isGone(err):
		return nil, fmt.Errorf("shim in %q: %w", dir, errdefs.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	c.connect(conn)
	if err := c.Answers(ctx); err != nil {
		c.Close()
		if errdefs.IsUnavailable(err) {
			return nil, fmt.Errorf("shim in %q: %w", dir, errdefs.ErrNotFound)
		}
		return nil, fmt.Errorf("ask shim in %q: %w: %w", dir, err, errdefs.ErrUnavailable)
	}
	return c, nil
}

// ReadPID returns the recorded pid of the shim that works in dir, or of its supervisor; 0 without
// one.
func ReadPID(dir string) int { return bundle.PidIn(filepath.Join(dir, PidName)) }
