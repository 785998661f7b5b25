package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Register offers the service on a ttrpc server: the Task API in both versions, whose messages are
// alike on the wire, and what our own callers ask beyond it.
func (s *Service) Register(server *ttrpc.Server) {
	t := taskAPI{s}
	methods := &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"State":      unary(t.state),
		"Create":     unary(t.create),
		"Start":      unary(t.start),
		"Delete":     unary(t.delete),
		"Pids":       unary(t.pids),
		"Pause":      unary(t.pause),
		"Resume":     unary(t.resume),
		"Checkpoint": unary(t.checkpoint),
		"Kill":       unary(t.kill),
		"Exec":       unary(t.exec),
		"ResizePty":  unary(t.resizePty),
		"CloseIO":    unary(t.closeIO),
		"Update":     unary(t.update),
		"Wait":       unary(t.wait),
		"Stats":      unary(t.stats),
		"Connect":    unary(t.connect),
		"Shutdown":   unary(t.shutdown),
	}}
	server.RegisterService(api.TaskService, methods)
	server.RegisterService(api.TaskServiceV2, methods)
	server.RegisterService(api.ExtraService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		api.MethodReopen:    unary(s.reopenLog),
		api.MethodDetails:   unary(s.details),
		api.MethodAttach:    unary(s.attach),
		api.MethodPrepare:   unary(s.prepare),
		api.MethodUnprepare: unary(s.unprepare),
		api.MethodVacate:    unary(s.vacateFor),
		api.MethodLaunch:    unary(t.launch),
		api.MethodHistory:   unary(s.tellHistory),
	}})
}

// unary is a method that takes and gives one message.
func unary[M any, Q interface {
	*M
	proto.Message
}, A proto.Message](call func(context.Context, Q) (A, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		q := Q(new(M))
		if err := unmarshal(q); err != nil {
			return nil, fmt.Errorf("decode request: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		a, err := call(ctx, q)
		if err != nil {
			return nil, api.ToStatus(err)
		}
		return a, nil
	}
}

func (s *Service) reopenLog(ctx context.Context, id *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	c, err := s.container(id.Value)
	if err != nil {
		return nil, err
	}
	if err := c.init.streams.Reopen(); err != nil {
		return nil, err
	}
	return &wrapperspb.StringValue{}, nil
}

func (s *Service) details(ctx context.Context, id *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	c, err := s.container(id.Value)
	if err != nil {
		return nil, err
	}
	d := c.engine.Details()
	c.init.describe(&d)
	d.Execs = c.further()
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(string(text)), nil
}

func (s *Service) attach(ctx context.Context, req *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	var r api.AttachRequest
	if err := json.Unmarshal([]byte(req.Value), &r); err != nil {
		return nil, fmt.Errorf("decode request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	if st, _ := c.init.snapshot(); st != running && st != paused {
		return nil, fmt.Errorf("attach to container %q: it is %s: %w", r.ID, st, errdefs.ErrFailedPrecondition)
	}
	err = c.init.streams.Attach(stdio.Attachment{
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Once: r.Once, Ended: s.options.Settled,
	})
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", r.ID, err)
	}
	return &wrapperspb.StringValue{}, nil
}

// prepare lets the engines get ready for a container that is likely to come soon.
func (s *Service) prepare(ctx context.Context, req *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	var r api.PrepareRequest
	if err := json.Unmarshal([]byte(req.Value), &r); err != nil {
		return nil, fmt.Errorf("decode request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	s.options.Settled()
	p := Preparation{Pod: r.Pod, Cgroup: r.Cgroup, OOMGroup: r.OOMGroup, Namespaces: []specs.LinuxNamespace{
		{Type: specs.MountNamespace}, {Type: specs.PIDNamespace},
		{Type: specs.IPCNamespace, Path: r.IPC}, {Type: specs.UTSNamespace, Path: r.UTS},
	}}
	if r.Net != "" {
		p.Namespaces = append(p.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: r.Net})
	}
	var errs []error
	for _, e := range s.options.Engines {
		if preparer, ok := e.(Preparer); ok {
			errs = append(errs, preparer.Prepare(ctx, p))
		}
	}
	bundle.WarmUp()
	s.options.Settled()
	return &wrapperspb.StringValue{}, errors.Join(errs...)
}

// unprepare ends what prepare started for a pod that ends.
func (s *Service) unprepare(ctx context.Context, pod *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	var errs []error
	for _, e := range s.options.Engines {
		if preparer, ok := e.(Preparer); ok {
			errs = append(errs, preparer.Unprepare(ctx, pod.Value))
		}
	}
	return &wrapperspb.StringValue{}, errors.Join(errs...)
}

// vacateFor is vacate for a container that will not be created.
func (s *Service) vacateFor(_ context.Context, group *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	s.vacate(group.Value)
	return &wrapperspb.StringValue{}, nil
}

// vacate has the engines leave the cgroup of a container that is none of theirs.
func (s *Service) vacate(group string) {
	if group == "" {
		return
	}
	for _, e := range s.options.Engines {
		if preparer, ok := e.(Preparer); ok {
			preparer.Vacate(group)
		}
	}
}

// launch is Create and Start in one call. What could not be started is deleted.
func (t taskAPI) launch(ctx context.Context, r *task.CreateTaskRequest) (*wrapperspb.StringValue, error) {
	req, err := t.read(r)
	if err != nil {
		return nil, err
	}
	req.launch = true
	if _, err := t.make(ctx, r, req); err != nil {
		return nil, err
	}
	begun := time.Now()
	started, err := t.start(ctx, &task.StartRequest{ID: r.ID})
	if err != nil {
		_, cleanup := t.delete(ctx, &task.DeleteRequest{ID: r.ID})
		t.s.note(cleanup, "delete a container that failed to start", r.ID)
		return nil, err
	}
	text, err := json.Marshal(api.Launched{PID: int(started.Pid), Begun: begun})
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(string(text)), nil
}

// typed wraps a message under its bare name, which containerd compares.
func typed(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}, nil
}
