package shims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/shim/client"
)

// own gives each pod a shim of its own.
type own struct{ o Options }

// releaseLimit is how long a shim may take to end what it runs for a pod, before it is killed or
// the processes are killed without it.
const releaseLimit = 2 * time.Second

// Acquire implements Shims.
func (s own) Acquire(ctx context.Context, pod state.Sandbox) (*client.Client, error) {
	c, err := client.Start(ctx, s.o.in(s.o.Leaf(pod), client.StartOptions{
		Binary: s.o.Binary, Namespace: namespace, ID: pod.ID, Dir: s.o.Dir(pod.ID), WasmCache: s.o.WasmCache, Debug: s.o.Debug,
	}, s.o.Cgroups.Place))
	if err != nil {
		return nil, fmt.Errorf("start shim: %w", err)
	}
	return c, nil
}

// Reacquire implements Shims.
func (s own) Reacquire(ctx context.Context, pod state.Sandbox) (*client.Client, error) {
	return client.Connect(ctx, s.o.Dir(pod.ID))
}

// Release implements Shims. A shim that does not end when told to is killed together with all that
// runs under it.
func (s own) Release(ctx context.Context, pod state.Sandbox, shim *client.Client) error {
	if shim != nil {
		ended := s.shutDown(ctx, pod, shim)
		shim.Close()
		// Nothing is to mistake the files of a shim that has ended by itself for a living one's.
		if ended && durable.Remove(s.o.Dir(pod.ID), client.SocketName, client.PidName) == nil {
			return nil
		}
	}
	return s.o.cleanUpAfter(ctx, pod)
}

// shutDown tells the shim to end and reports whether it did so in time and had no containers left.
func (s own) shutDown(ctx context.Context, pod state.Sandbox, shim *client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	err := shim.Shutdown(ctx) // it stays as long as it has containers
	select {
	case <-shim.Done():
		return err == nil
	case <-ctx.Done():
		s.o.Logger.Warn("failed to stop the shim in time", "sandbox", pod.ID, "error", err)
		return false
	}
}

// Cost implements Shims. The pod's own cgroup shows the shim's CPU time.
func (s own) Cost(_ state.Sandbox, shim *client.Client) []Process {
	if shim == nil {
		return nil
	}
	return []Process{{Name: Shim, PID: shim.PID()}}
}

// cleanUpAfter removes what a shim has left of a pod, without asking it. except are processes of a
// shim that lives, for other pods.
func (o Options) cleanUpAfter(ctx context.Context, pod state.Sandbox, except ...int) error {
	err := o.cleanUp(ctx, pod.ID)
	if err == nil {
		err = o.endUnrecorded(ctx, pod, except...)
	}
	if err != nil {
		return fmt.Errorf("clean up after shim: %w", err)
	}
	return nil
}

// endUnrecorded ends processes in the pod's cgroups that are on no record of a shim: it died when
// it had just made them, or they were prewarmed. It removes the cgroups of containers that it finds
// so: otherwise they stay until the pod ends. A shim that lives, for other pods, may be there
// with a thread: except names its processes.
func (o Options) endUnrecorded(ctx context.Context, pod state.Sandbox, except ...int) error {
	drawn, err := o.Drawn(pod)
	err = errors.Join(err, o.Cgroups.End(ctx, o.Cgroups.Leaf(pod.CgroupParent, pod.ID), except...))
	for _, leaf := range drawn {
		lerr := o.Cgroups.End(ctx, leaf, except...)
		if lerr == nil {
			lerr = o.Cgroups.RemoveLeaf(leaf)
		}
		err = errors.Join(err, lerr)
	}
	return err
}
