package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// step is one part of a sandbox. do creates it; undo removes it, also if it is incomplete, and is
// idempotent.
type step struct {
	name     string
	do, undo func(context.Context) error
}

// lasting are the parts that stand until Remove, in the order in which Run makes them.
func (s *Sandbox) lasting() []step {
	return []step{
		{"record intent", s.record.create, func(ctx context.Context) error { return errors.Join(s.forget(ctx), s.manager.records.Settle()) }},
		{"make folders", s.Folders.create, s.Folders.remove},
	}
}

// working are the parts that stand until Stop; Run makes them after the lasting ones.
func (s *Sandbox) working() []step {
	return []step{
		{"start shim and network", s.withRecord(s.startBoth), s.withRecord(s.stopBoth)},
		{"write files", s.withRecord(func(_ context.Context, rec state.Sandbox) error {
			return s.write(rec, spec.Hostname(rec.Config.Value, s.manager.o.Host))
		}), s.unmountShm},
		{"start pause", s.withRecord(s.startPause), s.withRecord(s.stopPause)},
	}
}

// withRecord calls part with the record that is current when the step runs.
func (s *Sandbox) withRecord(part func(context.Context, state.Sandbox) error) func(context.Context) error {
	return func(ctx context.Context) error {
		rec, err := s.record.get()
		if err != nil {
			return err
		}
		return part(ctx, rec)
	}
}

// Run makes a sandbox and returns its id once it is ready. handler is a RuntimeClass's handler, ""
// for the default.
//
// A request that repeats a running one (the client gave up and asks again) joins it.
//
// # Errors
//
// ErrInvalidArgument for an unknown handler or an invalid configuration;
// ErrFailedPrecondition if the handler's OCI runtime is missing; ErrAlreadyExists with the id of
// the sandbox of the same name; otherwise the cause with the name of the step. On error the sandbox
// is removed. If that fails, a NotReady sandbox stays, for the client to stop and remove.
func (m *Manager) Run(ctx context.Context, config *runtime.PodSandboxConfig, handler string) (string, error) {
	return m.run(ctx, config, handler, &runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler}, nil)
}

// Restore is Run for a sandbox that becomes visible only after fill, which is given its id, has
// created its containers. Until then its name is reserved, and only a repeated request joins it. If
// fill fails, the sandbox is removed, as Remove does with end and remove.
func (m *Manager) Restore(ctx context.Context, r *runtime.RestorePodRequest, fill, end, remove func(ctx context.Context, id string) error) (string, error) {
	return m.run(ctx, r.GetConfig(), r.GetRuntimeHandler(), r, func(ctx context.Context, id string) error {
		err := fill(ctx, id)
		if err == nil {
			err = m.recordRestored(id)
		}
		if err == nil {
			return nil
		}
		ctx, cancel := Aside(ctx)
		defer cancel()
		return errors.Join(err, m.Remove(ctx, id, end, remove))
	})
}

func (m *Manager) recordRestored(id string) error {
	_, err := m.records.Update(id, func(r state.Sandbox) (state.Sandbox, error) {
		r.Restoring = false
		return r, nil
	})
	if err != nil {
		return fmt.Errorf("record sandbox %q as restored: %w", id, err)
	}
	return nil
}

func (m *Manager) run(
	ctx context.Context, config *runtime.PodSandboxConfig, handler string, request proto.Message, fill func(context.Context, string) error,
) (string, error) {
	h, err := m.o.Handlers.Lookup(handler)
	if err != nil {
		return "", err
	}
	if err := spec.ValidateSandbox(config); err != nil {
		return "", err
	}
	// Guests need no OCI runtime.
	if r := m.o.Runtime(h.Binary); r.Missing && h.Type == runtimeclass.OCI {
		return "", fmt.Errorf("run pod %q: %s: %w", config.GetMetadata().GetName(), r.Text(h.Name), errdefs.ErrFailedPrecondition)
	}
	id := state.NewID()
	parent, owned, err := m.o.Cgroups.Pod(id, config.GetLinux().GetCgroupParent())
	if err != nil {
		return "", err
	}
	rec := state.Sandbox{
		ID: id, Phase: state.Creating, CreatedAt: m.created(config.GetMetadata().GetUid()), BootID: m.o.BootID,
		Config:  state.PodConfig{Value: config},
		Handler: handler, HandlerName: h.Name, HandlerType: string(h.Type), Binary: h.Binary, ShimScope: h.ShimScope,
		CgroupParent: parent, CgroupOwned: owned,
		Network:   state.Network{Up: Pins(config).Net},
		Restoring: fill != nil,
		Overhead:  state.Resources{Value: config.GetLinux().GetOverhead()},
		Resources: state.Resources{Value: config.GetLinux().GetResources()},
	}
	same, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("read sandbox configuration: %w", err)
	}
	return m.names.Create(ctx, name(config), string(request.ProtoReflect().Descriptor().Name())+string(same), func(ctx context.Context) (string, error) {
		started := time.Now()
		err := m.make(ctx, rec)
		if m.o.Started != nil {
			m.o.Started(rec.HandlerName, time.Since(started), err)
		}
		if err == nil && fill != nil {
			err = fill(ctx, id)
		}
		return id, err
	})
}

func (m *Manager) make(ctx context.Context, rec state.Sandbox) error {
	var err error
	if rec.ProcessLabel, err = m.o.Labels.Pod(rec.Config.Value.GetLinux().GetSecurityContext().GetSelinuxOptions()); err != nil {
		return err
	}
	s := newSandbox(m, rec)
	s.record.first = rec
	m.add(s)
	lasting, err := do(ctx, s.log, s.lasting())
	var working []step
	if err == nil {
		working, err = do(ctx, s.log, s.working())
	}
	if err == nil {
		err = s.record.ready()
	}
	if err != nil {
		s.fail(ctx, err, lasting, working)
		return err
	}
	s.watch()
	s.log.Info("sandbox started", "pod", name(rec.Config.Value), "handler", rec.HandlerName)
	return nil
}

// do runs steps from first to last and returns those that were tried.
func do(ctx context.Context, log *slog.Logger, steps []step) ([]step, error) {
	for i, st := range steps {
		started := time.Now()
		err := ctx.Err()
		if err == nil {
			err = st.do(ctx)
		}
		if err != nil {
			return steps[:i+1], fmt.Errorf("%s: %w", st.name, err)
		}
		log.DebugContext(ctx, "step", "name", st.name, "took", time.Since(started))
	}
	return steps, nil
}

// undo undoes steps from last to first, each of them also after an error of another.
func undo(ctx context.Context, log *slog.Logger, steps []step) error {
	var errs []error
	for _, st := range slices.Backward(steps) {
		started := time.Now()
		if err := st.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("undo %q: %w", st.name, err))
		}
		log.DebugContext(ctx, "step undone", "name", st.name, "took", time.Since(started))
	}
	return errors.Join(errs...)
}

// fail undoes a sandbox whose creation failed. If that fails too, it stays as NotReady.
func (s *Sandbox) fail(ctx context.Context, cause error, lasting, working []step) {
	ctx, cancel := Aside(ctx)
	defer cancel()
	s.log.Warn("failed to run sandbox", "error", cause)
	err := undo(ctx, s.log, working)
	if err == nil {
		err = undo(ctx, s.log, lasting)
	}
	if err != nil {
		s.log.Error("failed to undo the creation of a sandbox", "error", err)
		s.becomeNotReady()
	}
}

// forget removes the record, which a power cut may bring back until the records are settled.
func (s *Sandbox) forget(context.Context) error {
	rec, err := s.record.get()
	if err != nil {
		rec = s.record.first // it was never written
	}
	if err := s.manager.records.Drop(s.ID); err != nil {
		return err
	}
	s.manager.o.Labels.Release(rec.ProcessLabel)
	s.manager.drop(s.ID)
	return nil
}
