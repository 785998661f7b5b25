// Package shims runs the shims that the pods of a handler share: at most one for each handler, with a keeper that outlives it.
//
// # Life of a shared shim
//
// It is started when the first pod joins, and ended when the last one has left. Joining and leaving exclude one another, so
// a pod that comes while the last one goes gets a new shim, and two that come at once get one. Server and shim are
// independent of one another: a new server finds the shim by its folder.
//
// When the shim dies, its keeper starts a successor, which takes over its containers; the connection is made anew and nobody
// here takes notice but the log. Only when the keeper is gone too are the pods finished, each by its sandbox.
package shims

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Options configure New.
type Options struct {
	Dir       string // each handler's shim has a folder of its name in it; may be gone after a reboot
	Binary    string // shim binary
	Namespace string
	WasmCache string
	Debug     bool
	Cgroups   *cgroup.Manager
	// CPU returns how much CPU time a cgroup has used.
	CPU    func(cgroup string) (time.Duration, error)
	Logger *slog.Logger
}

// Set holds the shared shims of all handlers.
type Set struct {
	o Options

	mu     sync.Mutex
	shared map[string]*shared // by handler
}

// New returns a set that has looked for no shim yet.
func New(o Options) (*Set, error) {
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("create folder of shims: %w", err)
	}
	return &Set{o: o, shared: map[string]*shared{}}, nil
}

// Name is what tells the shared shim of a handler from those of other servers on the machine, which may have handlers of the
// same name. dir is Options.Dir.
func Name(dir, handler string) string {
	sum := sha256.Sum256([]byte(dir))
	return handler + "-" + hex.EncodeToString(sum[:4])
}

// of returns what there is of a handler.
func (s *Set) of(handler string) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.shared[handler]
	if one == nil {
		one = &shared{
			o: s.o, handler: handler, dir: filepath.Join(s.o.Dir, handler), leaf: s.o.Cgroups.ShimLeaf(Name(s.o.Dir, handler)),
			turn: make(chan struct{}, 1), pods: map[string]time.Duration{},
		}
		one.turn <- struct{}{}
		s.shared[handler] = one
	}
	return one
}

func (s *Set) all() []*shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*shared
	for _, one := range s.shared {
		all = append(all, one)
	}
	return all
}

// Join makes a pod one of a handler's, and returns the shim, which is started if there is none.
//
// # Errors
//
// ErrUnavailable with what the shim said if it cannot be started; the context's. The pod has not joined then, and of a shim
// that was started nothing is left.
func (s *Set) Join(ctx context.Context, handler, pod string) (*client.Client, error) {
	one := s.of(handler)
	done, err := one.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := one.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("start shim of handler %q: %w", handler, err)
	}
	one.add(pod)
	return c, nil
}

// Find connects to the shims of handlers that an earlier server ran, side by side. One that was killed too answers when its
// successor has taken over all of its containers: that takes longer than a request of one pod may. What goes wrong Rejoin tells.
func (s *Set) Find(ctx context.Context, handlers []string) {
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	var all sync.WaitGroup
	for _, handler := range handlers {
		all.Go(func() {
			one := s.of(handler)
			done, err := one.begin(ctx)
			if err != nil {
				return
			}
			defer done()
			if one.living() == nil {
				if _, err := one.find(ctx); err == nil {
					one.wait()
				}
			}
		})
	}
	all.Wait()
}

// Rejoin is Join for a pod that an earlier server ran. No shim is started.
//
// # Errors
//
// ErrNotFound if shim and keeper are gone; else the shim does not answer, and the pod is one of its nevertheless.
func (s *Set) Rejoin(ctx context.Context, handler, pod string) (*client.Client, error) {
	one := s.of(handler)
	done, err := one.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := one.living()
	if c == nil {
		if c, err = one.find(ctx); errdefs.IsNotFound(err) {
			return nil, err
		}
		one.wait()
	}
	one.add(pod)
	return c, err
}

// Leave is called when the shim has nothing of the pod any more. The last one to leave ends the shim. A pod that has not joined, or
// has left, is no error.
func (s *Set) Leave(ctx context.Context, handler, pod string) error {
	one := s.of(handler)
	done, err := one.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !one.has(pod) {
		return nil
	}
	if one.count() == 1 {
		if err := one.stop(ctx); err != nil {
			return fmt.Errorf("end shim of handler %q: %w", handler, err)
		}
	}
	one.drop(pod)
	return nil
}

// Tidy is called when all pods that ran before this server have joined again. It ends shims that no pod has: the server died
// before it could.
func (s *Set) Tidy(ctx context.Context) error {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return fmt.Errorf("look for shims without pods: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		one := s.of(e.Name())
		done, err := one.begin(ctx)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if one.count() == 0 {
			s.o.Logger.Warn("end a shim that no pod has", "handler", e.Name())
			if _, err := one.find(ctx); err != nil && !errdefs.IsNotFound(err) {
				s.o.Logger.Warn("connect to shim", "handler", e.Name(), "error", err)
			}
			if err := one.stop(ctx); err != nil {
				errs = append(errs, fmt.Errorf("end shim of handler %q: %w", e.Name(), err))
			}
		}
		done()
	}
	for _, one := range s.all() {
		one.settle()
	}
	return errors.Join(errs...)
}

// Close ends the connections to the shims, which go on.
func (s *Set) Close() {
	for _, one := range s.all() {
		if c := one.connection(); c != nil {
			c.Close()
		}
	}
}
