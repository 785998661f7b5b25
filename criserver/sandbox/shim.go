package sandbox

import (
	"cmp"
	"context"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/shims"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// shimHold is a sandbox's hold on its shim: the connection, and who watches it.
type shimHold struct {
	shims   *shims.Set
	cleaned chan struct{} // closed when the shim has exited and what it left was cleaned up
	// markCleaned closes cleaned. It may be called more than once.
	markCleaned func()

	releasing sync.Mutex // held while the shim is released
	released  bool       // and nothing is left of it

	mu      sync.Mutex
	shim    *client.Client
	unwatch context.CancelFunc
}

func newShimHold(all *shims.Set) *shimHold {
	h := &shimHold{shims: all, cleaned: make(chan struct{})}
	h.markCleaned = sync.OnceFunc(func() { close(h.cleaned) })
	return h
}

// get returns the connection, nil without one.
func (h *shimHold) get() *client.Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shim
}

func (h *shimHold) set(shim *client.Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shim = shim
}

// watch returns the connection, nil without one, and a context that ends with unwatch.
func (h *shimHold) watch() (context.Context, *client.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unwatch = cancel
	return ctx, h.shim
}

// stopWatching ends the context of watch.
func (h *shimHold) stopWatching() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endWatch()
}

// endWatch ends the context of watch. The caller holds h.mu.
func (h *shimHold) endWatch() {
	if h.unwatch != nil {
		h.unwatch()
		h.unwatch = nil
	}
}

// take returns the connection, nil without one, and removes it from the sandbox. No
// watch can start after that.
func (h *shimHold) take() *client.Client {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endWatch()
	shim := h.shim
	h.shim = nil
	return shim
}

// detach leaves the shim running and forgets it.
func (h *shimHold) detach() {
	if shim := h.take(); shim != nil {
		h.shims.Disconnect(shim)
	}
}

// release gives the shim back, also one that has died, and tells those who wait for that. Once it
// has succeeded it does nothing more.
func (h *shimHold) release(ctx context.Context, rec state.Sandbox) error {
	h.releasing.Lock()
	defer h.releasing.Unlock()
	defer h.markCleaned()
	if h.released {
		return nil
	}
	if err := h.shims.Release(ctx, rec, h.take()); err != nil {
		return err
	}
	h.released = true
	return nil
}

// watch notices the death of the shim and of the pause process, until Stop or Close ends it.
func (s *Sandbox) watch() {
	ctx, shim := s.shim.watch()
	if shim == nil {
		return
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-shim.Done():
			if ctx.Err() == nil {
				s.lost(ctx)
			}
		}
	}()
	if s.PausePID() == 0 {
		return
	}
	go func() {
		_, err := shim.Wait(ctx, s.ID, "")
		if ctx.Err() != nil || errdefs.IsUnavailable(err) {
			return // told to stop watching, or the shim has exited, which is noticed elsewhere
		}
		s.log.Warn("pause process died")
		s.pause.pid.Store(0)
		s.becomeNotReady()
	}()
}

// lost cleans up after a shim that has died. The sandbox is not ready from the start of that.
func (s *Sandbox) lost(ctx context.Context) {
	s.log.Warn("shim died")
	s.becomeNotReady()
	s.manager.turns <- struct{}{} // all that had the same shim are here at once
	defer func() { <-s.manager.turns }()
	ctx, cancel := Aside(ctx)
	defer cancel()
	s.shim.detach()
	if err := s.withRecord(s.shim.release)(ctx); err != nil {
		s.log.Error("failed to clean up after shim", "error", err)
		return
	}
	s.log.Info("cleaned up after shim")
}

// EndContainer kills what is in a container's cgroup, without the shim, which does not answer: it
// may be there with a thread.
func (s *Sandbox) EndContainer(ctx context.Context, leaf string) error {
	rec, err := s.record.get()
	if err != nil {
		return err
	}
	return s.manager.o.Cgroups.End(ctx, leaf, s.manager.shims.Processes(rec, s.Shim())...)
}

// becomeNotReady closes the sandbox to new users, even if the record cannot be written.
func (s *Sandbox) becomeNotReady() {
	s.gate.shutNow()
	unwritten, err := s.record.end(state.NotReady)
	if err = cmp.Or(unwritten, err); err != nil && !errdefs.IsNotFound(err) {
		s.log.Error("failed to record sandbox as not ready", "error", err)
	}
}
