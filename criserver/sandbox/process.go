package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
)

func (s *Sandbox) startShim(ctx context.Context, rec state.Sandbox) error {
	o := s.manager.o
	leaf := s.manager.Leaf(rec, s.ID)
	if err := s.makeCgroup(rec); err != nil {
		return err
	}
	if rec.SharesShim() {
		return s.join(ctx, rec)
	}
	start := client.StartOptions{Binary: o.Shim, Namespace: namespace, ID: s.ID, Dir: s.Dir, WasmCache: o.WasmCache, Debug: o.Debug}
	if o.Cgroups.Driver == cgroup.Systemd {
		start.Place = func(pid int) error { return o.Cgroups.Place(leaf, pid) }
	} else {
		start.Born = func(attr *syscall.SysProcAttr) (func(), error) { return o.Cgroups.Born(leaf, attr) }
	}
	c, err := client.Start(ctx, start)
	if err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	s.attach(c, false)
	return nil
}

// prepareLimit is how long a shim may take to get ready for a container before nobody waits for it any more.
const prepareLimit = 5 * time.Second

// Prepare lets the shim get ready, in the background, for a container with a guest that is likely to be created soon: its process
// waits in the cgroup that will be the container's, by whose id TakeID names it.
func (s *Sandbox) Prepare(ctx context.Context) {
	rec, err := s.record()
	shim := s.Shim()
	if err != nil || shim == nil || handlerType(rec) != runtimeclass.WASM || shared(rec) {
		return
	}
	id, err := s.drawID()
	if err != nil {
		s.manager.o.Logger.Warn("the next container's id was not drawn ahead", "sandbox", s.ID, "error", err)
		return
	}
	ns := s.Namespaces(rec.Config.Value)
	req := client.PrepareRequest{Net: ns.Net, IPC: ns.IPC, UTS: ns.UTS, Pod: s.ID, Cgroup: s.manager.Leaf(rec, id)}
	s.manager.mu.Lock()
	req.OOMGroup = s.manager.oomGroup
	s.manager.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), prepareLimit)
	go func() {
		defer cancel()
		if err := shim.Prepare(ctx, req); err != nil {
			s.manager.o.Logger.Debug("shim did not prepare", "sandbox", s.ID, "error", err)
		}
	}()
}

// drawID returns the id of the sandbox's next container with a guest. It is on no record until the container is.
func (s *Sandbox) drawID() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn == "" {
		id, err := state.DrawID(s.ID)
		if err != nil {
			return "", err
		}
		s.drawn = id
	}
	return s.drawn, nil
}

// TakeID returns the id of a new container with a guest: the one that was drawn ahead of it, if there is one.
func (s *Sandbox) TakeID(config *runtime.ContainerConfig) (string, error) {
	s.manager.mu.Lock()
	s.manager.oomGroup = config.GetLinux().GetResources().GetUnified()["memory.oom.group"]
	s.manager.mu.Unlock()
	s.mu.Lock()
	id := s.drawn
	s.drawn = ""
	s.mu.Unlock()
	if id == "" {
		return state.NewID()
	}
	return id, nil
}

// stopShim ends the shim; one that does not end when told to is killed together with all that runs under it.
func (s *Sandbox) stopShim(ctx context.Context) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	if rec.SharesShim() {
		return s.leave(ctx, rec)
	}
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
	ctx, cancel := context.WithTimeout(ctx, shutdownLimit) // a shim that hangs is killed by stopShim
	defer cancel()
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
