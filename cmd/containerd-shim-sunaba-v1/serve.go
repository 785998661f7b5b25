package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	goruntime "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bootstrap"
	"github.com/sunaba-project/sunaba/shim/events"
	"github.com/sunaba-project/sunaba/shim/memory"
	"github.com/sunaba-project/sunaba/shim/pause"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/runc"
	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
	"github.com/sunaba-project/sunaba/shim/stdio"
	"github.com/sunaba-project/sunaba/shim/task"
	"github.com/sunaba-project/sunaba/shim/wasm/engine"
)

// Descriptors that are inherited.
const (
	inherited     = 3 // listening socket
	inheritedLink = 4 // to the supervisor, with -supervised
)

// oomScore makes the shim the last process of its pod that memory shortage hits.
const oomScore = "-998"

// serve is the shim itself. Its working directory belongs to it: a sandbox's directory under our
// server, the first container's bundle under containerd.
func (a arguments) serve(ctx context.Context) error {
	memory.Tune()
	if a.Address != "" {
		runtime.GOMAXPROCS(1) // docs/RATIONALE.md, "Small heaps in shims and guests"
	}
	logger := slog.New(slog.NewTextHandler(a.logWriter(), &slog.HandlerOptions{Level: a.logLevel()}))
	lowerOOMScore(logger)
	listener, err := listen()
	if err != nil {
		return err
	}
	r, link, err := a.newReaper()
	if err != nil {
		return err
	}
	goruntime.Monitor = reaper.Monitor{Reaper: r} // go-runc's only way to be told
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if a.Address == "" {
		if err := ownTempFiles(dir); err != nil {
			logger.Warn("failed to remove temporary files of an earlier shim", "error", err)
		}
	}
	guests, err := engine.New(engine.Options{CacheDir: a.WasmCache}, r)
	if err != nil {
		return err
	}
	engines := []shim.Engine{
		pause.New("", r),
		guests,
		runc.New(runc.Options{Root: a.runtimeRoot(dir), Debug: a.Debug}, r),
	}
	options := task.Options{
		Namespace: a.Namespace, Containerd: a.Address != "", Engines: engines, RuntimeRoot: a.runtimeRoot(dir),
		Logger: logger,
		Run:    func(cmd *exec.Cmd) (stdio.Program, error) { return startProgram(r, cmd) },
	}
	if link != nil {
		options.Supervisor = guarded{link, r}
		options.Remove = func(dir, id string) (shim.Exit, error) {
			exit, _, err := bootstrap.Delete(ctx, dir, id)
			return exit, err
		}
	}
	options.Settled, options.Asked = memory.GiveBackSoon()
	options.Ending = func() {
		if err := guests.Close(); err != nil {
			logger.Warn("failed to stop prewarmed guest process", "error", err)
		}
		if a.Socket != "" {
			os.Remove(a.Socket)
		}
	}
	if address := bootstrap.EventsAddress(); address != "" {
		forwarder := events.NewForwarder(address, a.Namespace, logger)
		defer forwarder.Close()
		options.Publisher = forwarder
	}
	return task.Serve(ctx, listener, options)
}

func lowerOOMScore(logger *slog.Logger) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0); err != nil && !errors.Is(err, os.ErrPermission) {
		logger.Warn("failed to lower OOM score", "error", err)
	}
}

// ownTempFiles has go-runc put the files of a moment, such as the process that an OCI runtime is to
// execute, into the shim's directory, where they go with it if the shim dies first, and removes
// those of an earlier shim.
func ownTempFiles(dir string) error {
	if err := os.Setenv("XDG_RUNTIME_DIR", dir); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(dir, "runc-process*"))
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// newReaper makes the reaper of a shim with or without a supervisor.
func (a arguments) newReaper() (*reaper.Reaper, *supervisor.Link, error) {
	if !a.Supervised {
		r, err := reaper.New()
		return r, nil, err
	}
	link, err := supervisor.Open(os.NewFile(inheritedLink, "link"))
	if err != nil {
		return nil, nil, err
	}
	r, err := reaper.NewSupervised(link)
	return r, link, err
}

// guarded is the supervisor as the service sees it: whether a process can still be watched is for
// the reaper to say.
type guarded struct {
	*supervisor.Link
	reaper *reaper.Reaper
}

func (g guarded) Watch(pid int) error { return g.reaper.Guard(pid) }

// program is a child of the shim that takes a container's output.
type program struct {
	reaper *reaper.Reaper
	child  *reaper.Child
}

func startProgram(r *reaper.Reaper, cmd *exec.Cmd) (stdio.Program, error) {
	child, err := r.Start(cmd)
	if err != nil {
		return nil, err
	}
	return program{r, child}, cmd.Process.Release()
}

func (p program) Done() <-chan struct{}           { return p.child.Done }
func (p program) Signal(sig syscall.Signal) error { return p.reaper.Signal(p.child, sig) }

// runtimeRoot is where the OCI runtime keeps its state: with ours below the shim's directory, under
// containerd beside all shims, because containerd deletes a bundle directory with its container.
func (a arguments) runtimeRoot(dir string) string {
	if a.Address != "" {
		return filepath.Join("/run/sunaba/runc", a.Namespace)
	}
	return filepath.Join(dir, "runc")
}

// listen takes the inherited socket.
func listen() (net.Listener, error) {
	f := os.NewFile(inherited, "socket")
	if f == nil {
		return nil, errors.New("serve: descriptor 3 is not open")
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("serve: descriptor 3 is not a listening socket: %w", err)
	}
	return l, nil
}

func (a arguments) logLevel() slog.Level {
	if a.Debug {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// logWriter is standard error with ours, and the FIFO "log" in the bundle that containerd reads.
func (a arguments) logWriter() io.Writer {
	if a.Address == "" {
		return os.Stderr
	}
	// Opened for reading as well, it outlives its reader; without blocking, a reader that is slow
	// loses lines.
	fd, err := unix.Open("log", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.Stderr
	}
	return lossyWriter(fd)
}

// lossyWriter writes what a FIFO takes at once, and drops the rest.
type lossyWriter int

func (w lossyWriter) Write(p []byte) (int, error) {
	_, _ = unix.Write(int(w), p)
	return len(p), nil
}
