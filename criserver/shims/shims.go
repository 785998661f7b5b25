// Package shims gives pods their shims. Whether a pod's shim is its own or one that all pods of its
// handler share is known here and nowhere else: both ways stand behind the interface Shims.
//
// # A shim of its own
//
// It is started for the pod, works in the pod's folder and cgroup, and ends with the pod.
//
// # A shared shim
//
// There is at most one for each handler. It is started when the first pod acquires it, and stopped
// when the last one releases it. Acquire and Release exclude one another: a pod that acquires while
// the last one releases gets a new shim, and two that acquire at once share one. The shim outlives
// the server: a new server finds it by its folder.
//
// When the shim dies, its supervisor starts a successor, which adopts the containers. The server
// connects again, and only the log mentions it. If the supervisor has exited too, the pods are
// lost, and each sandbox cleans up after itself.
package shims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Shims gives pods their shims.
type Shims interface {
	// Acquire returns the pod's shim. It is started, unless there is one that the pod can share.
	//
	// # Errors
	//
	// ErrUnavailable with the end of the shim's log if it does not answer; the context's. The pod
	// holds no shim then, and a shim that was started is removed.
	Acquire(ctx context.Context, pod state.Sandbox) (*client.Client, error)
	// Reacquire is Acquire for a pod that an earlier server ran. No shim is started.
	//
	// # Errors
	//
	// ErrNotFound if the shim has exited. After any other error the shim does not answer; the pod
	// holds it nevertheless.
	Reacquire(ctx context.Context, pod state.Sandbox) (*client.Client, error)
	// Release ends everything that the shim runs for the pod, and removes its leftovers. A shim
	// that no pod holds any more is stopped. The connection is nil if the shim has exited or does
	// not answer, and must not be used afterwards. Release may be repeated after an error.
	Release(ctx context.Context, pod state.Sandbox, shim *client.Client) error
	// Cost returns the processes whose cost the pod carries because it has this shim. The
	// connection may be nil.
	Cost(pod state.Sandbox, shim *client.Client) []Process
}

// Process is a process of a pod's shim.
type Process struct {
	Name string        // Shim or Supervisor
	PID  int           // 0 = not known
	Pods int           // that share the process, this one included; 0 = it is the pod's own
	CPU  time.Duration // used for this pod, as far as the pod's own cgroup does not show it
}

// Names of processes, as metrics and commands show them.
const (
	Shim       = "shim"
	Supervisor = "supervisor" // of a shared shim
)

// namespace is that of the kubelet's containers in containerd, so that tools find them.
const namespace = "k8s.io"

// Options configure New.
type Options struct {
	Layout           // Shared may be missing after a reboot
	Binary    string // shim binary
	WasmCache string
	Debug     bool // shims log at debug level
	// CPU returns how much CPU time a cgroup has used.
	CPU    func(cgroup string) (time.Duration, error)
	Logger *slog.Logger
}

// Set is the Shims of all pods of a server.
type Set struct {
	o   Options
	own own

	mu     sync.Mutex
	shared map[string]*shared // by handler
}

var _ Shims = (*Set)(nil)

// New returns a set that has looked for no shim yet.
func New(o Options) (*Set, error) {
	if err := os.MkdirAll(o.Shared, 0o711); err != nil {
		return nil, fmt.Errorf("create folder of shims: %w", err)
	}
	return &Set{o: o, own: own{o}, shared: map[string]*shared{}}, nil
}

// of returns the way in which a pod gets its shim.
func (s *Set) of(pod state.Sandbox) Shims {
	if !shares(pod) {
		return s.own
	}
	return s.ofHandler(pod.HandlerName)
}

// Acquire implements Shims.
func (s *Set) Acquire(ctx context.Context, pod state.Sandbox) (_ *client.Client, err error) {
	ctx, span := trace.Start(ctx, "start shim")
	defer func() { span.End(err) }()
	return s.of(pod).Acquire(ctx, pod)
}

// Reacquire implements Shims.
func (s *Set) Reacquire(ctx context.Context, pod state.Sandbox) (*client.Client, error) {
	return s.of(pod).Reacquire(ctx, pod)
}

// Release implements Shims.
func (s *Set) Release(ctx context.Context, pod state.Sandbox, shim *client.Client) (err error) {
	ctx, span := trace.Start(ctx, "stop shim")
	defer func() { span.End(err) }()
	return s.of(pod).Release(ctx, pod, shim)
}

// Cost implements Shims.
func (s *Set) Cost(pod state.Sandbox, shim *client.Client) []Process {
	return s.of(pod).Cost(pod, shim)
}

// Processes returns the pids of a pod's shim. In cgroup version 1 they are in the pod's cgroups as
// long as one of their threads is, and are not to be killed there. The connection may be nil.
func (s *Set) Processes(pod state.Sandbox, shim *client.Client) []int {
	pids := []int{client.ReadPID(s.o.Dir(pod.ID))}
	if shim != nil {
		pids = append(pids, shim.PID(), shim.Supervisor())
	}
	for _, p := range s.Cost(pod, shim) {
		pids = append(pids, p.PID)
	}
	return pids
}

// Disconnect closes a pod's connection and leaves the shim running. A connection that pods share
// stays open until Close.
func (s *Set) Disconnect(shim *client.Client) {
	if !slices.ContainsFunc(s.all(), func(one *shared) bool { return one.connection() == shim }) {
		shim.Close()
	}
}

// Reconnect connects to the shared shims that an earlier server ran for these pods, in parallel. It
// is called before Reacquire: if a shim was killed too, its successor answers only after it has
// adopted all containers, which takes longer than a request of one pod may. Reacquire returns the
// errors.
func (s *Set) Reconnect(ctx context.Context, pods []state.Sandbox) {
	ctx, cancel := context.WithTimeout(ctx, reconnectLimit)
	defer cancel()
	handlers := map[string]bool{}
	for _, pod := range pods {
		if shares(pod) {
			handlers[pod.HandlerName] = true
		}
	}
	var all sync.WaitGroup
	for handler := range handlers {
		all.Go(func() { s.ofHandler(handler).reconnect(ctx) })
	}
	all.Wait()
}

// Tidy is called when all pods of an earlier server have reacquired their shims. It stops shared
// shims that no pod holds, because the server died before it stopped them.
func (s *Set) Tidy(ctx context.Context) error {
	entries, err := os.ReadDir(s.o.Shared)
	if err != nil {
		return fmt.Errorf("look for shims without pods: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		one := s.ofHandler(e.Name())
		done, err := one.lock(ctx)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if one.count() == 0 {
			s.o.Logger.Warn("ending unreferenced shim", "handler", e.Name())
			if _, err := one.find(ctx); err != nil && !errdefs.IsNotFound(err) {
				s.o.Logger.Warn("failed to connect to shim", "handler", e.Name(), "error", err)
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

// Layout says where the shims work.
func (s *Set) Layout() Layout { return s.o.Layout }

// Sweep removes a shim's leftovers in the folder of an unrecorded pod.
func (s *Set) Sweep(ctx context.Context, id string) error { return s.o.cleanUp(ctx, id) }

// Close ends the connections to the shared shims, which run on.
func (s *Set) Close() {
	for _, one := range s.all() {
		if c := one.connection(); c != nil {
			c.Close()
		}
	}
}

// cleanUp kills a shim that works in a pod's folder, and removes its leftovers there.
func (o Options) cleanUp(ctx context.Context, id string) error {
	return client.Cleanup(ctx, o.Binary, namespace, o.Dir(id), id)
}

// in has a shim started in a cgroup. place moves it there where it cannot be born in it.
func (o Options) in(leaf string, start client.StartOptions, place func(leaf string, pid int) error) client.StartOptions {
	if o.Cgroups.Driver == cgroup.Systemd {
		start.Place = func(pid int) error { return place(leaf, pid) }
	} else {
		start.Born = func(attr *syscall.SysProcAttr) (func(), error) { return o.Cgroups.Born(leaf, attr) }
	}
	return start
}
