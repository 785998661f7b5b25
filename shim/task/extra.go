package task

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/message"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// extraAPI answers what our own callers ask beyond the Task API. Its messages are texts, mostly
// JSON.
type extraAPI struct{ s *Service }

func (e extraAPI) reopenLog(_ context.Context, id *message.Text) (*message.Text, error) {
	c, err := e.s.table.find(id.Value)
	if err != nil {
		return nil, err
	}
	return &message.Text{}, c.init.streams.Reopen()
}

func (e extraAPI) details(_ context.Context, id *message.Text) (*message.Text, error) {
	c, err := e.s.table.find(id.Value)
	if err != nil {
		return nil, err
	}
	d := c.engine.Details()
	c.init.describe(&d)
	d.Execs = c.execs.ids()
	return encoded(d)
}

func (e extraAPI) attach(_ context.Context, req *message.Text) (*message.Text, error) {
	var r api.AttachRequest
	if err := decode(req, &r); err != nil {
		return nil, err
	}
	c, err := e.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	if st, _ := c.init.snapshot(); st != running && st != paused {
		return nil, fmt.Errorf("the container is %s: %w", st, errdefs.ErrFailedPrecondition)
	}
	err = c.init.streams.Attach(stdio.Attachment{
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Once: r.Once, Ended: e.s.options.Settled,
	})
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", r.ID, err)
	}
	return &message.Text{}, nil
}

// prepare lets the engines get ready for a container that is likely to come soon.
func (e extraAPI) prepare(ctx context.Context, req *message.Text) (*message.Text, error) {
	var r api.PrepareRequest
	if err := decode(req, &r); err != nil {
		return nil, err
	}
	e.s.options.Settled()
	p := shim.Preparation{Pod: r.Pod, Cgroup: r.Cgroup, OOMGroup: r.OOMGroup, Namespaces: []specs.LinuxNamespace{
		{Type: specs.MountNamespace}, {Type: specs.PIDNamespace},
		{Type: specs.IPCNamespace, Path: r.IPC}, {Type: specs.UTSNamespace, Path: r.UTS},
	}}
	if r.Net != "" {
		p.Namespaces = append(p.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: r.Net})
	}
	err := e.s.engines.each(func(engine shim.Preparer) error { return engine.Prepare(ctx, p) })
	bundle.WarmUp()
	e.s.options.Settled()
	return &message.Text{}, err
}

// unprepare ends what prepare started for a pod that ends.
func (e extraAPI) unprepare(ctx context.Context, pod *message.Text) (*message.Text, error) {
	return &message.Text{}, e.s.engines.each(func(engine shim.Preparer) error { return engine.Unprepare(ctx, pod.Value) })
}

// vacate has the engines leave the cgroup of a container that will not be created.
func (e extraAPI) vacate(_ context.Context, cgroup *message.Text) (*message.Text, error) {
	e.s.engines.vacate(cgroup.Value)
	return &message.Text{}, nil
}

// history does not change while the service answers.
func (e extraAPI) history(context.Context, *message.Text) (*message.Text, error) {
	if e.s.handoff == nil {
		return nil, fmt.Errorf("shim has no history: it has no supervisor: %w", errdefs.ErrFailedPrecondition)
	}
	return encoded(e.s.history)
}

// launch is Create and Start in one call. What fails to start is deleted.
func (t taskAPI) launch(ctx context.Context, r *message.CreateTaskRequest) (*message.Text, error) {
	if _, err := t.make(ctx, r, true); err != nil {
		return nil, err
	}
	at := time.Now()
	started, err := t.start(ctx, &message.ProcessRequest{ID: r.ID})
	if err != nil {
		_, cleanup := t.delete(ctx, &message.ProcessRequest{ID: r.ID})
		t.s.note(cleanup, "delete a container that failed to start", r.ID)
		return nil, err
	}
	return encoded(api.Launched{PID: int(started.Pid), StartedAt: at})
}

func decode(req *message.Text, to any) error {
	if err := json.Unmarshal([]byte(req.Value), to); err != nil {
		return fmt.Errorf("decode request: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return nil
}

func encoded(answer any) (*message.Text, error) {
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &message.Text{Value: string(data)}, nil
}
