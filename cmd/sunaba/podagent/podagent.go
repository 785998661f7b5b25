// Package podagent joins the agent, which runs the pods of manifests, with the CRI server of this
// process and with the commands about pods.
package podagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd"
	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/criserver/server"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/agent/node"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/translate"
	"github.com/sunaba-project/sunaba/pods/volumes"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/version"
)

// Runner runs the pods of manifests on the server of this process.
type Runner struct {
	set     *desired.Set
	volumes *volumes.Manager
	agent   *agent.Agent
	service *service
	config  Config
	socket  string // of the commands
	cri     string // of the CRI server, absolute
	logger  *slog.Logger

	stop    context.CancelFunc
	running sync.WaitGroup
	servers []*api.Server
}

// Options are what a Runner needs of the daemon.
type Options struct {
	Config Config
	// Root and State are the server's folders: what outlives a reboot, and what does not.
	Root, State string
	// Socket is the CRI server's.
	Socket   string
	CRI      server.Local
	Handlers *runtimeclass.Table
	Host     spec.Host
	BootID   string
	// Classes are the RuntimeClasses of the node, beside those of manifests.
	Classes func() []nodev1.RuntimeClass
	// Changed is told how many pods run and are ready.
	Changed func(summary string)
	Logger  *slog.Logger
}

func (o Options) pods() string  { return filepath.Join(o.Root, "pods") } // records, volumes and applied objects
func (o Options) state() string { return filepath.Join(o.State, "pods") }

// events is the file of what happened lately.
func (o Options) events() string { return filepath.Join(o.state(), "events") }

// New reads what is on record. Nothing is done with it before Start.
func New(o Options) (*Runner, error) {
	c := o.Config
	if c.Seccomp == "" {
		c.Seccomp = filepath.Join(o.pods(), "seccomp")
	}
	if err := os.MkdirAll(o.state(), 0o711); err != nil {
		return nil, fmt.Errorf("make folder of pods: %w", err)
	}
	cri, err := filepath.Abs(o.Socket)
	if err != nil {
		return nil, fmt.Errorf("find CRI socket: %w", err)
	}
	events, err := os.OpenFile(o.events(), os.O_CREATE|os.O_RDONLY, 0o600) // a server's files are there when it is ready
	if err != nil {
		return nil, fmt.Errorf("make file of events: %w", err)
	}
	if err := events.Close(); err != nil {
		return nil, fmt.Errorf("make file of events: %w", err)
	}
	facts, err := nodeFacts(c, o.Root, o.Host)
	if err != nil {
		return nil, err
	}
	set, err := desired.Open(desired.Options{Folders: c.Manifests, Store: o.pods(), IgnoreKinds: c.IgnoreKinds, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	memory := facts.Node.Allocatable[corev1.ResourceMemory]
	vols, err := volumes.New(volumes.Options{
		Dir: o.pods(), Memory: filepath.Join(o.state(), "volumes"), Claims: filepath.Join(o.pods(), "claims"),
		Objects: set, Allocatable: memory.Value(), Logger: o.Logger,
		Field: translate.VolumeField,
		Resource: func(pod *corev1.Pod, ref *corev1.ResourceFieldSelector) (string, error) {
			return translate.ResourceFieldRef(translate.Input{Pod: pod, Node: facts.Node, Objects: set}, nil, ref)
		},
	})
	if err != nil {
		return nil, err
	}
	options, err := agentOptions(o, c, facts, set, vols)
	if err != nil {
		return nil, err
	}
	a, err := agent.New(options)
	if err != nil {
		return nil, err
	}
	return &Runner{
		set: set, volumes: vols, agent: a, service: &service{Agent: a, set: set, volumes: vols}, config: c, socket: filepath.Join(o.State, podcmd.SocketName), cri: cri, logger: o.Logger, stop: func() {},
	}, nil
}

func agentOptions(o Options, c Config, facts node.Facts, set *desired.Set, vols *volumes.Manager) (agent.Options, error) {
	crashLoop, err := c.crashLoopMax()
	if err != nil {
		return agent.Options{}, err
	}
	limits, err := c.logLimits()
	if err != nil {
		return agent.Options{}, err
	}
	return agent.Options{
		CRI: o.CRI, Text: errtext.Of, Desired: set, Volumes: vols, Root: o.pods(), EventsFile: o.events(), Logs: c.Logs,
		Node: facts.Node, Labels: facts.Labels, Classes: o.Classes,
		Handlers: func() []string {
			names := []string{}
			for _, h := range o.Handlers.All() {
				names = append(names, h.Name)
			}
			return names
		},
		Settings: cycle.Settings{CrashLoopMax: crashLoop, HostIPs: facts.Node.IPs, Runtime: "sunaba", RecursiveReadOnly: o.Host.RecursiveReadOnly},
		BootID:   o.BootID, ParallelPulls: c.ParallelPulls, PullFallback: c.PullFallback, LogLimits: limits,
		SubUIDs: "/etc/subuid", SubGIDs: "/etc/subgid", UnsafeSysctls: c.UnsafeSysctls, UserAgent: "sunaba-" + version.String(),
		Changed: o.Changed, Logger: o.Logger,
	}, nil
}

// Start runs the pods and serves the commands about them. It returns when the manifests were
// listed.
func (r *Runner) Start(ctx context.Context) error {
	options := api.Options{Agent: r.service, CRISocket: r.cri, Logger: r.logger}
	local, err := api.Listen(r.socket, options)
	if err != nil {
		return err
	}
	r.servers = append(r.servers, local)
	if r.config.Listen != "" {
		open, err := api.ListenReadOnly(r.config.Listen, options)
		if err != nil {
			return err
		}
		r.servers = append(r.servers, open)
		r.logger.Info("serving pods", "address", open.Addr().String())
	}
	ctx, r.stop = context.WithCancel(ctx)
	r.running.Go(func() {
		if err := r.agent.Run(ctx); err != nil {
			r.logger.Error("failed to run the pods of manifests", "error", err)
		}
	})
	select {
	case <-r.set.Listed():
	case <-ctx.Done():
	}
	r.logger.Info("running pods of manifests", "folders", r.config.Manifests, "socket", r.socket)
	return nil
}

// Reload lists the folders again and judges pods anew that wait for a class or a handler.
func (r *Runner) Reload(ctx context.Context) {
	r.set.Reload()
	if err := r.agent.Reload(ctx); err != nil {
		r.logger.Error("failed to judge waiting pods anew", "error", err)
	}
}

// Close ends what Start began. Pods run on.
func (r *Runner) Close() error {
	r.stop()
	r.running.Wait()
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	errs = append(errs, r.volumes.Close())
	return errors.Join(errs...)
}
