package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// step is one part of a sandbox. do makes it; undo removes it, or whatever of it there is, and may be called any number
// of times.
type step struct {
	name     string
	do, undo func(context.Context) error
}

// lasting are the parts that stand until Remove, in the order in which Run makes them.
func (s *Sandbox) lasting() []step {
	return []step{
		{"record intent", s.intend, s.forget},
		{"make folders", s.makeFolders, s.removeFolders},
	}
}

// working are the parts that stand until Stop; Run makes them after the lasting ones.
func (s *Sandbox) working() []step {
	return []step{
		{"make cgroup", s.makeCgroup, s.removeCgroup},
		{"pin namespaces", s.pin, s.unpin},
		{"start shim and network", s.startBoth, s.stopBoth},
		{"write files", s.writeFiles, s.unmountShm},
		{"start pause", s.startPause, s.stopPause},
	}
}

// Run makes a sandbox and returns its id once it is ready. handler is a RuntimeClass's handler, "" for the default.
//
// A request that repeats a running one (the client gave up and asks again) joins it.
//
// # Errors
//
// ErrInvalidArgument for an unknown handler or a configuration that cannot be; ErrAlreadyExists with the id of the
// sandbox of the same name; else what went wrong, with the name of the step. On error nothing is left. If that
// could not be managed, a NotReady sandbox stays, for the client to stop and remove.
func (m *Manager) Run(ctx context.Context, config *runtime.PodSandboxConfig, handler string) (string, error) {
	h, err := m.o.Handlers.Lookup(handler)
	if err != nil {
		return "", err
	}
	if err := spec.ValidateSandbox(config); err != nil {
		return "", err
	}
	id, err := newID()
	if err != nil {
		return "", err
	}
	parent, owned, err := m.o.Cgroups.Pod(id, config.GetLinux().GetCgroupParent())
	if err != nil {
		return "", err
	}
	rec := state.Sandbox{
		ID: id, Phase: state.Creating, CreatedAt: time.Now(), BootID: m.o.BootID,
		Config:  state.PodConfig{Value: config},
		Handler: handler, HandlerName: h.Name, HandlerType: string(h.Type), Binary: h.Binary,
		CgroupParent: parent, CgroupOwned: owned,
		Network:   state.Network{Up: pins(config).Net},
		Overhead:  state.Resources{Value: config.GetLinux().GetOverhead()},
		Resources: state.Resources{Value: config.GetLinux().GetResources()},
	}
	same, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", fmt.Errorf("read sandbox configuration: %w", err)
	}
	return m.names.Create(ctx, name(config), string(same), func(ctx context.Context) (string, error) {
		return id, m.make(ctx, rec)
	})
}

// newID returns 64 hexadecimal digits.
func newID() (string, error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make id: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

func (m *Manager) make(ctx context.Context, rec state.Sandbox) error {
	s := newSandbox(m, rec.ID)
	s.first = rec
	m.add(s)
	lasting, err := do(ctx, s.lasting())
	var working []step
	if err == nil {
		working, err = do(ctx, s.working())
	}
	if err == nil {
		err = s.recordReady()
	}
	if err != nil {
		s.fail(ctx, err, lasting, working)
		return err
	}
	s.watch()
	m.o.Logger.Info("sandbox is ready", "sandbox", rec.ID, "pod", name(rec.Config.Value), "handler", rec.HandlerName)
	return nil
}

// do goes through steps from first to last and returns those that were tried.
func do(ctx context.Context, steps []step) ([]step, error) {
	for i, st := range steps {
		err := ctx.Err()
		if err == nil {
			err = st.do(ctx)
		}
		if err != nil {
			return steps[:i+1], fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return steps, nil
}

// undo goes through steps from last to first. Each is undone even if another could not be.
func undo(ctx context.Context, steps []step) error {
	var errs []error
	for _, st := range slices.Backward(steps) {
		if err := st.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo %q: %w", st.name, err))
		}
	}
	return errors.Join(errs...)
}

// fail undoes a sandbox that could not be made. If that does not succeed either, it stays as NotReady.
func (s *Sandbox) fail(ctx context.Context, cause error, lasting, working []step) {
	ctx, cancel := aside(ctx)
	defer cancel()
	log := s.manager.o.Logger.With("sandbox", s.ID)
	log.Warn("sandbox was not made", "error", cause)
	err := undo(ctx, working)
	if err == nil {
		err = undo(ctx, lasting)
	}
	if err != nil {
		log.Error("undo sandbox", "error", err)
		s.becomeNotReady()
	}
}

func (s *Sandbox) intend(context.Context) error { return s.manager.records.Create(s.ID, s.first) }

func (s *Sandbox) recordReady() error {
	_, err := s.manager.records.Update(s.ID, func(r state.Sandbox) (state.Sandbox, error) {
		r.Phase = state.Ready
		return r, nil
	})
	if err != nil {
		return fmt.Errorf("record ready: %w", err)
	}
	return nil
}

func (s *Sandbox) record() (state.Sandbox, error) { return s.manager.records.Get(s.ID) }

func (s *Sandbox) forget(context.Context) error {
	if err := s.manager.records.Delete(s.ID); err != nil {
		return err
	}
	s.manager.drop(s.ID)
	return nil
}

func (s *Sandbox) filesDir() string { return filepath.Join(s.manager.o.Files, s.ID) }

func (s *Sandbox) makeFolders(context.Context) error {
	for _, dir := range []string{s.filesDir(), s.Dir} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) removeFolders(context.Context) error {
	return errors.Join(removeTree(s.filesDir()), removeTree(s.Dir))
}

func (s *Sandbox) makeCgroup(context.Context) error {
	rec, err := s.record()
	if err != nil || !rec.CgroupOwned {
		return err
	}
	return s.manager.o.Cgroups.MakePod(rec.CgroupParent)
}

func (s *Sandbox) removeCgroup(context.Context) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	if rec.CgroupOwned {
		return s.manager.o.Cgroups.RemovePod(rec.CgroupParent)
	}
	return s.manager.o.Cgroups.RemoveLeaf(s.manager.Leaf(rec, s.ID))
}

// pins says which namespaces a sandbox has of its own.
func pins(config *runtime.PodSandboxConfig) netns.PinOptions {
	ns := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	own := ns.GetNetwork() != runtime.NamespaceMode_NODE
	o := netns.PinOptions{Net: own, UTS: own, IPC: ns.GetIpc() != runtime.NamespaceMode_NODE}
	if own {
		o.Hostname = config.GetHostname()
	}
	return o
}

func (s *Sandbox) pin(context.Context) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	o := pins(rec.Config.Value)
	o.Sysctls = spec.Sysctls(rec.Config.Value)
	return netns.PinNamespaces(s.pinDir(), o)
}

func (s *Sandbox) unpin(context.Context) error { return netns.UnpinNamespaces(s.pinDir()) }

// startBoth starts the shim while the network is set up: neither needs the other, and they are most of the way.
func (s *Sandbox) startBoth(ctx context.Context) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	shim := make(chan error, 1)
	go func() { shim <- s.startShim(ctx, rec) }()
	err = s.setUpNetwork(ctx, rec)
	return errors.Join(<-shim, err)
}

func (s *Sandbox) startShim(ctx context.Context, rec state.Sandbox) error {
	o := s.manager.o
	leaf := s.manager.Leaf(rec, s.ID)
	c, err := client.Start(ctx, client.StartOptions{
		Binary: o.Shim, Namespace: namespace, ID: s.ID, Dir: s.Dir, WasmCache: o.WasmCache, Debug: o.Debug,
		Place: func(pid int) error { return o.Cgroups.Place(leaf, pid) },
	})
	if err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	s.mu.Lock()
	s.shim = c
	s.mu.Unlock()
	return nil
}

func (s *Sandbox) setUpNetwork(ctx context.Context, rec state.Sandbox) error {
	if !rec.Network.Up {
		return nil
	}
	res, err := s.manager.o.Network.Setup(ctx, s.pod(rec))
	if err != nil {
		return fmt.Errorf("set up network: %w", err)
	}
	if err := netns.SetInterfaceSysctls(s.pinDir(), spec.Sysctls(rec.Config.Value)); err != nil {
		return err
	}
	_, err = s.manager.records.Amend(s.ID, func(r state.Sandbox) (state.Sandbox, error) {
		r.Network = state.Network{Up: true, IPs: res.IPs, Interface: res.Interface, Raw: res.Raw}
		return r, nil
	})
	return err
}

// pod is the sandbox as the network knows it.
func (s *Sandbox) pod(rec state.Sandbox) network.Pod {
	config := rec.Config.Value
	md := config.GetMetadata()
	p := network.Pod{
		ID: s.ID, Name: md.GetName(), Namespace: md.GetNamespace(), UID: md.GetUid(),
		NetNS: filepath.Join(s.pinDir(), netns.NetFile), Annotations: config.GetAnnotations(), CgroupParent: rec.CgroupParent,
	}
	for _, pm := range config.GetPortMappings() {
		p.Ports = append(p.Ports, network.PortMapping{
			Protocol: pm.GetProtocol().String(), HostIP: pm.GetHostIp(), HostPort: pm.GetHostPort(), ContainerPort: pm.GetContainerPort(),
		})
	}
	if dns := config.GetDnsConfig(); dns != nil {
		p.DNS = network.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()}
	}
	return p
}

func (s *Sandbox) stopBoth(ctx context.Context) error {
	shim := make(chan error, 1)
	go func() { shim <- s.stopShim(ctx) }()
	err := s.tearDownNetwork(ctx)
	return errors.Join(<-shim, err)
}

// stopShim ends the shim; one that does not end when told to is killed together with all that runs under it.
func (s *Sandbox) stopShim(ctx context.Context) error {
	if s.shutDown(ctx) {
		return nil
	}
	s.detach()
	return s.cleanUp(ctx)
}

// shutDown tells the shim to end and reports whether it did so in time and left nothing.
func (s *Sandbox) shutDown(ctx context.Context) bool {
	shim := s.Shim()
	if shim == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownLimit)
	defer cancel()
	err := shim.Shutdown(ctx) // it stays as long as it has containers
	select {
	case <-shim.Done():
	case <-ctx.Done():
		s.manager.o.Logger.Warn("shim did not end when told to", "sandbox", s.ID, "error", err)
		return false
	}
	s.detach()
	if err != nil || !s.removeShimFiles() {
		return false
	}
	s.cleaning.Lock()
	s.clean = true
	s.cleaning.Unlock()
	s.bury()
	return true
}

const shutdownLimit = 2 * time.Second

func (s *Sandbox) tearDownNetwork(ctx context.Context) error {
	rec, err := s.record()
	if err != nil || !rec.Network.Up {
		return err
	}
	res := network.Result{IPs: rec.Network.IPs, Raw: rec.Network.Raw, Interface: rec.Network.Interface}
	pod := s.pod(rec)
	if !netns.Pinned(pod.NetNS) {
		pod.NetNS = ""
	}
	if err := s.manager.o.Network.Teardown(ctx, pod, res); err != nil {
		return fmt.Errorf("tear down network: %w", err)
	}
	_, err = s.manager.records.Amend(s.ID, func(r state.Sandbox) (state.Sandbox, error) {
		r.Network.Up = false
		return r, nil
	})
	return err
}

// startPause starts the process that holds the PID namespace which the containers share.
func (s *Sandbox) startPause(ctx context.Context) error {
	rec, err := s.record()
	if err != nil || !shared(rec) {
		return err
	}
	config := rec.Config.Value
	ps, err := spec.Pause(spec.PauseInput{
		SandboxID: s.ID, Sandbox: config, Handler: handlerType(rec), Namespaces: s.Namespaces(config),
		CgroupsPath: s.manager.Leaf(rec, s.ID), Host: s.manager.o.Host,
	})
	if err != nil {
		return err
	}
	bundle := filepath.Join(s.Dir, s.ID)
	if err := writeBundle(bundle, ps); err != nil {
		return err
	}
	shim := s.Shim()
	if _, err := shim.Create(ctx, client.CreateRequest{ID: s.ID, Bundle: bundle}); err != nil {
		return err
	}
	pid, err := shim.Start(ctx, s.ID, "")
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.pausePID = pid
	s.mu.Unlock()
	return nil
}

func shared(rec state.Sandbox) bool {
	return rec.Config.Value.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == runtime.NamespaceMode_POD
}

// stopPause ends the pause process. What a shim that is gone left of it is cleaned up by stopShim.
func (s *Sandbox) stopPause(ctx context.Context) error {
	rec, err := s.record()
	if err != nil || !shared(rec) {
		return err
	}
	shim := s.Shim()
	if shim == nil {
		return nil
	}
	err = shim.Kill(ctx, s.ID, "", syscall.SIGKILL, false)
	if err == nil {
		_, err = shim.Wait(ctx, s.ID, "")
	}
	if err == nil || errdefs.IsNotFound(err) {
		_, err = shim.Delete(ctx, s.ID, "")
	}
	if err != nil && !errdefs.IsNotFound(err) {
		s.manager.o.Logger.Warn("stop pause", "sandbox", s.ID, "error", err) // the end of the shim ends it too
	}
	return nil
}
