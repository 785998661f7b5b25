package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/shims"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Sandbox is the living side of a sandbox: its shim, and who uses it at this moment.
type Sandbox struct {
	Folders

	name    string // for errors, also of one that has just been removed
	manager *Manager
	log     *slog.Logger
	record  *record
	network podNetwork
	shim    *shimHold
	pause   *pause
	next    nextID
	gate    gate
	ending  chan struct{} // holds one token; who takes it may stop or remove the sandbox
}

func newSandbox(m *Manager, rec state.Sandbox) *Sandbox {
	id := rec.ID
	s := &Sandbox{
		Folders: Folders{ID: id, Dir: filepath.Join(m.o.State, id), files: filepath.Join(m.o.Files, id)},
		name:    rec.Name(), manager: m, log: m.o.Logger.With("sandbox", id),
		record: &record{id: id, store: m.records}, shim: newShimHold(m.shims), pause: &pause{id: id},
		ending: make(chan struct{}, 1),
	}
	s.network = podNetwork{s.record, m.o.Network, s.pins()}
	s.ending <- struct{}{}
	return s
}

// Use returns the sandbox's shim and keeps the sandbox from being stopped until release is called.
//
// # Errors
//
// ErrFailedPrecondition if it is not ready.
func (s *Sandbox) Use() (shim *client.Client, release func(), err error) {
	if shim = s.Shim(); shim == nil || !s.gate.enter() {
		return nil, nil, fmt.Errorf("sandbox %q is not ready: %w", s.name, errdefs.ErrFailedPrecondition)
	}
	return shim, sync.OnceFunc(s.gate.leave), nil
}

// Shim returns the sandbox's shim, nil without one (any more). Unlike Use it is not in the way
// of Stop.
func (s *Sandbox) Shim() *client.Client { return s.shim.get() }

// Cleaned is closed when the shim has ended and everything that ran under it was cleaned up.
func (s *Sandbox) Cleaned() <-chan struct{} { return s.shim.cleaned }

// PausePID is the pause process, 0 without one.
func (s *Sandbox) PausePID() int { return s.pause.PID() }

// Namespaces are the paths of the pinned namespaces, for a container's specification; "" is the
// host's.
func (s *Sandbox) Namespaces(config *runtime.PodSandboxConfig) spec.Namespaces {
	kinds := Pins(config)
	ns := spec.Namespaces{Net: s.NetNamespace(config)}
	dir := s.pins()
	if kinds.IPC {
		ns.IPC = filepath.Join(dir, netns.IPCFile)
	}
	if kinds.UTS {
		ns.UTS = filepath.Join(dir, netns.UTSFile)
	}
	if kinds.User != nil {
		ns.User = filepath.Join(dir, netns.UserFile)
	}
	if pid := s.PausePID(); pid != 0 {
		ns.PID = fmt.Sprintf("/proc/%d/ns/pid", pid)
	}
	return ns
}

// NetNamespace is the Net of Namespaces alone.
func (s *Sandbox) NetNamespace(config *runtime.PodSandboxConfig) string {
	if !Pins(config).Net {
		return ""
	}
	return filepath.Join(s.pins(), netns.NetFile)
}

// lock takes the right to end the sandbox.
func (s *Sandbox) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case <-s.ending:
		return func() { s.ending <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another end of sandbox %q: %w", s.name, ctx.Err())
	}
}

// ShimCost returns the processes that the sandbox pays for because it has its shim; nil without
// one.
func (s *Sandbox) ShimCost(rec state.Sandbox) []shims.Process {
	return s.manager.shims.Cost(rec, s.Shim())
}
