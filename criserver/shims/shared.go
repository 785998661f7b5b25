package shims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// shared is the shim that the pods of one handler share, or the place for one.
type shared struct {
	o             Options
	handler       string
	dir, leaf     string
	turn          chan struct{} // holds one token; who takes it may start and end the shim
	mu            sync.Mutex
	client        *client.Client           // nil = no shim
	pods          map[string]time.Duration // those that hold it, and the CPU time that each is charged with
	charged       time.Duration            // what the shim has used of that
	history       client.History           // as it was told last
	accountBroken bool                     // its CPU time cannot be read; it is logged once
	waiting       bool                     // pods of an earlier server are still reacquiring it: none is charged before all have
}

// ofHandler returns the shared shim of a handler, or the place for one.
func (s *Set) ofHandler(handler string) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.shared[handler]
	if one == nil {
		one = &shared{
			o: s.o, handler: handler, dir: s.o.sharedDir(handler), leaf: s.o.sharedLeaf(handler),
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
	return slices.Collect(maps.Values(s.shared))
}

const (
	// startLimit is how long a shim may take to answer for the first time.
	startLimit = 10 * time.Second
	// reconnectLimit is how long one may take that was started by an earlier server.
	reconnectLimit = time.Minute
	// stopLimit is how long it may take to end when told to.
	stopLimit = 2 * time.Second
)

// Acquire implements Shims.
func (s *shared) Acquire(ctx context.Context, pod state.Sandbox) (*client.Client, error) {
	done, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := s.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("start shim of handler %q: %w", s.handler, err)
	}
	s.add(pod.ID)
	return c, nil
}

// Reacquire implements Shims.
func (s *shared) Reacquire(ctx context.Context, pod state.Sandbox) (*client.Client, error) {
	done, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := s.living()
	if c == nil {
		if c, err = s.find(ctx); errdefs.IsNotFound(err) {
			return nil, err
		}
		s.wait()
	}
	s.add(pod.ID)
	return c, err
}

// Release implements Shims. What the shim does not end in time is ended without it.
func (s *shared) Release(ctx context.Context, pod state.Sandbox, shim *client.Client) error {
	if shim == nil || !s.vacate(ctx, pod, shim) {
		if err := s.o.cleanUpAfter(ctx, pod, s.pids(pod)...); err != nil {
			return err
		}
	}
	return s.leave(ctx, pod.ID)
}

// leave is called when the shim has nothing of a pod any more. The last pod to leave ends the shim.
func (s *shared) leave(ctx context.Context, pod string) error {
	done, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !s.has(pod) {
		return nil
	}
	if s.count() == 1 {
		if err := s.stop(ctx); err != nil {
			return fmt.Errorf("end shim of handler %q: %w", s.handler, err)
		}
	}
	s.drop(pod)
	return nil
}

// reconnect connects to the shim that an earlier server started, if there is one.
func (s *shared) reconnect(ctx context.Context) {
	done, err := s.lock(ctx)
	if err != nil {
		return
	}
	defer done()
	if s.living() == nil {
		if _, err := s.find(ctx); err == nil {
			s.wait()
		}
	}
}

// lock waits for the right to start and end the shim.
func (s *shared) lock(ctx context.Context) (done func(), err error) {
	select {
	case <-s.turn:
		return func() { s.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the shim of handler %q: %w", s.handler, ctx.Err())
	}
}

func (s *shared) connection() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// living returns the connection, nil without one or shim and supervisor have exited.
func (s *shared) living() *client.Client {
	c := s.connection()
	if c == nil {
		return nil
	}
	select {
	case <-c.Done():
		return nil
	default:
		return c
	}
}

// get returns the connection to the shim, which it starts if it does not run. A shim that did not
// answer an earlier request may answer now.
func (s *shared) get(ctx context.Context) (*client.Client, error) {
	if c := s.living(); c != nil {
		return c, nil
	}
	if s.count() > 0 {
		within, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		if c, err := s.find(within); !errdefs.IsNotFound(err) {
			return c, err
		}
	}
	return s.start(ctx)
}

// start starts the shim and returns when it has answered. What an earlier one has left is removed
// first.
func (s *shared) start(ctx context.Context) (_ *client.Client, err error) {
	used := s.count() > 0
	if err := s.clear(ctx, used); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
			defer cancel()
			err = errors.Join(err, s.clear(ctx, used))
		}
	}()
	if err := os.MkdirAll(s.dir, 0o711); err != nil {
		return nil, err
	}
	c, err := client.Start(ctx, s.o.in(s.leaf, client.StartOptions{
		Binary: s.o.Binary, Namespace: namespace, Dir: s.dir, WasmCache: s.o.WasmCache, Debug: s.o.Debug,
		Supervised: true, Succeeded: s.succeeded,
	}, s.o.Cgroups.PlaceFamily))
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := c.Answers(within); err != nil {
		c.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("it does not answer: %w: %w; it said: %s", err, errdefs.ErrUnavailable, s.said())
	}
	s.mu.Lock()
	s.client, s.charged, s.waiting, s.history = c, 0, false, client.History{}
	s.mu.Unlock()
	s.o.Logger.Info("shared shim started", "handler", s.handler, "shim", c.PID(), "supervisor", c.Supervisor())
	return c, nil
}

// succeeded is told that a successor of the shim answers.
func (s *shared) succeeded(pid int) {
	s.o.Logger.Error("shared shim died; its successor adopted its containers", "handler", s.handler, "shim", pid)
}

// said is the end of the shim's log.
func (s *shared) said() string {
	const most = 1 << 10
	data, err := os.ReadFile(filepath.Join(s.dir, client.LogName))
	if err != nil || len(data) == 0 {
		return "nothing"
	}
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}

// find connects to the shim that an earlier server started.
func (s *shared) find(ctx context.Context) (*client.Client, error) {
	c, err := client.ConnectSupervised(ctx, s.dir, s.succeeded)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.client = c
	s.mu.Unlock()
	return c, nil
}

// stop ends the shim; one that does not end when told to is killed.
func (s *shared) stop(ctx context.Context) error {
	if c := s.living(); c != nil {
		within, cancel := context.WithTimeout(ctx, stopLimit)
		err := c.Shutdown(within)
		select {
		case <-c.Done():
		case <-within.Done():
			s.o.Logger.Warn("shim failed to exit on request", "handler", s.handler, "error", err)
		}
		cancel()
	}
	return s.clear(ctx, false)
}

// clear ends the shim and removes what it leaves: the supervisor first, because it would start
// another one. The folder stays if it is used, by pods that are still to be cleaned up after: the
// OCI runtime's state is in it.
func (s *shared) clear(ctx context.Context, used bool) error {
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
	socket := filepath.Join(s.dir, client.SocketName) // it is among the arguments of both
	if err := client.Cleanup(ctx, s.o.Binary, namespace, s.dir, socket); err != nil {
		return err
	}
	if err := s.o.Cgroups.End(ctx, s.leaf); err != nil {
		return err
	}
	if err := s.o.Cgroups.RemoveShimLeaf(s.leaf); err != nil {
		return err
	}
	if used {
		return nil
	}
	if err := os.RemoveAll(s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
