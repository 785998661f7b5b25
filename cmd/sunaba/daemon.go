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
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podagent"
	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/compiler"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/server"
	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/criserver/session/stream"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/registry/hosts"
	"github.com/sunaba-project/sunaba/pods/page"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
)

// places are the folders and the socket that make one server: several run side by side with
// different ones. config is the file of the configuration, "" without.
type places struct {
	root, state, socket, config string
	standard                    bool // the root is that of defaultPlaces, whatever it leads to
}

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
	page        *page.Server      // nil without [page] address
	certificate string            // file of that of the streams, "" without
	labels      map[string]string // of the node, as they were read last
	tracer      trace.Tracer      // nil where nobody collects traces
	close       []func() error    // from first made to last
}

// newDaemon wires a server. Nothing is changed on the machine but that folders are made and the
// socket listens. The tracer may be nil.
func newDaemon(c config, p places, debug bool, tracer trace.Tracer, logger *slog.Logger) (_ *daemon, err error) {
	takeOverLibraries(logger)
	d := &daemon{places: p, tracer: tracer, logger: logger, labels: c.Pods.NodeLabels, preload: p.preload(), certificate: c.Stream.TLSCertFile}
	w := &wiring{daemon: d, config: c, debug: debug}
	for _, step := range []func() error{
		d.claim, w.inspectNode, w.openImages, w.openNetwork, w.openSandboxes, w.openContainers, w.openSessions, w.makeServer, w.openPods, w.listen,
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

func (p places) control() string   { return filepath.Join(p.state, "images.sock") }
func (p places) images() string    { return filepath.Join(p.root, "images") }
func (p places) preload() string   { return filepath.Join(p.root, "preload") } // images to import at every start
func (p places) wasm() string      { return filepath.Join(p.root, "wasm") }    // compiled modules
func (p places) sandboxes() string { return filepath.Join(p.state, "sandboxes") }
func (p places) shims() string     { return filepath.Join(p.state, "shims") }

// openImages opens the image store below --root, and what compiles its modules.
func openImages(
	c config, p places, handlers *runtimeclass.Table, shim string, pulled func(took time.Duration, bytes int64, err error), logger *slog.Logger,
) (*images.Service, *compiler.Compiler, error) {
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
	o.Pulled = pulled
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
	if bridge == "" && !p.standard {
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
