package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
)

// Update changes the limits of a container that is created or runs. Values that are zero stay as they are. Either
// everything is changed, the running container, its specification and its record, or nothing.
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
		return fmt.Errorf("update container %q: linux.%w", rec.ID, err)
	}
	if err := m.update(ctx, c, rec, merge(rec.Resources.Value, change)); err != nil {
		return fmt.Errorf("update container %q: %w", rec.ID, err)
	}
	return nil
}

// update sets limits: they are on record as wanted first, as held last.
func (m *Manager) update(ctx context.Context, c *Container, rec state.Container, want *runtime.LinuxContainerResources) error {
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
	if err := m.setLimits(ctx, c, rec, want, limits); err != nil {
		if _, uerr := m.records.Update(c.ID, func(r state.Container) (state.Container, error) {
			r.Wanted = state.Resources{}
			return r, nil
		}); uerr != nil && !errdefs.IsNotFound(uerr) {
			m.o.Logger.Error("take back a change of resources", "container", c.ID, "error", uerr)
		}
		return err
	}
	return nil
}

func (m *Manager) setLimits(ctx context.Context, c *Container, rec state.Container, want *runtime.LinuxContainerResources, limits *specs.LinuxResources) error {
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return err
	}
	dir := filepath.Join(sb.Dir, rec.ID)
	before, err := m.Spec(rec)
	if err != nil {
		return err
	}
	var s specs.Spec
	if err := json.Unmarshal(before, &s); err != nil || s.Linux == nil || s.Process == nil {
		return fmt.Errorf("read specification: %w", errors.Join(err, errdefs.ErrDataLoss))
	}
	old := s.Linux.Resources
	if old != nil {
		limits.Devices = old.Devices
	}
	s.Linux.Resources = limits
	adj := spec.OOMScoreAdj(int(want.GetOomScoreAdj()), m.o.Host)
	s.Process.OOMScoreAdj = &adj
	if err := writeSpec(dir, &s); err != nil {
		return err
	}
	undo := []func(context.Context) error{func(context.Context) error { return writeConfig(dir, before) }}
	if rec.Phase == state.Running {
		shim := sb.Shim()
		if shim == nil {
			return m.takeBack(ctx, rec.ID, undo, fmt.Errorf("its sandbox is not ready: %w", errdefs.ErrFailedPrecondition))
		}
		if old != nil {
			undo = append(undo, func(ctx context.Context) error { return shim.Update(ctx, rec.ID, old) })
		}
		if err := shim.Update(ctx, rec.ID, limits); err != nil {
			return m.takeBack(ctx, rec.ID, undo, cgroup.Refused("linux", err))
		}
	}
	if _, err := m.records.Update(c.ID, func(r state.Container) (state.Container, error) {
		r.Resources, r.Wanted = state.Resources{Value: want}, state.Resources{}
		return r, nil
	}); err != nil {
		return m.takeBack(ctx, rec.ID, undo, err)
	}
	return nil
}

// takeBack undoes a change of limits that did not come through, and returns why it did not.
func (m *Manager) takeBack(ctx context.Context, id string, undo []func(context.Context) error, cause error) error {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	for _, u := range undo {
		if err := u(ctx); err != nil {
			m.o.Logger.Error("take back a change of resources", "container", id, "error", err)
		}
	}
	return cause
}

// merge lays the values of change that are not zero over those of old.
func merge(old, change *runtime.LinuxContainerResources) *runtime.LinuxContainerResources {
	out := &runtime.LinuxContainerResources{}
	if old != nil {
		out = proto.Clone(old).(*runtime.LinuxContainerResources)
	}
	huge, unified := out.GetHugepageLimits(), maps.Clone(out.GetUnified())
	// Merge takes what is set, and with proto3 that is what is not zero; lists it would append.
	out.HugepageLimits, out.Unified = nil, nil
	proto.Merge(out, change)
	if len(out.HugepageLimits) == 0 {
		out.HugepageLimits = huge
	}
	for k, v := range out.GetUnified() {
		if unified == nil {
			unified = map[string]string{}
		}
		unified[k] = v
	}
	out.Unified = unified
	return out
}

// ReopenLog lets a running container's shim open its log file anew, after the client has renamed it.
//
// # Errors
//
// ErrFailedPrecondition if the container does not run; no file is made then.
func (m *Manager) ReopenLog(ctx context.Context, id string) error {
	rec, err := m.Get(id)
	if err != nil {
		return err
	}
	if rec.Phase != state.Running {
		return fmt.Errorf("reopen log of container %q: it is %s: %w", rec.ID, rec.Phase, errdefs.ErrFailedPrecondition)
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return err
	}
	shim := sb.Shim()
	if shim == nil {
		return fmt.Errorf("reopen log of container %q: its sandbox is not ready: %w", rec.ID, errdefs.ErrFailedPrecondition)
	}
	if err := shim.ReopenLog(ctx, rec.ID); err != nil {
		return fmt.Errorf("reopen log of container %q: %w", rec.ID, err)
	}
	return nil
}
