package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// group is a sandbox's cgroup: its own, or its leaves in the one that its client named.
type group struct {
	*Manager
	rec state.Sandbox
}

// create makes the sandbox's own cgroup. One that a client named exists.
func (g group) create() error {
	if !g.rec.CgroupOwned {
		return nil
	}
	if err := g.o.Cgroups.MakePod(g.rec.CgroupParent); err != nil {
		return err
	}
	if l := Limits(g.rec); l != (cgroup.Limits{}) {
		return g.o.Cgroups.LimitPod(g.rec.CgroupParent, l)
	}
	return nil
}

// remove removes the cgroup, and kills what is still in the sandbox's own except its shim; the
// connection is nil without one.
func (g group) remove(ctx context.Context, shim *client.Client) error {
	if !g.rec.CgroupOwned {
		return g.removeLeaves()
	}
	if g.o.Cgroups.RemovePod(g.rec.CgroupParent) == nil { // which waits for a shim that is about to end
		return nil
	}
	return errors.Join(g.kill(ctx, shim), g.o.Cgroups.RemovePod(g.rec.CgroupParent))
}

// kill kills what is in the sandbox's own cgroup except its shim.
func (g group) kill(ctx context.Context, shim *client.Client) error {
	names, err := g.o.Cgroups.EndAll(ctx, g.rec.CgroupParent, g.shims.Processes(g.rec, shim)...)
	if err != nil {
		return fmt.Errorf("kill processes %q, which outlived their sandbox: %w", names, err)
	}
	if len(names) > 0 {
		g.o.Logger.Warn("killing processes that outlived their sandbox", "sandbox", g.rec.ID, "names", names)
	}
	return nil
}

func (g group) removeLeaves() error {
	drawn, err := g.DrawnLeaves(g.rec) // a shim that was killed leaves them
	err = errors.Join(err, g.o.Cgroups.RemoveLeaf(g.Leaf(g.rec, g.rec.ID)))
	for _, leaf := range drawn {
		err = errors.Join(err, g.o.Cgroups.RemoveLeaf(leaf))
	}
	return err
}

// SetResources keeps the pod-level overhead and resources of UpdatePodSandboxResources; nil leaves
// one as it is. The cgroup of a pod that came without a parent is limited anew; who gave a parent
// limits that himself. Either everything is changed or nothing.
//
// # Errors
//
// ErrInvalidArgument for amounts that cannot be; ErrNotFound; else the kernel's.
func (m *Manager) SetResources(rec state.Sandbox, overhead, resources *runtime.LinuxContainerResources) error {
	for field, r := range map[string]*runtime.LinuxContainerResources{"overhead": overhead, "resources": resources} {
		if err := spec.CheckPodAmounts(r); err != nil {
			return fmt.Errorf("update resources of sandbox %q: %s.%w", rec.Name(), field, err)
		}
	}
	undo := func() error { return nil }
	_, err := m.records.Update(rec.ID, func(r state.Sandbox) (state.Sandbox, error) {
		before := Limits(r)
		if overhead != nil {
			r.Overhead = state.Resources{Value: overhead}
		}
		if resources != nil {
			r.Resources = state.Resources{Value: resources}
		}
		after := Limits(r)
		if !r.CgroupOwned || r.Phase != state.Ready || after == before {
			return r, nil
		}
		undo = func() error { return m.o.Cgroups.LimitPod(r.CgroupParent, before) }
		return r, cgroup.Refused("resources", m.o.Cgroups.LimitPod(r.CgroupParent, after))
	})
	if err == nil {
		return nil
	}
	if uerr := undo(); uerr != nil {
		m.o.Logger.Error("failed to undo change of resources", "sandbox", rec.ID, "error", uerr)
	}
	return fmt.Errorf("update resources of sandbox: %w", err)
}

// Limits are those of a pod's own cgroup: what its containers may use together, and the overhead on
// top. What the resources leave open stays open, whatever the overhead says.
func Limits(rec state.Sandbox) cgroup.Limits {
	const defaultPeriod = 100_000 // of the kernel, in microseconds
	r, o := rec.Resources.Value, rec.Overhead.Value
	var l cgroup.Limits
	if n := r.GetMemoryLimitInBytes(); n > 0 {
		l.Memory = uint64(n + o.GetMemoryLimitInBytes())
	}
	if n := r.GetCpuShares(); n > 0 {
		l.Shares = uint64(n + o.GetCpuShares())
	}
	if n := r.GetCpuQuota(); n > 0 {
		period := cmp.Or(r.GetCpuPeriod(), defaultPeriod)
		if q := o.GetCpuQuota(); q > 0 {
			theirs := cmp.Or(o.GetCpuPeriod(), defaultPeriod)
			n += q * period / theirs
		} else {
			n += o.GetCpuShares() * period / 1024 // 1024 shares stand for a core
		}
		l.Quota, l.Period = uint64(n), uint64(period)
	}
	return l
}
