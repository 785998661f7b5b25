package sandbox

import (
	"context"
	"fmt"
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
	ID string
	// Dir is the shim's working folder; a container's bundle lies in it under the container's id.
	Dir string

	manager *Manager
	first   state.Sandbox // the record to begin with
	gate    gate
	ending  chan struct{} // holds one token; who takes it may stop or remove the sandbox
	gone    chan struct{} // closed when the shim is gone and what it left was cleaned up
	// markGone closes gone. It may be called more than once.
	markGone func()

	releasing sync.Mutex // held while the shim is released
	released  bool       // and nothing is left of it

	mu       sync.Mutex
	shim     *client.Client
	pausePID int
	drawn    string // id of the next container with a guest, "" = none was drawn
	unwatch  context.CancelFunc
}

func newSandbox(m *Manager, id string) *Sandbox {
	s := &Sandbox{ID: id, Dir: filepath.Join(m.o.State, id), manager: m, ending: make(chan struct{}, 1), gone: make(chan struct{})}
	s.markGone = sync.OnceFunc(func() { close(s.gone) })
	s.ending <- struct{}{}
	return s
}

// Use returns the sandbox's shim and keeps the sandbox from being stopped until release is called.
//
// # Errors
//
// ErrFailedPrecondition if it is not ready.
func (s *Sandbox) Use() (shim *client.Client, release func(), err error) {
	s.mu.Lock()
	shim = s.shim
	s.mu.Unlock()
	if shim == nil || !s.gate.enter() {
		return nil, nil, fmt.Errorf("sandbox %q is not ready: %w", s.ID, errdefs.ErrFailedPrecondition)
	}
	return shim, sync.OnceFunc(s.gate.leave), nil
}

// Shim returns the sandbox's shim, nil if there is none (any more). Unlike Use it is not in the way
// of Stop.
func (s *Sandbox) Shim() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shim
}

// Gone is closed when the shim has ended and everything that ran under it was cleaned up.
func (s *Sandbox) Gone() <-chan struct{} { return s.gone }

// PausePID is the pause process, 0 if there is none.
func (s *Sandbox) PausePID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pausePID
}

// Namespaces are the paths of the pinned namespaces, for a container's specification.
func (s *Sandbox) Namespaces(config *runtime.PodSandboxConfig) spec.Namespaces {
	kinds := pins(config)
	var ns spec.Namespaces
	dir := s.pinDir()
	if kinds.Net {
		ns.Net = filepath.Join(dir, "net")
	}
	if kinds.IPC {
		ns.IPC = filepath.Join(dir, "ipc")
	}
	if kinds.UTS {
		ns.UTS = filepath.Join(dir, "uts")
	}
	if kinds.User != nil {
		ns.User = filepath.Join(dir, netns.UserFile)
	}
	if pid := s.PausePID(); pid != 0 {
		ns.PID = fmt.Sprintf("/proc/%d/ns/pid", pid)
	}
	return ns
}

// NetNS is the path of the sandbox's network namespace, "" if it is the host's.
func (s *Sandbox) NetNS(config *runtime.PodSandboxConfig) string { return s.Namespaces(config).Net }

func (s *Sandbox) pinDir() string { return filepath.Join(s.Dir, "ns") }

// lock takes the right to end the sandbox.
func (s *Sandbox) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case <-s.ending:
		return func() { s.ending <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another end of sandbox %q: %w", s.ID, ctx.Err())
	}
}

// attach makes a shim the sandbox's.
func (s *Sandbox) attach(shim *client.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shim = shim
}

// takeShim returns the shim's connection, nil if there is none, and takes it from the sandbox.
func (s *Sandbox) takeShim() *client.Client {
	s.mu.Lock()
	shim, unwatch := s.shim, s.unwatch
	s.shim, s.unwatch = nil, nil
	s.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	return shim
}

// detach leaves the shim running and forgets it.
func (s *Sandbox) detach() {
	if shim := s.takeShim(); shim != nil {
		s.manager.shims.Disconnect(shim)
	}
}

// ShimCost returns the processes that the sandbox pays for because it has its shim; nil without
// one.
func (s *Sandbox) ShimCost(rec state.Sandbox) []shims.Process {
	return s.manager.shims.Cost(rec, s.Shim())
}
