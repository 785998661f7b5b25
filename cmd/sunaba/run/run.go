// Package run is the client behind `sunaba run`: it runs the containers of one
// Pod manifest through a CRI socket, as a kubelet would, and ends with them.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
)

// Options say what to run and where. Socket and one of File and Reader are needed.
type Options struct {
	// Socket is the path of the CRI server's unix socket.
	Socket string
	// File is the manifest: one Pod, and RuntimeClasses as further documents.
	// Reader is read instead if it is set; File then only names it in errors.
	File   string
	Reader io.Reader
	// Handler overrides the handler of the pod's RuntimeClass.
	Handler string
	// RuntimeClassFiles hold further RuntimeClasses.
	RuntimeClassFiles []string
	// Stdout and Stderr get what the containers write there; Stderr gets the progress too, one line
	// each, starting with "sunaba: "; on a terminal, pulls have a bar for each layer.
	Stdout, Stderr io.Writer
	Logger         *slog.Logger
	// Keep leaves the pod, its containers and its log files as they are at the end.
	Keep bool
}

// startErrorCode is the exit code of a container that could not be started.
const startErrorCode = 128

// dirPrefix starts the names of the folders of runs.
const dirPrefix = "sunaba-run-"

// cleanupTime bounds everything that is done after the containers' end.
const cleanupTime = 2 * time.Minute

// Run runs the pod and waits until all its containers have ended; then it removes everything it
// made. When ctx ends, the containers are stopped with the pod's grace period, and at once on a
// further SIGINT or SIGTERM. The exit code is the first one of a container that is not 0.
//
// # Errors
//
// ErrInvalidArgument for a manifest that cannot be run, naming the field;
// ErrUnavailable if no server answers. With an error the exit code is not 0.
func Run(ctx context.Context, o Options) (exitCode int, err error) {
	terminal := o.Stderr
	o.Stdout, o.Stderr = locked(o.Stdout, o.Stderr)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := readManifest(o)
	if err != nil {
		return 1, err
	}
	c, err := dial.Connect(ctx, o.Socket)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	handler, err := m.handler(o.Handler, c.Handlers())
	if err != nil {
		return 1, err
	}
	memory, err := machineMemory()
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return 1, fmt.Errorf("make directory for logs and volumes: %w", err)
	}
	p, err := newPlan(m, planOptions{Handler: handler, Dir: dir, UID: string(identity.UID()), Memory: memory})
	if err != nil {
		return 1, errors.Join(err, os.RemoveAll(dir))
	}
	r := &runner{Options: o, terminal: terminal, client: c, plan: p}
	if err := Clear(ctx, c, o.Socket, r.say); err != nil {
		o.Logger.Warn("failed to remove what a sunaba run that was killed has left", "error", err)
	}
	release, err := r.own(dir)
	if err != nil {
		return 1, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, release()) }()
	ctx, stop := withHangup(ctx)
	defer stop()
	r.hangup = stop
	code, err := r.run(ctx)
	if o.Keep && r.sandboxID != "" {
		r.drainLogs()
		r.say("the pod is kept as %.13s; its logs and volumes are in %s", r.sandboxID, dir)
		return code, err
	}
	if rest := r.cleanup(ctx); rest != nil {
		r.say("logs and volumes are left in %s", dir)
		return max(code, 1), errors.Join(err, rest)
	}
	if rest := removeDir(dir); rest != nil {
		return max(code, 1), errors.Join(err, rest)
	}
	return code, err
}

// runner is one run of a plan.
type runner struct {
	Options
	terminal  io.Writer // Stderr itself, for progress while nothing else is written
	client    *dial.Client
	plan      *plan
	sandboxID string
	hangup    func() // ends the run as an interrupt does
	containers
}

// own marks the pod as one that ends with this process, unless it is to be kept.
func (r *runner) own(dir string) (release func() error, err error) {
	if r.Keep {
		return func() error { return nil }, nil
	}
	o, err := own(r.Socket, r.plan.sandbox.GetMetadata().GetUid(), dir)
	if errors.Is(err, fs.ErrPermission) {
		r.Logger.Warn("failed to mark the pod as this process's, it would stay if this process were killed", "error", err)
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	if r.plan.sandbox.Annotations == nil {
		r.plan.sandbox.Annotations = map[string]string{}
	}
	r.plan.sandbox.Annotations[annotationOwner] = o.path
	return o.release, nil
}

// withHangup ends the context also when the terminal or the reader of the output is gone. Without
// it, either would end this process and leave the pod. A program that was started to outlive its
// terminal (nohup) goes on.
func withHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE) // a write fails with EPIPE then, and says so itself
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGHUP {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.Stderr, "sunaba: "+format+"\n", args...)
}

// run creates the pod, waits for its end and removes it. On an error the exit code is not 0.
func (r *runner) run(ctx context.Context) (int, error) {
	if err := r.plan.makeDirs(); err != nil {
		return 1, err
	}
	if err := r.pullAll(ctx); err != nil {
		return 1, err
	}
	if err := r.runSandbox(ctx); err != nil {
		return 1, err
	}
	for _, c := range r.plan.init {
		if err := r.start(ctx, c); err != nil {
			return startErrorCode, err
		}
		if c.sidecar {
			continue
		}
		code, err := r.wait(ctx, c)
		if err != nil || code != 0 {
			return max(code, 1), err
		}
	}
	if r.interrupted() || ctx.Err() != nil {
		return 1, fmt.Errorf("run pod %q: interrupted: %w", r.plan.name(), context.Canceled)
	}
	for _, c := range r.plan.main {
		if err := r.start(ctx, c); err != nil {
			return startErrorCode, err
		}
	}
	return r.waitAll(ctx, r.plan.main)
}

func (r *runner) runSandbox(ctx context.Context) error {
	began := time.Now()
	resp, err := r.client.RunPodSandbox(ctx, &runtime.RunPodSandboxRequest{Config: r.plan.sandbox, RuntimeHandler: r.plan.handler})
	if err != nil {
		return fmt.Errorf("run sandbox of pod %q: %w", r.plan.name(), dial.Native(err))
	}
	r.sandboxID = resp.GetPodSandboxId()
	status, err := r.client.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: r.sandboxID})
	if err != nil {
		return fmt.Errorf("ask for status of pod %q: %w", r.plan.name(), dial.Native(err))
	}
	where := "in the host's network"
	if ip := status.GetStatus().GetNetwork().GetIp(); ip != "" {
		where = "at " + ip
	}
	handler := r.plan.handler
	if handler == "" {
		handler = "default"
	}
	r.say("pod %s is up %s (handler %s, %s)", r.plan.name(), where, handler, short(time.Since(began)))
	return nil
}

// cleanup stops and removes what was made, also after ctx's end.
func (r *runner) cleanup(ctx context.Context) error {
	if r.sandboxID == "" {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	r.stopSidecars(ctx)
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	var errs []error
	if _, err := r.client.StopPodSandbox(ctx, &runtime.StopPodSandboxRequest{PodSandboxId: r.sandboxID}); err != nil {
		errs = append(errs, fmt.Errorf("stop sandbox of pod %q: %w", r.plan.name(), dial.Native(err)))
	}
	r.drainLogs()
	if _, err := r.client.RemovePodSandbox(ctx, &runtime.RemovePodSandboxRequest{PodSandboxId: r.sandboxID}); err != nil {
		errs = append(errs, fmt.Errorf("remove sandbox of pod %q: %w", r.plan.name(), dial.Native(err)))
	}
	return errors.Join(errs...)
}

// removeDir removes the logs and volumes, unless a container has left a mount
// there, through which something else would be removed.
func removeDir(dir string) error {
	mounts, err := mount.Below(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("remove %q: there is a mount at %q: %w", dir, mounts[0], errdefs.ErrFailedPrecondition)
	}
	return os.RemoveAll(dir)
}

// short is a duration for people.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %w", field, fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
}
