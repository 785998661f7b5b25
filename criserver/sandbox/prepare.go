package sandbox

import (
	"context"
	"sync"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
)

// prepareLimit is how long a shim may take to prepare for a container before the caller stops
// waiting.
const prepareLimit = 5 * time.Second

// Prepare lets the shim get ready, in the background, for a container with a guest that is likely
// to be created soon: its process waits in the cgroup that will be the container's, by whose id
// TakeID names it.
func (s *Sandbox) Prepare(ctx context.Context) {
	rec, err := s.record.get()
	shim := s.Shim()
	if err != nil || shim == nil || handlerType(rec) != runtimeclass.WASM || sharesPIDs(rec) {
		return
	}
	ns := s.Namespaces(rec.Config.Value)
	req := client.PrepareRequest{Net: ns.Net, IPC: ns.IPC, UTS: ns.UTS, Pod: s.ID, Cgroup: s.manager.Leaf(rec, s.next.draw(s.ID))}
	req.OOMGroup, _ = s.manager.oomGroup.Load().(string)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), prepareLimit)
	go func() {
		defer cancel()
		if err := shim.Prepare(ctx, req); err != nil {
			s.log.Debug("shim failed to prewarm a guest process", "error", err)
		}
	}()
}

// TakeID returns the id of a new container with a guest: the one that was drawn ahead of it, if
// there is one.
func (s *Sandbox) TakeID(config *runtime.ContainerConfig) string {
	s.manager.oomGroup.Store(config.GetLinux().GetResources().GetUnified()["memory.oom.group"])
	return s.next.take()
}

// nextID is the id of a sandbox's next container with a guest. It is on no record until the
// container is.
type nextID struct {
	mu    sync.Mutex
	drawn string // "" = none was drawn
}

// draw returns the id. It stays the same until it is taken.
func (n *nextID) draw(sandbox string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.drawn == "" {
		n.drawn = state.DrawID(sandbox)
	}
	return n.drawn
}

// take returns the id that was drawn, or a new one if none was.
func (n *nextID) take() string {
	n.mu.Lock()
	id := n.drawn
	n.drawn = ""
	n.mu.Unlock()
	if id == "" {
		return state.NewID()
	}
	return id
}
