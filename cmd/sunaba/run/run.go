// Package run is `sunaba run`: an agent of its own for the Pod of one manifest, which runs it
// through a CRI socket in the foreground and ends with it.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes"
	"github.com/sunaba-project/sunaba/version"
)

// Options say what to run and where. Socket and one of File and Reader are needed.
type Options struct {
	// Socket is the path of the CRI server's unix socket.
	Socket string
	// File is the manifest: one Pod, and what it uses as further documents. Reader is read instead if
	// it is set; File then only names it in errors.
	File   string
	Reader io.Reader
	// Handler overrides the handler of the pod's RuntimeClass.
	Handler string
	// RuntimeClassFiles hold further RuntimeClasses.
	RuntimeClassFiles []string
	// Pods is what the configuration says about pods. What Seccomp is not set to is below Root.
	Pods podagent.Config
	Root string
	// UserRanges is the folder of the locks of user ids, one for the whole machine. SubUIDs and
	// SubGIDs are files that name those for pods.
	UserRanges, SubUIDs, SubGIDs string
	// ExitCode says whose exit codes count: Any, All or None.
	ExitCode string
	// Stdout and Stderr get what the containers write there; Stderr gets the progress too, one line
	// each, starting with "sunaba: "; on a terminal, pulls have a bar for each layer.
	Stdout, Stderr io.Writer
	Logger         *slog.Logger
	// Interactive connects Stdin with a container, TTY gives that one a terminal. Container names it;
	// without, it is the one that other commands take.
	Interactive, TTY bool
	Container        string
	Stdin            io.Reader
	// Keep leaves the pod, its containers and its log files as they are at the end.
	Keep bool
}

// Values of Options.ExitCode.
const (
	Any  = "any"  // the first exit code that is not 0
	All  = "all"  // the same, if no app container ended with 0
	None = "none" // 0 whatever the containers ended with
)

// dirPrefix starts the names of the folders of runs.
const dirPrefix = "sunaba-run-"

// cleanupTime bounds everything that is done after the containers' end.
const cleanupTime = 2 * time.Minute

// Run runs the pod as its restartPolicy says until it is over; then it removes everything it made.
// When ctx ends, the containers are stopped with the pod's grace period, and at once on a further
// SIGINT or SIGTERM. What cannot be started for a reason that does not end by itself ends the run.
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
	set, err := readObjects(o)
	if err != nil {
		return 1, err
	}
	c, err := dial.Connect(ctx, o.Socket)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := set.setHandler(o.Handler, c.Handlers()); err != nil {
		return 1, err
	}
	r := &runner{Options: o, terminal: terminal, client: c, objects: set}
	if r.attached, err = newAttached(ctx, r); err != nil {
		return 1, err
	}
	for _, n := range set.notes {
		r.say("warning: %s", n)
	}
	if err := Clear(ctx, c, o.Socket, r.say); err != nil {
		o.Logger.Warn("failed to remove what a sunaba run that was killed has left", "error", err)
	}
	if r.dir, err = filepath.Abs(filepath.Join(os.TempDir(), dirPrefix+string(r.pod.UID))); err != nil {
		return 1, fmt.Errorf("find directory for logs and volumes: %w", err)
	}
	// The lock names the directory before it is made: a run may be killed in between.
	release, err := r.own()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return 1, fmt.Errorf("make directory for logs and volumes: %w", err)
	}
	ctx, r.hangup = withHangup(ctx)
	defer r.hangup()
	code, err := r.run(ctx)
	if o.Keep && r.made {
		r.say("the pod is kept; its logs and volumes are in %s", r.dir)
		return code, err
	}
	if rest := removeDir(r.dir); rest != nil {
		r.say("logs and volumes are left in %s", r.dir)
		return max(code, 1), errors.Join(err, rest)
	}
	return code, err
}

// runner is one run.
type runner struct {
	Options
	terminal io.Writer // Stderr itself, for progress
	client   *dial.Client
	*objects
	dir    string
	mark   string
	hangup func() // ends the run as an interrupt does
	made   bool   // something of the pod is or was there

	attached *attached // nil without a container that takes part in the command's streams
}

// own marks the pod as one that ends with this process, unless it is to be kept.
func (r *runner) own() (release func() error, err error) {
	uid := string(r.pod.UID)
	if r.Keep {
		r.mark = uid
		return func() error { return nil }, nil
	}
	o, err := own(r.Socket, uid, r.dir)
	if err != nil {
		return nil, err
	}
	r.mark = o.path
	return o.release, nil
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.Stderr, "sunaba: "+format+r.attached.lineEnd(), args...)
}

// run has an agent run the pod to its end. On an error the exit code is not 0.
func (r *runner) run(ctx context.Context) (code int, err error) {
	options, err := r.agentOptions()
	if err != nil {
		return 1, err
	}
	if translate.OwnUsers(r.pod) {
		users, release, err := r.userRange(ctx)
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, release()) }()
		options.Users = users
	}
	vols := options.Volumes.(*volumes.Manager)
	defer func() {
		if !r.Keep {
			err = errors.Join(err, vols.Close())
		}
	}()
	s, err := newServer(ctx, r)
	if err != nil {
		return 1, err
	}
	options.CRI = s
	a, err := agent.New(options)
	if err != nil {
		return 1, err
	}
	// The agent outlives the signal that ends the pod, so that the pod can be stopped.
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(living) }()
	e, err := r.follow(ctx, a, s)
	stop()
	err = errors.Join(err, <-ended)
	if r.Keep && ctx.Err() != nil {
		s.stopAll(e.grace())
	}
	s.drain()
	return e.code(s, err)
}

// agentOptions are those of an agent for this pod alone, except its server.
func (r *runner) agentOptions() (agent.Options, error) {
	c := r.Pods
	if c.Seccomp == "" {
		c.Seccomp = filepath.Join(r.Root, "pods", "seccomp")
	}
	crashLoop, err := time.ParseDuration(c.CrashLoopMax)
	if err != nil {
		return agent.Options{}, fmt.Errorf("pods.crash_loop_max: %w", err)
	}
	host, err := facts.Host()
	if err != nil {
		return agent.Options{}, err
	}
	f, err := podagent.Facts(c, r.dir, host)
	if err != nil {
		return agent.Options{}, err
	}
	bootID, err := boot.ID()
	if err != nil {
		return agent.Options{}, err
	}
	memory := f.Node.Allocatable[corev1.ResourceMemory]
	set := desired.NewFixed(r.entries)
	vols, err := volumes.New(volumes.Options{
		Dir: podsIn(r.dir), Memory: memoryIn(r.dir), Claims: claimsIn(r.dir), Objects: set, Allocatable: memory.Value(), Logger: r.Logger,
		Field: translate.VolumeField,
		Resource: func(pod *corev1.Pod, ref *corev1.ResourceFieldSelector) (string, error) {
			return translate.ResourceFieldRef(translate.Input{Pod: pod, Node: f.Node, Objects: set}, nil, ref)
		},
	})
	if err != nil {
		return agent.Options{}, err
	}
	return agent.Options{
		Desired: set, Volumes: vols, Root: podsIn(r.dir), EventsFile: filepath.Join(r.dir, "events"), Logs: logsIn(r.dir), RunMark: r.mark,
		// A run does not outlive the machine, and one that was killed is removed by its lock.
		Write: func(path string, data []byte, _ records.Mode) error { return durable.Replace(path, data, 0o600) },
		Node:  f.Node, Labels: f.Labels, Classes: func() []nodev1.RuntimeClass { return nil },
		Handlers: func() []string { return named(r.client.Handlers()) },
		Settings: cycle.Settings{CrashLoopMax: crashLoop, HostIPs: f.Node.IPs, Runtime: "sunaba", RecursiveReadOnly: host.RecursiveReadOnly},
		BootID:   bootID, ParallelPulls: c.ParallelPulls, PullFallback: c.PullFallback,
		LogLimits:     logs.Limits{Size: math.MaxInt64, Files: keepLogs}, // who shows a log rotates it too
		UnsafeSysctls: c.UnsafeSysctls, UserAgent: "sunaba-" + version.String(), Logger: r.Logger,
	}, nil
}

// short is a duration for people.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
