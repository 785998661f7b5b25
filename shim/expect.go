package shim

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sunaba-project/sunaba/shim/bundle"
)

// expectTime is how long a container that was made ahead waits to be asked for.
const expectTime = 10 * time.Second

// expectation is a container that was made before anybody asked for it: its root is mounted and its process waits to begin,
// but no call knows it. Create takes it if it asks for just this; else it goes, as if it had never been.
type expectation struct {
	c     *container
	wire  *task.CreateTaskRequest
	spec  []byte // the bundle's specification when it was made
	timer *time.Timer
}

// expect makes a container ahead, if its engine can.
func (t taskAPI) expect(ctx context.Context, r *task.CreateTaskRequest) (*wrapperspb.StringValue, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	req, err := t.read(r)
	if err != nil {
		return nil, err
	}
	if r.Checkpoint != "" {
		return nil, fmt.Errorf("container %q begins from a checkpoint: none of these is made ahead: %w", r.ID, errdefs.ErrNotImplemented)
	}
	req.ahead = true
	t.s.options.Settled()
	err = t.s.expect(ctx, req)
	t.s.options.Settled()
	return &wrapperspb.StringValue{}, err
}

func (s *Service) expect(ctx context.Context, r createRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.reserve(ctx, r.id); err != nil {
		return err
	}
	defer s.settle(r.id, nil)
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.hopes[r.id] = cancel
	}
	s.mu.Unlock()
	if closing {
		return fmt.Errorf("container %q: the shim ends: %w", r.id, errdefs.ErrUnavailable)
	}
	s.discard(ctx, r.id)
	// Read before the bundle is opened: what changes from here on makes the two differ.
	spec, err := bundle.ReadConfig(r.bundle)
	if err != nil {
		return err
	}
	c, err := s.create(ctx, r)
	if err != nil {
		return err
	}
	e := &expectation{c: c, wire: r.wire, spec: spec}
	s.mu.Lock()
	s.expected[r.id] = e
	e.timer = time.AfterFunc(expectTime, func() { s.unexpect(context.Background(), r.id) })
	s.mu.Unlock()
	return nil
}

// asExpected is the container that was made ahead for this request, nil if there is none; one that was made for another goes.
// The caller holds the name.
func (s *Service) asExpected(ctx context.Context, r createRequest) *container {
	s.mu.Lock()
	e := s.expected[r.id]
	s.mu.Unlock()
	if e == nil {
		return nil
	}
	spec, err := bundle.ReadConfig(r.bundle)
	if err != nil || !bytes.Equal(spec, e.spec) || !proto.Equal(r.wire, e.wire) || e.hasEnded() {
		s.discard(ctx, r.id)
		return nil
	}
	s.mu.Lock()
	delete(s.expected, r.id)
	s.mu.Unlock()
	e.timer.Stop()
	return e.c
}

func (e *expectation) hasEnded() bool {
	select {
	case <-e.c.init.engine.Exited():
		return true
	default:
		return false
	}
}

// unexpect takes back what was made ahead under a name, or is being made.
func (s *Service) unexpect(ctx context.Context, id string) {
	s.mu.Lock()
	cancel := s.hopes[id]
	known := cancel != nil || s.expected[id] != nil
	s.mu.Unlock()
	if !known {
		return
	}
	if cancel != nil {
		cancel()
	}
	if err := s.reserve(ctx, id); err != nil {
		return // it was asked for meanwhile
	}
	s.discard(ctx, id)
	s.settle(id, nil)
}

// unexpectAll takes back all that was made ahead.
func (s *Service) unexpectAll(ctx context.Context) {
	s.mu.Lock()
	ids := make([]string, 0, len(s.hopes)+len(s.expected))
	for id := range s.hopes {
		ids = append(ids, id)
	}
	for id := range s.expected {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		s.unexpect(ctx, id)
	}
}

// discard ends a container that was made ahead and removes what there is of it. The caller holds the name.
func (s *Service) discard(ctx context.Context, id string) {
	s.mu.Lock()
	e := s.expected[id]
	delete(s.expected, id)
	s.mu.Unlock()
	if e == nil {
		return
	}
	e.timer.Stop()
	s.takeBack(ctx, e.c)
}

// takeBack ends a container that nobody knows and removes what there is of it.
func (s *Service) takeBack(ctx context.Context, c *container) {
	s.note(c.destroy(), "end a container that nobody knows", c.id)
	s.note(c.release(context.WithoutCancel(ctx)), "remove a container that nobody knows", c.id)
	if c.keeper != nil {
		s.note(c.keeper.Forget(c.init.engine.Pid()), "forget process", c.id)
	}
	s.letGo(c.id)
}
