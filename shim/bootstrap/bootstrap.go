// Package bootstrap is how containerd starts a shim, asks it what it can do, and has it clean up
// after one that died: the commands start, delete and -info of runtime v2, in both generations of
// the protocol (parameters as protobuf on stdin from containerd 2.3 on, flags and environment
// before).
package bootstrap

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/message"
)

// Files that containerd, or an older one, expects in the bundle directory a shim was started in.
const (
	addressName = "address"
	pidName     = "shim.pid"
)

// socketDir is where shims' sockets are when containerd names no directory.
const socketDir = "/run/containerd/s"

// Flags are what containerd gives a shim on its command line.
type Flags struct {
	Namespace string
	ID        string
	Address   string // containerd's gRPC socket
	Bundle    string // only with delete; else the working directory is the bundle
	Debug     bool
}

// environment names, from containerd to its shims.
const (
	envTTRPC      = "TTRPC_ADDRESS"
	envSchedCore  = "SCHED_CORE"       // set if nothing else may run on a core beside a pod's threads
	envMaxVersion = "MAX_SHIM_VERSION" // set by containerd from 1.7 on; without it the answer is a plain address
)

// Versions of the Task API. We serve both; containerd 1.7 refuses to hear of 3.
const (
	versionNew = 3
	versionOld = 2
)

// Start makes sure that a shim serves the pod the bundle in the working directory belongs to, and
// writes its address to out in the form this containerd reads. A container of a pod whose shim runs
// joins it.
func Start(ctx context.Context, f Flags, in io.Reader, out io.Writer) error {
	input, err := io.ReadAll(io.LimitReader(in, 10<<20))
	if err != nil {
		return fmt.Errorf("read parameters: %w", err)
	}
	params, sent, err := parseParams(input, f)
	if err != nil {
		return err
	}
	options, err := runtimeOptions(params)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	group, err := groupOf(dir, f.ID)
	if err != nil {
		return err
	}
	path := socketPath(params.SocketDir, f.Address, f.Namespace, group)
	if err := ensure(ctx, path, dir, group, f, params, options.ShimCgroup); err != nil {
		return err
	}
	address := "unix://" + path
	if err := os.WriteFile(filepath.Join(dir, addressName), []byte(address), 0o600); err != nil {
		return err
	}
	answer, err := encodeAnswer(address, sent, os.Getenv(envMaxVersion) != "")
	if err != nil {
		return err
	}
	_, err = out.Write(answer)
	return err
}

// parseParams reads the parameters of a containerd that sends them. Older ones send runtime options
// on stdin, which may decode as parameters too, so the identity has to match. They become the
// extension that they are of newer ones' parameters.
func parseParams(input []byte, f Flags) (p message.BootstrapParams, sent bool, err error) {
	if message.Unmarshal(input, &p) == nil && p.InstanceID == f.ID && p.Namespace == f.Namespace {
		return p, true, nil
	}
	var options message.Any
	if err := message.Unmarshal(input, &options); err != nil {
		return p, false, fmt.Errorf("decode runtime options: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return message.BootstrapParams{Extensions: []message.Extension{{Value: &options}}}, false, nil
}

// runtimeOptions reads the runtime options among the extensions, which are about other things too.
func runtimeOptions(params message.BootstrapParams) (shim.Options, error) {
	for _, extension := range params.Extensions {
		if shim.IsOptions(extension.Value) {
			return shim.DecodeOptions(extension.Value, "", "")
		}
	}
	return shim.Options{}, nil
}

// encodeAnswer writes a shim's address as the caller reads it: protobuf, JSON, or the bare address.
func encodeAnswer(address string, protobuf, versioned bool) ([]byte, error) {
	switch {
	case protobuf:
		return message.Fields[any](int32(versionNew), address, "ttrpc"), nil // a BootstrapResult
	case versioned:
		return json.Marshal(struct {
			Version  int    `json:"version"`
			Address  string `json:"address"`
			Protocol string `json:"protocol"`
		}{versionOld, address, "ttrpc"})
	default:
		return []byte(address), nil
	}
}

// groupLabel is the annotation by which clients of containerd's own shim have containers share one.
const groupLabel = "io.containerd.runc.v2.group"

// groupOf is the group or pod of a bundle: all its containers share one shim.
func groupOf(dir, id string) (string, error) {
	spec, err := bundle.ReadSpec(dir)
	if err != nil {
		return "", err
	}
	return cmp.Or(spec.Annotations[groupLabel], spec.Annotations[annotation.SandboxID], id), nil
}

// socketPath is short whatever the names are: socket addresses hold 107 bytes.
func socketPath(dir, address, namespace, group string) string {
	dir = cmp.Or(dir, socketDir)
	sum := sha256.Sum256([]byte(strings.Join([]string{"sunaba", address, namespace, group}, "\x00")))
	return filepath.Join(dir, fmt.Sprintf("%x", sum))
}

// ensure starts a shim on the socket unless one answers there.
func ensure(ctx context.Context, path, dir, group string, f Flags, params message.BootstrapParams, shimCgroup string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	listener, err := unixsocket.Listen(path, 0o600)
	if errors.Is(err, syscall.EADDRINUSE) {
		if live, err := unixsocket.RemoveDead(ctx, path); live || err != nil {
			return err // a live one is the pod's shim
		}
		listener, err = unixsocket.Listen(path, 0o600)
	}
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := spawn(listener, path, dir, group, f, params, shimCgroup); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// spawn starts the serve face, in a cgroup if one is named.
func spawn(listener *net.UnixListener, path, dir, group string, f Flags, params message.BootstrapParams, shimCgroup string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fd, err := listener.File()
	if err != nil {
		return err
	}
	defer fd.Close()
	args := []string{"-namespace", f.Namespace, "-id", group, "-address", f.Address, "-socket", path}
	if f.Debug || params.LogLevel < 0 {
		args = append(args, "-debug")
	}
	cmd := exec.Command(self, append(args, "serve")...)
	cmd.Dir = dir
	cmd.Env = environment(params)
	cmd.ExtraFiles = []*os.File{fd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getenv(envSchedCore) != "" { // the shim inherits this process's cookie, and its containers that of the shim
		if err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, unix.PR_SCHED_CORE_SCOPE_PROCESS_GROUP, 0); err != nil {
			return fmt.Errorf("create core scheduling group: %w", err)
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	pid := cmd.Process.Pid
	err = place(pid, shimCgroup)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, pidName), []byte(strconv.Itoa(pid)), 0o600)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return err
	}
	return cmd.Process.Release()
}

// place moves the shim into a cgroup that is there: whoever names one keeps it.
func place(pid int, path string) error {
	if path == "" {
		return nil
	}
	group, err := cgroup.Open(path)
	if err != nil {
		return fmt.Errorf("place shim: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return group.JoinPresent(pid)
}

// environment of the shim: as it came, with containerd's events address, which newer ones send as a
// parameter. Huge pages would make its heap twice as large: docs/RATIONALE.md, "Small heaps in
// shims and guests".
func environment(params message.BootstrapParams) []string {
	env := os.Environ()
	if os.Getenv("GODEBUG") == "" {
		env = append(env, "GODEBUG=disablethp=1")
	}
	if address := params.ContainerdTTRPCAddress; address != "" {
		env = append(env, envTTRPC+"="+strings.TrimPrefix(address, "unix://"))
	}
	return env
}

// EventsAddress is where a shim started by containerd forwards events to, "" for one of ours.
func EventsAddress() string { return os.Getenv(envTTRPC) }

// CheckFlags refuses a command line that lacks what a command needs.
func CheckFlags(f Flags) error {
	if f.Namespace == "" || f.ID == "" {
		return fmt.Errorf("-namespace and -id are needed: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}
