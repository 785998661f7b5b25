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
	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent/inhibit"
	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/server"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/host/systemd/logind"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/pods/agent"
	"github.com/sunaba-project/sunaba/pods/agent/gauges"
	"github.com/sunaba-project/sunaba/pods/agent/node"
	"github.com/sunaba-project/sunaba/pods/agent/outside"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/foreign"
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
	others  *foreign.View
	config  Config
	socket  string // of the commands
	info    api.ServerInfo
	usage   func(context.Context) ([]api.ContainerUsage, error)
	network network.Watched
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
	// Images is the folder of images and containers' layers.
	Images string
	// Socket is the CRI server's; StreamCertificate is the file of the certificate with which its
	// streams are served, "" if they are not encrypted.
	Socket, StreamCertificate string
	CRI                       server.Local
	// Stops are the requests of other processes to the CRI server that stop what runs.
	Stops func(context.Context, func(server.Stop))
	// Tracer records what the agent does with pods; nil for nobody.
	Tracer trace.Tracer
	// Network watches what makes the network ready; nil if nothing does.
	Network  network.Watched
	Cgroups  Cgroups
	Handlers *runtimeclass.Table
	Host     spec.Host
	BootID   string
	// UserRanges is the folder of the locks of pods' user ids, which are the machine's.
	UserRanges string
	// Classes are the RuntimeClasses of the node, beside those of manifests.
	Classes func() []nodev1.RuntimeClass
	// ImageBudget is how many bytes images may take together; 0 is as many as there are.
	ImageBudget int64
	// Changed is told how many pods run and are ready.
	Changed func(summary string)
	Logger  *slog.Logger
}

func (o Options) pods() string  { return filepath.Join(o.Root, "pods") } // records, volumes and applied objects
func (o Options) state() string { return filepath.Join(o.State, "pods") }

// info is what the commands are told.
func (o Options) info() (info api.ServerInfo, err error) {
	if info.CRISocket, err = filepath.Abs(o.Socket); err != nil {
		return info, fmt.Errorf("find CRI socket: %w", err)
	}
	if o.StreamCertificate != "" {
		if info.StreamCertificate, err = filepath.Abs(o.StreamCertificate); err != nil {
			return info, fmt.Errorf("find certificate of streams: %w", err)
		}
	}
	return info, nil
}

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
	info, err := o.info()
	if err != nil {
		return nil, err
	}
	info.Manifests = true
	events, err := os.OpenFile(o.events(), os.O_CREATE|os.O_RDONLY, 0o600) // a server's files are there when it is ready
	if err != nil {
		return nil, fmt.Errorf("make file of events: %w", err)
	}
	if err := events.Close(); err != nil {
		return nil, fmt.Errorf("make file of events: %w", err)
	}
	facts, err := Facts(c, o.Root, o.Host)
	if err != nil {
		return nil, err
	}
	limited := enforce(o, memoryLimit(c, facts))
	set, err := desired.Open(desired.Options{Folders: c.Manifests, Store: o.pods(), IgnoreKinds: c.IgnoreKinds, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	memory := facts.Node.Allocatable[corev1.ResourceMemory]
	var a *agent.Agent
	vols, err := volumes.New(volumes.Options{
		Dir: o.pods(), Memory: filepath.Join(o.state(), "volumes"), Claims: filepath.Join(o.pods(), "claims"),
		Objects: set, Allocatable: memory.Value(), Logger: o.Logger,
		Field: translate.VolumeField,
		Resource: func(pod *corev1.Pod, ref *corev1.ResourceFieldSelector) (string, error) {
			return translate.ResourceFieldRef(translate.Input{Pod: pod, Node: facts.Node, Objects: set}, nil, ref)
		},
		Name: func(uid types.UID) (name types.NamespacedName) {
			for _, p := range a.Pods() {
				if p.UID == uid {
					name = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
				}
			}
			return name
		},
	})
	if err != nil {
		return nil, err
	}
	options, err := agentOptions(o, c, facts, set, vols)
	options.Before = limited
	if err != nil {
		return nil, err
	}
	a, err = agent.New(options)
	if err != nil {
		return nil, err
	}
	view, err := newNodeView(o, facts, a)
	if err != nil {
		return nil, err
	}
	return &Runner{
		set: set, volumes: vols, agent: a, service: &service{Agent: a, node: view, set: set, volumes: vols, classes: o.Classes, handlers: options.Handlers},
		others: newOthers(o.CRI, facts.Node.Name, o.Classes), config: c, socket: filepath.Join(o.State, api.SocketName), info: info, usage: func(ctx context.Context) ([]api.ContainerUsage, error) { return usage(ctx, o.CRI) }, network: o.Network, logger: o.Logger, stop: func() {},
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
	eviction, err := evictionOptions(o, c.Eviction, c.Logs, facts)
	if err != nil {
		return agent.Options{}, err
	}
	graces, err := c.Graces()
	if err != nil {
		return agent.Options{}, err
	}
	removal, err := c.Images.policy()
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
		Settings: cycle.Settings{CrashLoopMax: crashLoop, HostIPs: facts.Node.IPs, Runtime: "sunaba", RecursiveReadOnly: o.Host.RecursiveReadOnly, NetworkWatched: o.Network != nil},
		BootID:   o.BootID, ParallelPulls: c.ParallelPulls, PullFallback: c.PullFallback, LogLimits: limits,
		ImageGC: removal, ImageBudget: o.ImageBudget,
		SubUIDs: "/etc/subuid", SubGIDs: "/etc/subgid", UserRanges: o.UserRanges, UnsafeSysctls: c.UnsafeSysctls, AppArmor: o.Host.AppArmor, UserAgent: "sunaba-" + version.String(),
		Eviction: eviction, Shutdown: graces, Changed: o.Changed, Tracer: o.Tracer, Logger: o.Logger,
		Stops: func(ctx context.Context, f func(outside.Stop)) {
			o.Stops(ctx, func(s server.Stop) {
				f(outside.Stop{
					Labels: s.Labels, Annotations: s.Annotations, Container: s.Container,
					Known: s.Known, PID: s.Process.PID, UID: s.Process.UID, Name: s.Process.Name,
				})
			})
		},
	}, nil
}

func evictionOptions(o Options, c Eviction, logs string, facts node.Facts) (agent.Eviction, error) {
	thresholds, err := c.thresholds(facts.Node.Memory)
	if err != nil {
		return agent.Eviction{}, err
	}
	transition, err := c.transition()
	if err != nil {
		return agent.Eviction{}, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return agent.Eviction{}, fmt.Errorf("make folder of logs: %w", err)
	}
	measure, err := gauges.Open(o.pods(), o.Images, logs)
	if err != nil {
		return agent.Eviction{}, err
	}
	return agent.Eviction{Gauges: measure, Thresholds: thresholds, Transition: transition}, nil
}

// All are the pods of manifests and those of others, as the commands see them.
func (r *Runner) All() api.Agent { return &shared{r.service, r.others, r.logger} }

// Start runs the pods and serves the commands about them. It returns when the manifests were
// listed.
func (r *Runner) Start(ctx context.Context) error {
	options := api.Options{Agent: r.service, Whole: r.agent.Shown(), Shutdown: r.agent, Metrics: r.agent.Metrics, Server: r.info, Usage: r.usage, Logger: r.logger}
	commands := options
	commands.Agent = r.All()
	local, err := api.Listen(r.socket, commands)
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
	r.inhibit(ctx)
	if r.network != nil {
		r.running.Go(func() { r.watchNetwork(ctx) })
	}
	select {
	case <-r.set.Listed():
	case <-ctx.Done():
	}
	r.logger.Info("running pods of manifests", "folders", r.config.Manifests, "socket", r.socket)
	return nil
}

// inhibit has pods end in order when the machine shuts down.
func (r *Runner) inhibit(ctx context.Context) {
	graces, err := r.config.Graces()
	if err != nil || graces.Total == 0 {
		return
	}
	o := inhibit.Options{Pods: r.agent, Grace: graces.Total, Logger: r.logger}
	if r.config.LogindDropIn {
		o.DropIns = logind.DropIns
	}
	r.running.Go(func() { inhibit.New(o).Run(ctx) })
}

// watchNetwork has pods retried that waited for the network, as soon as it may be ready.
func (r *Runner) watchNetwork(ctx context.Context) {
	err := r.network.Watch(ctx, func() {
		if err := r.agent.Reload(ctx, nil); err != nil && ctx.Err() == nil {
			r.logger.Error("failed to judge waiting pods anew", "error", err)
		}
	})
	if err != nil {
		r.logger.Warn("failed to watch the network, pods that wait for it are retried from time to time", "error", err)
	}
}

// Reload lists the folders again, and judges pods anew that wait for a class, a handler or a label.
// labels are those that the configuration gives the node now.
func (r *Runner) Reload(ctx context.Context, labels map[string]string) {
	r.set.Reload()
	if err := r.agent.Reload(ctx, r.service.node.relabel(labels)); err != nil {
		r.logger.Error("failed to judge waiting pods anew", "error", err)
	}
}

// Health is an error if the agent does not turn.
func (r *Runner) Health() error { return r.agent.Health() }

// Close stops what Start started. Pods keep running.
func (r *Runner) Close() error {
	r.stop()
	r.others.Close()
	r.running.Wait()
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	errs = append(errs, r.volumes.Close())
	return errors.Join(errs...)
}
