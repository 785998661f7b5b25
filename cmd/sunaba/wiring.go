package main

import (
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/cmd/sunaba/metrics"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent"
	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/checkpoint"
	"github.com/sunaba-project/sunaba/criserver/compiler"
	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/events"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/selinux"
	"github.com/sunaba-project/sunaba/criserver/server"
	"github.com/sunaba-project/sunaba/criserver/servermetrics"
	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/criserver/session/stream"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/page"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/memory"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
	"github.com/sunaba-project/sunaba/version"
)

// appArmorProfile confines the containers that name no profile of their own.
const appArmorProfile = "sunaba-default"

// restTime is how long nothing changes of pods and containers until the server gives memory back.
const restTime = 5 * time.Second

// wiring makes the parts of a daemon, each step from those of the steps before it: everything that
// one part is told about another stands here.
type wiring struct {
	*daemon
	config config
	debug  bool

	// Of the node.
	shim     string
	handlers *runtimeclass.Table
	cgroups  *cgroup.Manager
	host     spec.Host
	selinux  *selinux.Labels
	runtimes *ociruntime.Book
	bootID   string
	metrics  *servermetrics.Set // nil where nobody collects them

	modules     *compiler.Compiler
	events      *events.Hub
	worked      func() // pods or containers have changed
	sandboxes   *sandbox.Manager
	containers  *container.Manager
	checkpoints *checkpoint.Service
	sessions    *session.Manager
	streams     *stream.Server
}

// inspectNode finds the programs, and reads what the node can do.
func (w *wiring) inspectNode() (err error) {
	c := w.config
	if w.shim, err = findShim(c.Shim); err != nil {
		return err
	}
	if w.handlers, err = c.handlers(findOCIRuntime()); err != nil {
		return err
	}
	if c.Metrics.Address != "" {
		w.metrics = server.NewMetrics(w.handlers)
	}
	if w.cgroups, err = cgroup.New(c.CgroupDriver); err != nil {
		return err
	}
	if w.host, err = facts.Host(); err != nil {
		return err
	}
	w.host.IDMappedMounts, err = facts.IDMappedMounts(w.places.root)
	if durable.Full(err) {
		w.logger.Warn("failed to test ID-mapped mounts, user namespaces are not offered: free disk space and restart the server", "error", err)
	} else if err != nil {
		return err
	}
	w.host.AppArmor = w.host.AppArmor && c.Security.AppArmor
	w.host.AppArmorDefault = appArmorProfile
	w.selinux = selinux.New(c.Security.SELinux, w.logger)
	w.runtimes = openRuntimes(w.handlers, w.cgroups, w.places, w.logger)
	w.close = append(w.close, w.runtimes.Close)
	w.bootID, err = boot.ID()
	return err
}

// openImages opens the image store, and what compiles its modules.
func (w *wiring) openImages() (err error) {
	if why := gowasm.Declined(); why != "" {
		w.logger.Warn("failed to find a wazero version that was checked, Go modules are not rewritten and machine code is not shared: wasm.optimize_go and its annotation have no effect", "reason", why)
	}
	if w.images, w.modules, err = openImages(w.config, w.places, w.handlers, w.shim, w.metrics.Pull, w.logger); err != nil {
		return err
	}
	w.close = append(w.close, w.images.Close)
	return nil
}

func (w *wiring) openNetwork() (err error) {
	if w.network, err = network.New(networkOptions(w.config, w.places, w.logger)); err != nil {
		return err
	}
	w.close = append(w.close, w.network.Close)
	return nil
}

func (w *wiring) openSandboxes() (err error) {
	p := w.places
	w.events = server.NewEvents(w.logger)
	w.worked = memory.GiveBackHeapAfter(restTime)
	w.sandboxes, err = sandbox.New(sandbox.Options{
		Handlers: w.handlers, Network: w.network, Cgroups: w.cgroups, Host: w.host, Runtime: w.runtimes.Of, Labels: w.selinux,
		Records: filepath.Join(p.root, "state", "sandboxes"), Files: filepath.Join(p.root, "sandboxes"), State: p.sandboxes(), Shims: p.shims(),
		Shim: w.shim, WasmCache: p.wasm(), Debug: w.debug, BootID: w.bootID, Logger: w.logger,
		Follow: w.follow, Started: w.metrics.PodStart,
		CPU: cpuTime(w.cgroups),
	})
	return err
}

func (w *wiring) follow(before, after *state.Sandbox) {
	w.worked()
	if after == nil {
		w.containers.Removed(before.ID) // their events come before its own
	}
	w.events.Sandbox(before, after)
}

func (w *wiring) openContainers() (err error) {
	c, p := w.config, w.places
	w.containers, err = container.New(container.Options{
		Sandboxes: w.sandboxes, Images: w.images, Modules: w.modules, Handlers: w.handlers, Cgroups: w.cgroups, Host: w.host, Runtime: w.runtimes.Of, Labels: w.selinux,
		Records: filepath.Join(p.root, "state", "containers"), Volumes: filepath.Join(p.root, "volumes"),
		CDISpecDirs: c.Devices.CDISpecDirs, LogLimits: c.logLimits(), OptimizeGo: c.Wasm.OptimizeGo,
		Follow: func(before, after *state.Container) { w.worked(); w.events.Container(before, after) }, Started: w.metrics.ContainerStart, Logger: w.logger,
	})
	if err != nil {
		return err
	}
	w.checkpoints, err = checkpoint.New(checkpoint.Options{
		Sandboxes: w.sandboxes, Containers: w.containers, Images: w.images, Dir: filepath.Join(p.root, "checkpoints"),
		Limit: c.Images.MaxLayerMiB << 20, RestoreImages: c.Images.RestoreCheckpoints, Logger: w.logger,
	})
	return err
}

// openSessions opens what exec, attach and port-forward are served with.
func (w *wiring) openSessions() (err error) {
	w.sessions = session.New(w.containers, w.logger)
	if w.streams, err = stream.Listen(streamOptions(w.config, w.sandboxes, w.sessions, w.logger)); err != nil {
		return err
	}
	w.close = append(w.close, func() error { w.streams.Stop(); return nil })
	return nil
}

func (w *wiring) makeServer() error {
	every, err := w.config.Overhead.interval()
	if err != nil {
		return err
	}
	if w.classes, err = openClasses(w.config.Overhead.Classes); err != nil {
		return err
	}
	w.server = server.New(server.Options{
		Version: version.String(), Handlers: w.handlers, Images: w.images, Network: w.network, Cgroups: w.cgroups, Host: w.host, Runtime: w.runtimes.Of,
		Sandboxes: w.sandboxes, Containers: w.containers, Checkpoints: w.checkpoints, Sessions: w.sessions, Events: w.events, Streams: w.streams,
		Root: w.places.root, State: w.places.state, ImagesDir: w.places.images(), Metrics: w.metrics, Tracer: w.tracer, Logger: w.logger,
		Overhead: server.OverheadOptions{Every: every, All: w.config.Metrics.Address != "", Patience: patience, Class: w.classes.class},
	})
	return nil
}

// openPods opens what manages the pods of manifests, if the configuration names any.
func (w *wiring) openPods() (err error) {
	c, p := w.config, w.places
	if len(c.Pods.Manifests) == 0 {
		if err := podagent.ReserveMemory(w.cgroups, p.state, 0); err != nil {
			w.logger.Error("failed to take away the memory limit of all pods", "error", err)
		}
		return nil
	}
	watched, _ := w.network.(network.Watched)
	w.pods, err = podagent.New(podagent.Options{
		Config: c.Pods, Root: p.root, State: p.state, Images: p.images(), Socket: p.socket, StreamCertificate: c.Stream.TLSCertFile,
		CRI: w.server.Local(), Stops: w.server.Stops, Network: watched, Cgroups: w.cgroups, Handlers: w.handlers, Host: w.host, BootID: w.bootID, UserRanges: userRanges,
		Classes: w.classes.all, ImageBudget: c.Images.BudgetMiB << 20, Changed: w.status, Tracer: w.tracer, Logger: w.logger,
	})
	if errdefs.IsFailedPrecondition(err) { // the records are a newer release's: the CRI server is of use nevertheless
		w.logger.Error("failed to open the records of pods, pods of manifests are not managed", "error", err)
		return nil
	}
	return err
}

// listen listens for commands about images, for metrics, for the status page and, last, for CRI
// requests.
func (w *wiring) listen() error {
	control, err := control.Listen(w.places.control(), w.images, w.logger)
	if err != nil {
		return err
	}
	w.close = append(w.close, control.Close)
	metrics, err := metrics.Serve(w.config.Metrics.Address, w.server.Collectors(), w.logger)
	if err != nil {
		return err
	}
	w.close = append(w.close, metrics.Close)
	if w.page, err = page.Listen(page.Options{Address: w.config.Page.Address, Logger: w.logger}); err != nil {
		return err
	}
	w.close = append(w.close, w.page.Close)
	w.listener, err = listen(w.places.socket)
	return err
}

// openRuntimes asks the handlers' OCI runtimes what they are. What is missing is said now, and not
// only where the first pod cannot run.
func openRuntimes(handlers *runtimeclass.Table, cgroups *cgroup.Manager, p places, logger *slog.Logger) *ociruntime.Book {
	book := ociruntime.Open(ociruntime.Options{
		Trials: filepath.Join(p.root, "trials"), Cgroups: cgroups, Logger: logger,
	}, programs(handlers))
	for _, h := range handlers.All() {
		if text := book.Of(h.Binary).Text(h.Name); text != "" {
			logger.Warn("Linux containers of a handler cannot run", "handler", h.Name, "problem", text)
		}
	}
	return book
}

// programs are the OCI runtimes of all handlers, each once.
func programs(handlers *runtimeclass.Table) []string {
	var list []string
	for _, h := range handlers.All() {
		if !slices.Contains(list, h.Binary) {
			list = append(list, h.Binary)
		}
	}
	return list
}

// cpuTime returns what tells how much CPU time a cgroup has used.
func cpuTime(cgroups *cgroup.Manager) func(string) (time.Duration, error) {
	reader := stats.NewReader(cgroups.Mounts)
	return func(path string) (time.Duration, error) {
		used, err := reader.CPU(path)
		return used.Usage, err
	}
}
