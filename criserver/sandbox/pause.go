package sandbox

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// pauseLimit is how long a shim may take to end the pause process.
const pauseLimit = 2 * time.Second

// pause is the process that holds the PID namespace which a sandbox's containers share.
type pause struct {
	id string // of the sandbox, and of the process for the shim

	pid atomic.Int64
}

// PID is the process, 0 without one.
func (p *pause) PID() int { return int(p.pid.Load()) }

// start starts the process of a bundle.
func (p *pause) start(ctx context.Context, shim *client.Client, bundle string) error {
	if _, err := shim.Create(ctx, client.CreateRequest{ID: p.id, Bundle: bundle}); err != nil {
		return err
	}
	pid, err := shim.Start(ctx, p.id, "")
	if err != nil {
		return err
	}
	p.pid.Store(int64(pid))
	return nil
}

// find looks for the process that an earlier server has started, and remembers it.
func (p *pause) find(ctx context.Context, shim *client.Client) (running bool) {
	st, err := shim.State(ctx, p.id, "")
	if err != nil || st.Status != client.StatusRunning {
		return false
	}
	p.pid.Store(int64(st.PID))
	return true
}

// stop ends the process. What it cannot end ends with the shim.
func (p *pause) stop(ctx context.Context, shim *client.Client, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, pauseLimit) // a shim that hangs is killed when it is released
	defer cancel()
	if err := shim.Remove(ctx, p.id); err != nil && !errdefs.IsNotFound(err) {
		log.Warn("failed to stop pause process", "error", err)
	}
}

// sharesPIDs says that the sandbox's containers share a PID namespace.
func sharesPIDs(rec state.Sandbox) bool {
	return rec.Config.Value.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == runtime.NamespaceMode_POD
}

func (s *Sandbox) startPause(ctx context.Context, rec state.Sandbox) error {
	if !sharesPIDs(rec) {
		return nil
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
	return s.pause.start(ctx, s.Shim(), bundle)
}

// stopPause ends the pause process. If the shim has exited, releasing it cleans up the process.
func (s *Sandbox) stopPause(ctx context.Context, rec state.Sandbox) error {
	if shim := s.Shim(); shim != nil && sharesPIDs(rec) {
		s.pause.stop(ctx, shim, s.log)
	}
	return nil
}
