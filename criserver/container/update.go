package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/container/build"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/oomscore"
)

// Update changes the limits of a container that is created or runs. Values that are zero stay as
// they are. Either everything is changed, the running container, its specification and its record,
// or nothing.
//
// # Errors
//
// ErrFailedPrecondition in another state, ErrInvalidArgument for limits that cannot be.
func (m *Manager) Update(ctx context.Context, id string, change *runtime.LinuxContainerResources) error {
	_, c, err := m.find(id)
	if err != nil {
		return err
	}
	rec, end, err := c.wait(ctx, "update", state.Created, state.Running)
	if err != nil {
		return err
	}
	defer end()
	if change == nil {
		return nil
	}
	if err := spec.CheckSets(change, facts.Online(m.o.Host)); err != nil {
		return fmt.Errorf("update container %q: linux.%w", rec.Name(), err)
	}
	if err := m.resize(ctx, c, rec, merge(rec.Resources.Value, change)); err != nil {
		return fmt.Errorf("update container %q: %w", rec.Name(), err)
	}
	return nil
}

// resize sets limits: they are on record as wanted first, as held last.
func (m *Manager) resize(ctx context.Context, c *Container, rec state.Container, want *runtime.LinuxContainerResources) error {
	limits, err := spec.Resources(want, m.o.Host)
	if err != nil {
		return err
	}
	if _, err := m.records.Update(c.ID, func(r state.Container) (state.Container, error) {
		r.Wanted = state.Resources{Value: want}
		return r, nil
	}); err != nil {
		return err
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err == nil {
		r := &resizing{Container: c, sandbox: sb, rec: rec, want: want, limits: limits, host: m.o.Host, pids: m.o.Cgroups.Group(rec.CgroupsPath).Pids}
		err = r.run(ctx)
	}
	if err != nil {
		if _, uerr := m.records.Update(c.ID, func(r state.Container) (state.Container, error) {
			r.Wanted = state.Resources{}
			return r, nil
		}); uerr != nil && !errdefs.IsNotFound(uerr) {
			c.log.Error("failed to take back a change of resources", "error", uerr)
		}
	}
	return err
}

// resizing is one change of a container's limits.
type resizing struct {
	*Container
	sandbox *sandbox.Sandbox
	rec     state.Container
	want    *runtime.LinuxContainerResources
	limits  *specs.LinuxResources
	host    spec.Host
	pids    func() ([]int, error)         // of the container
	undo    []func(context.Context) error // of what was changed so far
}

func (r *resizing) run(ctx context.Context) error {
	old, err := r.changeSpec()
	if err == nil && r.rec.Phase == state.Running {
		err = r.changeTask(ctx, old)
	}
	if err == nil {
		_, err = r.records.Update(r.ID, func(rec state.Container) (state.Container, error) {
			rec.Resources, rec.Wanted = state.Resources{Value: r.want}, state.Resources{}
			return rec, nil
		})
	}
	if err != nil {
		r.takeBack(ctx)
	}
	return err
}

// changeSpec writes the limits into the specification and returns those that were there.
func (r *resizing) changeSpec() (old *specs.LinuxResources, err error) {
	before, err := readSpec(r.sandbox, r.ID)
	if err != nil {
		return nil, err
	}
	var s specs.Spec
	if err := json.Unmarshal(before, &s); err != nil || s.Linux == nil || s.Process == nil {
		return nil, fmt.Errorf("read specification: %w", errors.Join(err, errdefs.ErrDataLoss))
	}
	old = s.Linux.Resources
	if old != nil {
		r.limits.Devices = old.Devices
	}
	s.Linux.Resources = r.limits
	adj := r.score(r.want)
	s.Process.OOMScoreAdj = &adj
	dir := filepath.Join(r.sandbox.Dir, r.ID)
	if err := build.WriteSpec(dir, &s); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, func(context.Context) error { return build.WriteConfig(dir, before) })
	return old, nil
}

// changeTask sets the limits of the running container. old are those that it has, nil = not known.
func (r *resizing) changeTask(ctx context.Context, old *specs.LinuxResources) error {
	shim := r.sandbox.Shim()
	if shim == nil {
		return fmt.Errorf("its sandbox is not ready: %w", errdefs.ErrFailedPrecondition)
	}
	if old != nil {
		r.undo = append(r.undo, func(ctx context.Context) error { return shim.Update(ctx, r.ID, old) })
	}
	if err := shim.Update(ctx, r.ID, r.limits); err != nil {
		return cgroup.Refused("linux", err)
	}
	had, wanted := r.score(r.rec.Resources.Value), r.score(r.want)
	r.undo = append(r.undo, func(context.Context) error { return r.rescore(wanted, had) })
	return r.rescore(had, wanted)
}

// score is the oom_score_adj of a container with these limits.
func (r *resizing) score(limits *runtime.LinuxContainerResources) int {
	return spec.OOMScoreAdj(int(limits.GetOomScoreAdj()), r.host)
}

// rescore gives the container's processes another oom_score_adj, except those that have changed
// theirs. It looks until it finds none with the old one, which new processes have of their parents,
// but not for ever: a process may set it again and again.
func (r *resizing) rescore(from, to int) error {
	for looks, left := 0, from != to; left && looks < 100; looks++ {
		pids, err := r.pids()
		if err != nil {
			return err
		}
		left = false
		for _, pid := range pids {
			if has, err := oomscore.Get(pid); err != nil || has != from { // an error: it has ended
				continue
			}
			if err := oomscore.Set(pid, to); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("set oom_score_adj: %w", err)
			}
			left = true
		}
	}
	return nil
}

// takeBack undoes a change of limits that did not come through. Of a container that has ended
// meanwhile there is nothing to undo.
func (r *resizing) takeBack(ctx context.Context) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	for _, u := range r.undo {
		if err := u(ctx); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
			r.log.Error("failed to take back a change of resources", "error", err)
		}
	}
}

// merge lays the values of change that are not zero over those of old.
func merge(old, change *runtime.LinuxContainerResources) *runtime.LinuxContainerResources {
	out := &runtime.LinuxContainerResources{}
	if old != nil {
		out = proto.Clone(old).(*runtime.LinuxContainerResources)
	}
	huge := out.GetHugepageLimits()
	// Merge takes what is set, and with proto3 that is what is not zero; lists it would append.
	out.HugepageLimits = nil
	proto.Merge(out, change)
	if len(out.HugepageLimits) == 0 {
		out.HugepageLimits = huge
	}
	return out
}

// ReopenLog lets a running container's shim open its log file anew, after the client has renamed
// it.
//
// # Errors
//
// ErrFailedPrecondition if the container does not run; no file is made then.
func (m *Manager) ReopenLog(ctx context.Context, id string) error {
	r, err := m.Reach(id)
	if err != nil {
		return fmt.Errorf("reopen log: %w", err)
	}
	if err := r.Shim.ReopenLog(ctx, r.Record.ID); err != nil {
		return fmt.Errorf("reopen log of container %q: %w", r.Record.Name(), err)
	}
	return nil
}
