package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/cmd/sunaba/control"
	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent"
	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/checkpoint"
	"github.com/sunaba-project/sunaba/criserver/compiler"
	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/selinux"
	"github.com/sunaba-project/sunaba/criserver/server"
	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/criserver/session/stream"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/host/boot"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/memory"
	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
	"github.com/sunaba-project/sunaba/version"
)

// appArmorProfile confines the containers that name no profile of their own.
const appArmorProfile = "sunaba-default"

// restTime is how long nothing changes of pods and containers until the server gives memory back.
const restTime = 5 * time.Second

// places are the folders and the socket that make one server: several run side by side with
// different ones. config is the file of the configuration, "" without.
type places struct{ root, state, socket, config string }

// defaultPlaces are those of a machine's one server.
func defaultPlaces() places {
	return places{root: "/var/lib/sunaba", state: "/run/sunaba", socket: "/run/sunaba/sunaba.sock"}
}

// daemon is a CRI server with all its parts.
type daemon struct {
	places      places
	server      *server.Server
	listener    net.Listener
	images      *images.Service
	preload     string // folder of images to import
	logger      *slog.Logger
	classes     *classBook
	network     network.Network
	pods        *podagent.Runner  // nil without [pods] manifests
	certificate string            // file of that of the streams, "" without
	labels      map[string]string // of the node, as they were read last
	close       []func() error    // from first made to last
}

// newDaemon wires a server: everything that one part is told about another stands here. Nothing is
// changed on the machine but that folders are made and the socket listens.
func newDaemon(c config, p places, debug bool, logger *slog.Logger) (_ *daemon, err error) {
	takeOverLibraries(logger)
	d := &daemon{places: p, logger: logger, labels: c.Pods.NodeLabels}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := d.claim(); err != nil {
		return nil, err
	}
	shim, err := findShim(c.Shim)
	if err != nil {
		return nil, err
	}
	handlers, err := c.handlers(findOCIRuntime())
	if err != nil {
		return nil, err
	}
	cgroups, err := cgroup.New(c.CgroupDriver)
	if err != nil {
		return nil, err
	}
	host, err := facts.Host()
	if err != nil {
		return nil, err
	}
	host.IDMappedMounts, err = facts.IDMappedMounts(p.root)
	if durable.Full(err) {
		logger.Warn("failed to test ID-mapped mounts, user namespaces are not offered: free disk space and restart the server", "error", err)
	} else if err != nil {
		return nil, err
	}
	host.AppArmor = host.AppArmor && c.Security.AppArmor
	host.AppArmorDefault = appArmorProfile
	labels := selinux.New(c.Security.SELinux, logger)
	runtimes := openRuntimes(handlers, cgroups, p, logger)
	d.close = append(d.close, runtimes.Close)
	bootID, err := boot.ID()
	if err != nil {
		return nil, err
	}
	cache := p.wasm()
	if why := gowasm.Declined(); why != "" {
		logger.Warn("failed to find a wazero version that was checked, Go modules are not rewritten and machine code is not shared: wasm.optimize_go and its annotation have no effect", "reason", why)
	}
	store, modules, err := openImages(c, p, handlers, shim, logger)
	if err != nil {
		return nil, err
	}
	d.close = append(d.close, store.Close)
	d.images, d.preload = store, p.preload()
	net, err := network.New(networkOptions(c, p, logger))
	if err != nil {
		return nil, err
	}
	d.close, d.network = append(d.close, net.Close), net
	events := server.NewEvents(logger)
	worked := memory.GiveBackHeapAfter(restTime)
	sandboxes, err := sandbox.New(sandbox.Options{
		Handlers: handlers, Network: net, Cgroups: cgroups, Host: host, Runtime: runtimes.Of, Labels: labels,
		Records: filepath.Join(p.root, "state", "sandboxes"), Files: filepath.Join(p.root, "sandboxes"), State: p.sandboxes(), Shims: p.shims(),
		Shim: shim, WasmCache: cache, Debug: debug, BootID: bootID, Logger: logger,
		Follow: func(before, after *state.Sandbox) { worked(); events.Sandbox(before, after) },
		CPU:    cpuTime(cgroups),
	})
	if err != nil {
		return nil, err
	}
	containers, err := container.New(container.Options{
		Sandboxes: sandboxes, Images: store, Modules: modules, Handlers: handlers, Cgroups: cgroups, Host: host, Runtime: runtimes.Of, Labels: labels,
		Records: filepath.Join(p.root, "state", "containers"), Volumes: filepath.Join(p.root, "volumes"),
		CDISpecDirs: c.Devices.CDISpecDirs, LogLimits: c.logLimits(), OptimizeGo: c.Wasm.OptimizeGo,
		Follow: func(before, after *state.Container) { worked(); events.Container(before, after) }, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	checkpoints, err := checkpoint.New(checkpoint.Options{
		Sandboxes: sandboxes, Containers: containers, Images: store, Dir: filepath.Join(p.root, "checkpoints"),
		Limit: c.Images.MaxLayerMiB << 20, RestoreImages: c.Images.RestoreCheckpoints, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	sessions := session.New(containers, logger)
	streams, err := stream.Listen(streamOptions(c, sandboxes, sessions, logger))
	if err != nil {
		return nil, err
	}
	d.close = append(d.close, func() error { streams.Stop(); return nil })
	every, err := c.Overhead.interval()
	if err != nil {
		return nil, err
	}
	if d.classes, err = openClasses(c.Overhead.Classes); err != nil {
		return nil, err
	}
	d.server = server.New(server.Options{
		Version: version.String(), Handlers: handlers, Images: store, Network: net, Cgroups: cgroups, Host: host, Runtime: runtimes.Of,
		Sandboxes: sandboxes, Containers: containers, Checkpoints: checkpoints, Sessions: sessions, Events: events, Streams: streams,
		Root: p.root, State: p.state, ImagesDir: p.images(), Logger: logger,
		Overhead: server.OverheadOptions{Every: every, All: c.Metrics.Address != "", Patience: patience, Class: d.classes.class},
	})
	if len(c.Pods.Manifests) > 0 {
		watched, _ := net.(network.Watched)
		d.pods, err = podagent.New(podagent.Options{
			Config: c.Pods, Root: p.root, State: p.state, Images: p.images(), Socket: p.socket, StreamCertificate: c.Stream.TLSCertFile, CRI: d.server.Local(), Stops: d.server.Stops, Network: watched, Cgroups: cgroups, Handlers: handlers, Host: host, BootID: bootID,
			Classes: d.classes.all, ImageBudget: c.Images.BudgetMiB << 20, Changed: d.status, Logger: logger,
		})
		if errdefs.IsFailedPrecondition(err) { // the records are a newer release's: the CRI server is of use nevertheless
			logger.Error("failed to open the records of pods, pods of manifests are not managed", "error", err)
		} else if err != nil {
			return nil, err
		}
	} else if err := podagent.ReserveMemory(cgroups, p.state, 0); err != nil {
		logger.Error("failed to take away the memory limit of all pods", "error", err)
	}
	d.certificate = c.Stream.TLSCertFile
	control, err := control.Listen(p.control(), store, logger)
	if err != nil {
		return nil, err
	}
	d.close = append(d.close, control.Close)
	metrics, err := serveMetrics(c.Metrics.Address, d.server, logger)
	if err != nil {
		return nil, err
	}
	d.close = append(d.close, metrics.Close)
	d.listener, err = listen(p.socket)
	return d, err
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

func (p places) control() string   { return filepath.Join(p.state, "images.sock") }
func (p places) images() string    { return filepath.Join(p.root, "images") }
func (p places) preload() string   { return filepath.Join(p.root, "preload") } // images to import at every start
func (p places) wasm() string      { return filepath.Join(p.root, "wasm") }    // compiled modules
func (p places) sandboxes() string { return filepath.Join(p.state, "sandboxes") }
func (p places) shims() string     { return filepath.Join(p.state, "shims") }

// cpuTime returns what tells how much CPU time a cgroup has used.
func cpuTime(cgroups *cgroup.Manager) func(string) (time.Duration, error) {
	reader := stats.NewReader(cgroups.Mounts)
	return func(path string) (time.Duration, error) {
		used, err := reader.CPU(path)
		return used.Usage, err
	}
}

// openImages opens the image store below --root, and what compiles its modules.
func openImages(c config, p places, handlers *runtimeclass.Table, shim string, logger *slog.Logger) (*images.Service, *compiler.Compiler, error) {
	remotes, err := c.Images.registry()
	if err != nil {
		return nil, nil, err
	}
	if err := hosts.Check(c.Images.HostsDir); err != nil {
		logger.Warn("failed to read the configuration of some registries, their images cannot be pulled", "error", err)
	}
	cgroups, err := cgroup.New(c.CgroupDriver)
	if err != nil {
		return nil, nil, err
	}
	modules, err := compiler.New(compiler.Options{
		Cgroups: cgroups, Root: p.root, Shim: shim, Cache: p.wasm(), OptimizeGo: c.Wasm.OptimizeGo,
		Limits: compiler.Limits{Memory: uint64(c.Wasm.CompileMemoryMiB) << 20}, Logger: logger,
	})
	if err != nil {
		return nil, nil, err
	}
	o := imageOptions(c, p, handlers, remotes, modules, logger)
	o.Prepared = func(ctx context.Context) ([]images.Prepared, error) { return prepared(ctx, shim, p.wasm()) }
	store, err := images.Open(o)
	return store, modules, err
}

func imageOptions(
	c config, p places, handlers *runtimeclass.Table, remotes registry.Options, modules *compiler.Compiler, logger *slog.Logger,
) images.Options {
	o := images.Options{
		Root: p.images(), Registry: remotes, Logger: logger,
		Verification: images.Verification(c.Images.PullVerification),
		KeepLayers:   c.Images.KeepLayers, Budget: c.Images.BudgetMiB << 20, MaxLayerSize: c.Images.MaxLayerMiB << 20, Pinned: c.Images.Pinned,
		Arrived: modules.Compile, Departed: modules.Drop,
	}
	for _, h := range handlers.All() {
		o.Handlers = append(o.Handlers, images.HandlerPlatforms{Name: h.Name, Platforms: h.Platforms, Default: h.Default})
	}
	return o
}

// prepared are the compiled modules of the node.
func prepared(ctx context.Context, shim, cache string) ([]images.Prepared, error) {
	modules, err := client.Compiled(ctx, shim, cache)
	var all []images.Prepared
	for _, m := range modules {
		all = append(all, images.Prepared{Digest: digest.Digest(m.Digest), Bytes: m.Bytes, Used: m.Used, Running: m.Running})
	}
	return all, err
}

func networkOptions(c config, p places, logger *slog.Logger) network.Options {
	bridge := c.Network.Bridge
	if bridge == "" {
		bridge = network.DefaultBridgeName(p.root)
	}
	return network.Options{
		ConfDir: c.Network.ConfDir, BinDirs: c.Network.BinDirs, Use: network.Use(c.Network.Embedded),
		StateDir: filepath.Join(p.root, "network"), SandboxesDir: p.sandboxes(),
		Embedded: network.EmbeddedOptions{
			Bridge: bridge, SubnetV4: c.Network.SubnetV4, SubnetV6: c.Network.SubnetV6, LinkLocal: !c.Network.BlockLinkLocal,
		},
		Logger: logger,
	}
}

func streamOptions(c config, sandboxes *sandbox.Manager, sessions *session.Manager, logger *slog.Logger) stream.Options {
	return stream.Options{
		Address: c.Stream.Address, Port: c.Stream.Port, CertFile: c.Stream.TLSCertFile, KeyFile: c.Stream.TLSKeyFile,
		Sessions: sessions, Logger: logger,
		NetNS: func(id string) (string, error) {
			_, path, err := sandboxes.NetNS(id)
			return path, err
		},
	}
}

// claim makes the server's folders its own: a second server with the same ones is refused.
func (d *daemon) claim() error {
	for _, dir := range []string{d.places.root, d.places.state} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("lock folder: %w", err)
		}
		d.close = append(d.close, f.Close)
		if err := durable.Lock(f); err != nil {
			if errors.Is(err, durable.ErrLocked) {
				return fmt.Errorf("another server uses %q", dir)
			}
			return fmt.Errorf("lock folder %q: %w", dir, err)
		}
	}
	return nil
}

// listen makes the socket, for root and its group only. A stale one is replaced.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o711); err != nil {
		return nil, fmt.Errorf("make folder of socket: %w", err)
	}
	if listens(socket) {
		return nil, fmt.Errorf("another server listens on %q", socket)
	}
	if err := replaceable(socket); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	l, err := unixsocket.Listen(socket, 0o660)
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(true)
	return l, nil
}

// replaceable refuses what is there and no socket: it is somebody's file.
func replaceable(socket string) error {
	switch info, err := os.Lstat(socket); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("replace socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %q: it exists and is no socket: remove it, or give --socket another path", socket)
	}
	return nil
}

// listens says whether a server answers on a socket.
func listens(socket string) bool {
	conn, err := unixsocket.Dial(context.Background(), socket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
