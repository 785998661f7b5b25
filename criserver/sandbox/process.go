package sandbox

import (
	"context"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
)

func (s *Sandbox) startShim(ctx context.Context, rec state.Sandbox) error {
	if err := s.makeCgroup(rec); err != nil {
		return err
	}
	shim, err := s.manager.shims.Acquire(ctx, rec)
	if err != nil {
		return err
	}
	s.attach(shim)
	return nil
}

// prepareLimit is how long a shim may take to get ready for a container before nobody waits for it
// any more.
const prepareLimit = 5 * time.Second

// Prepare lets the shim get ready, in the background, for a container with a guest that is likely
// to be created soon: its process waits in the cgroup that will be the container's, by whose id
// TakeID names it.
func (s *Sandbox) Prepare(ctx context.Context) {
	rec, err := s.record()
	shim := s.Shim()
	if err != nil || shim == nil || handlerType(rec) != runtimeclass.WASM || sharesPIDs(rec) {
		return
	}
	id, err := s.drawID()
	if err != nil {
		s.manager.o.Logger.Warn("failed to draw the id of the next container", "sandbox", s.ID, "error", err)
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
			s.manager.o.Logger.Debug("shim failed to prewarm a guest process", "sandbox", s.ID, "error", err)
		}
	}()
}

// drawID returns the id of the sandbox's next container with a guest. It is on no record until the
// container is.
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

// TakeID returns the id of a new container with a guest: the one that was drawn ahead of it, if
// there is one.
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

// stopShim ends everything that the shim runs for the sandbox, and the shim unless others have it
// too.
func (s *Sandbox) stopShim(ctx context.Context) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	return s.releaseShim(ctx, rec)
}

// pauseLimit is how long a shim may take to end the pause process.
const pauseLimit = 2 * time.Second

// startPause starts the process that holds the PID namespace which the containers share.
func (s *Sandbox) startPause(ctx context.Context) error {
	rec, err := s.record()
	if err != nil || !sharesPIDs(rec) {
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

// sharesPIDs says that the sandbox's containers share a PID namespace.
func sharesPIDs(rec state.Sandbox) bool {
	return rec.Config.Value.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == runtime.NamespaceMode_POD
}

// stopPause ends the pause process. What a shim that is gone left of it is cleaned up by stopShim.
func (s *Sandbox) stopPause(ctx context.Context) error {
	rec, err := s.record()
	if err != nil || !sharesPIDs(rec) {
		return err
	}
	shim := s.Shim()
	if shim == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pauseLimit) // a shim that hangs is killed by stopShim
	defer cancel()
	err = shim.Kill(ctx, s.ID, "", syscall.SIGKILL, false)
	if err == nil {
		_, err = shim.Wait(ctx, s.ID, "")
	}
	if err == nil || errdefs.IsNotFound(err) {
		_, err = shim.Delete(ctx, s.ID, "")
	}
	if err != nil && !errdefs.IsNotFound(err) {
		s.manager.o.Logger.Warn("failed to stop pause process", "sandbox", s.ID, "error", err) // the end of the shim ends it too
	}
	return nil
}
