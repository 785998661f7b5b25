package task

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/events"
	"github.com/sunaba-project/sunaba/shim/message"
	"github.com/sunaba-project/sunaba/shim/metrics"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// stepTime bounds a step that is finished once started.
const stepTime = 2 * time.Minute

// finish returns a context for a step that is carried through even if its caller leaves: half a
// start that a dying daemon left would be a running container that is called created.
func finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), stepTime)
}

// taskAPI answers the Task API: it only translates.
type taskAPI struct{ s *Service }

func (t taskAPI) create(ctx context.Context, r *message.CreateTaskRequest) (*message.PidResponse, error) {
	return t.make(ctx, r, false)
}

// make creates a container, whose start follows at once if launch is set.
func (t taskAPI) make(ctx context.Context, r *message.CreateTaskRequest, launch bool) (*message.PidResponse, error) {
	req, err := t.read(r)
	if err != nil {
		return nil, err
	}
	req.launch = launch
	t.s.options.Settled()
	c, err := t.s.add(ctx, req)
	if err != nil {
		return nil, err
	}
	pid := uint32(c.init.engine.Pid())
	t.s.publish(events.Create(r, pid))
	if !c.startMakesInit {
		go t.s.watchInit(c)
	}
	t.s.options.Settled()
	return &message.PidResponse{Pid: pid}, nil
}

// read takes a request over from the wire.
func (t taskAPI) read(r *message.CreateTaskRequest) (createRequest, error) {
	if r.ID == "" || r.Bundle == "" {
		return createRequest{}, fmt.Errorf("create container: id and bundle are needed: %w", errdefs.ErrInvalidArgument)
	}
	options, err := shim.DecodeOptions(r.Options, t.s.options.RuntimeRoot, t.s.options.Namespace)
	if err != nil {
		return createRequest{}, err
	}
	req := createRequest{
		CreateTaskRequest: r, options: options, streams: t.streams(r.ID, r.Terminal, r.Stdin, r.Stdout, r.Stderr),
	}
	req.streams.UID, req.streams.GID = options.IOUID, options.IOGID
	if h := t.s.handoff; h != nil {
		req.streams.InputEnds = func() { t.s.note(h.DropStdin(r.ID), "drop what is kept", r.ID) }
	}
	return req, nil
}

// streams are those of a process as a request names them. id is what a logging program is told.
func (t taskAPI) streams(id string, terminal bool, stdin, stdout, stderr string) stdio.Config {
	return stdio.Config{
		Stdin: stdin, Stdout: stdout, Stderr: stderr, Terminal: terminal,
		HoldStdin: t.s.options.Containerd, Logger: t.s.options.Logger,
		ID: id, Namespace: t.s.options.Namespace, Run: t.s.options.Run,
	}
}

func (t taskAPI) start(ctx context.Context, r *message.ProcessRequest) (*message.PidResponse, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	c, p, err := t.s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	err = p.start(ctx, func(starts bool) error { return c.starting(p, starts) }, func() {
		pid := uint32(p.engine.Pid())
		if p.id == "" {
			t.s.note(c.started(p.startedAt), "record start", r.ID)
			t.s.publish(events.Start(r.ID, pid))
			if c.startMakesInit { // create could not do it
				t.s.note(bundle.WritePid(c.path, int(pid)), "record pid", r.ID)
				go t.s.watchInit(c)
			}
			return
		}
		t.s.note(c.handoff.KeepExec(c.id, p.id, p.engine.Pid()), "record executed process", r.ID)
		t.s.publish(events.ExecStarted(r.ID, p.id, pid))
		go t.s.watchExec(c, p)
	})
	if p != c.init && errdefs.Resolve(err) == errdefs.ErrUnknown && c.endsSoon() {
		return nil, fmt.Errorf("the container is %s: %w", stopped, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, err
	}
	t.s.options.Settled()
	return &message.PidResponse{Pid: p.pid()}, nil
}

func (t taskAPI) delete(ctx context.Context, r *message.ProcessRequest) (*message.DeleteResponse, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	if r.ExecID == "" {
		if err := t.s.table.giveUp(ctx, r.ID); err != nil {
			return nil, err
		}
	}
	c, p, err := t.s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	var exit shim.Exit
	if p.id == "" {
		exit, err = t.s.remove(ctx, c)
	} else {
		exit, err = t.deleteExec(c, p)
	}
	if err != nil {
		return nil, err
	}
	t.s.options.Settled()
	return &message.DeleteResponse{Pid: p.pid(), ExitStatus: exit.Code, ExitedAt: message.At(exit.At)}, nil
}

func (t taskAPI) deleteExec(c *container, p *process) (shim.Exit, error) {
	if st, _ := p.snapshot(); st == stopped {
		p.drain(drainTime)
	}
	err := p.become(deleted, func() error {
		p.streams.Close()
		c.execs.settle(p.id, nil)
		t.s.note(c.handoff.DropExec(c.id, p.id), "forget executed process", c.id)
		return nil
	})
	if err != nil {
		return shim.Exit{}, err
	}
	_, exit := p.snapshot()
	return exit, nil
}

func (t taskAPI) exec(ctx context.Context, r *message.ExecProcessRequest) (*message.Empty, error) {
	if r.ExecID == "" || r.Spec == nil {
		return nil, fmt.Errorf("execute in container %q: exec id and process are needed: %w", r.ID, errdefs.ErrInvalidArgument)
	}
	c, err := t.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	var spec specs.Process
	if err := json.Unmarshal(r.Spec.Value, &spec); err != nil {
		return nil, fmt.Errorf("decode process %q: %w: %w", r.ExecID, err, errdefs.ErrInvalidArgument)
	}
	spec.Terminal = r.Terminal
	names := t.streams(r.ExecID, r.Terminal, r.Stdin, r.Stdout, r.Stderr)
	names.UID, names.GID = c.init.names.UID, c.init.names.GID
	if err := c.exec(ctx, r.ExecID, &spec, names); err != nil {
		return nil, err
	}
	t.s.publish(events.ExecAdded(r.ID, r.ExecID))
	return &message.Empty{}, nil
}

func (t taskAPI) kill(ctx context.Context, r *message.KillRequest) (*message.Empty, error) {
	c, p, err := t.s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	sig := syscall.Signal(r.Signal)
	if err := p.signal(ctx, sig, r.All); err != nil {
		return nil, err
	}
	if p != c.init {
		return &message.Empty{}, nil // in a paused container it dies when that is resumed
	}
	t.s.note(c.told(), "record signal", r.ID)
	if st, _ := p.snapshot(); sig == syscall.SIGKILL && st == paused {
		t.s.note(c.engine.Resume(ctx), "resume a killed container", r.ID) // frozen processes do not die
	}
	return &message.Empty{}, nil
}

func (t taskAPI) wait(ctx context.Context, r *message.ProcessRequest) (*message.WaitResponse, error) {
	_, p, err := t.s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	exit, err := p.wait(ctx)
	if err != nil {
		return nil, err
	}
	return &message.WaitResponse{ExitStatus: exit.Code, ExitedAt: message.At(exit.At)}, nil
}

func (t taskAPI) state(ctx context.Context, r *message.ProcessRequest) (*message.StateResponse, error) {
	// A creation whose caller has died is taken back; who asks after that caller's restart learns
	// how it ended.
	if err := t.s.table.await(ctx, r.ID); err != nil {
		return nil, err
	}
	c, p, err := t.s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	st, exit := p.snapshot()
	if of, _ := c.init.snapshot(); of == paused && st < stopped {
		st = paused // with its container
	}
	resp := &message.StateResponse{
		ID: r.ID, ExecID: p.id, Bundle: c.path, Pid: p.pid(), Status: st.status(),
		Stdin: p.names.Stdin, Stdout: p.names.Stdout, Stderr: p.names.Stderr, Terminal: p.names.Terminal,
	}
	if st >= stopped {
		resp.ExitStatus, resp.ExitedAt = exit.Code, message.At(exit.At)
	}
	return resp, nil
}

func (t taskAPI) pids(ctx context.Context, r *message.ContainerRequest) (*message.PidsResponse, error) {
	c, err := t.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	// An empty list would have a containerd that restarts take the shim for one that leaked, and
	// the exit code with it.
	if st, _ := c.init.snapshot(); st >= stopped {
		return nil, fmt.Errorf("the container is %s: %w", st, errdefs.ErrFailedPrecondition)
	}
	pids, err := c.engine.Pids(ctx)
	if err != nil {
		return nil, err
	}
	execs := make(map[uint32]string)
	for _, p := range c.execs.started() {
		execs[p.pid()] = p.id
	}
	resp := &message.PidsResponse{}
	for _, pid := range pids {
		info := message.ProcessInfo{Pid: uint32(pid)}
		if id, ok := execs[info.Pid]; ok {
			info.Info = &message.Any{TypeURL: "containerd.runc.v1.ProcessDetails", Value: message.Fields(id)}
		}
		resp.Processes = append(resp.Processes, info)
	}
	return resp, nil
}

func (t taskAPI) pause(ctx context.Context, r *message.ContainerRequest) (*message.Empty, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	c, err := t.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	if err = c.init.become(paused, func() error { return c.pause(ctx) }); err == nil {
		t.s.publish(events.Paused(r.ID))
	}
	return &message.Empty{}, err
}

func (t taskAPI) resume(ctx context.Context, r *message.ContainerRequest) (*message.Empty, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	c, err := t.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	if st, _ := c.init.snapshot(); st != paused {
		return nil, fmt.Errorf("the container is %s, not paused: %w", st, errdefs.ErrFailedPrecondition)
	}
	if err = c.init.become(running, func() error { return c.resume(ctx) }); err == nil {
		t.s.publish(events.Resumed(r.ID))
	}
	return &message.Empty{}, err
}

// checkpoint writes a container's state to r.Path. The container may end meanwhile, so nothing is
// locked.
func (t taskAPI) checkpoint(ctx context.Context, r *message.CheckpointTaskRequest) (*message.Empty, error) {
	c, err := t.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	how, err := shim.CheckpointOptions(r.Path, r.Options)
	if err != nil {
		return nil, err
	}
	if st, _ := c.init.snapshot(); st != running && st != paused {
		return nil, fmt.Errorf("the container is %s: %w", st, errdefs.ErrFailedPrecondition)
	}
	engine, ok := c.engine.(shim.Checkpointer)
	if !ok {
		return nil, fmt.Errorf("the container's engine cannot save and resume what runs in it: %w", errdefs.ErrFailedPrecondition)
	}
	if err := engine.Checkpoint(ctx, how); err != nil {
		return nil, err
	}
	t.s.publish(events.Checkpointed(r.ID, how.Images))
	return &message.Empty{}, nil
}

func (t taskAPI) resizePty(ctx context.Context, r *message.ResizePtyRequest) (*message.Empty, error) {
	_, p, err := t.s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if !p.names.Terminal {
		return nil, fmt.Errorf("process %q of container %q has no terminal: %w", r.ExecID, r.ID, errdefs.ErrFailedPrecondition)
	}
	return &message.Empty{}, p.resize(uint16(r.Width), uint16(r.Height))
}

func (t taskAPI) closeIO(ctx context.Context, r *message.CloseIORequest) (*message.Empty, error) {
	_, p, err := t.s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if r.Stdin {
		p.streams.CloseStdin()
		err = p.engine.CloseStdin()
	}
	return &message.Empty{}, err
}

func (t taskAPI) update(ctx context.Context, r *message.UpdateTaskRequest) (*message.Empty, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	c, err := t.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	var res specs.LinuxResources
	if err := json.Unmarshal(cmp.Or(r.Resources, &message.Any{}).Value, &res); err != nil {
		return nil, fmt.Errorf("decode resources of container %q: %w: %w", r.ID, err, errdefs.ErrInvalidArgument)
	}
	return &message.Empty{}, c.engine.Update(ctx, &res)
}

func (t taskAPI) stats(ctx context.Context, r *message.ContainerRequest) (*message.StatsResponse, error) {
	c, err := t.s.table.find(r.ID)
	if err != nil {
		return nil, err
	}
	group, err := c.group()
	if err != nil {
		return nil, fmt.Errorf("container %q: %w: %w", r.ID, err, errdefs.ErrNotFound)
	}
	name, figures, err := metrics.Encode(group)
	if err != nil {
		return nil, err
	}
	t.s.options.Asked()
	return &message.StatsResponse{Stats: &message.Any{TypeURL: name, Value: figures}}, nil
}

func (t taskAPI) connect(ctx context.Context, r *message.ContainerRequest) (*message.ConnectResponse, error) {
	resp := &message.ConnectResponse{ShimPid: uint32(os.Getpid()), Version: "v3"}
	if c, err := t.s.table.find(r.ID); err == nil {
		resp.TaskPid = uint32(c.init.engine.Pid())
	}
	return resp, nil
}

func (t taskAPI) shutdown(_ context.Context, r *message.ShutdownRequest) (*message.Empty, error) {
	t.s.shutdown()
	return &message.Empty{}, nil
}
