package client

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/message"
)

// call asks the Task API and gives errors their class back.
func (c *Client) call(ctx context.Context, method string, req, resp any) error {
	return c.ask(ctx, api.TaskService, method, req, resp)
}

// recall is call for what may be asked twice.
func (c *Client) recall(ctx context.Context, method string, req, resp any) error {
	return c.repeat(ctx, api.TaskService, method, req, resp)
}

// tell is ask for our own methods, which take JSON.
func (c *Client) tell(ctx context.Context, method string, request any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	return c.ask(ctx, api.ExtraService, method, &message.Text{Value: string(text)}, &message.Text{})
}

// decoded reads the JSON that one of our own methods has answered.
func decoded[A any](resp *message.Text, what string) (A, error) {
	var a A
	if err := json.Unmarshal([]byte(resp.Value), &a); err != nil {
		return a, fmt.Errorf("decode %s: %w", what, err)
	}
	return a, nil
}

// Create mounts the root, creates the container and returns its init's pid. On error nothing is
// left behind.
func (c *Client) Create(ctx context.Context, r CreateRequest) (int, error) {
	req, err := r.message()
	if err != nil {
		return 0, err
	}
	var resp message.PidResponse
	if err := c.call(ctx, "Create", req, &resp); err != nil {
		return 0, err
	}
	return int(resp.Pid), nil
}

// Launch is Create and Start in one call. On error nothing is left behind.
func (c *Client) Launch(ctx context.Context, r CreateRequest) (Launched, error) {
	req, err := r.message()
	if err != nil {
		return Launched{}, err
	}
	var resp message.Text
	err = c.ask(ctx, api.ExtraService, api.MethodLaunch, req, &resp)
	if err != nil {
		return Launched{}, err
	}
	return decoded[Launched](&resp, fmt.Sprintf("launch of container %q", r.ID))
}

// message is the request in the Task API's words.
func (r CreateRequest) message() (*message.CreateTaskRequest, error) {
	// The Task API has no words for images.
	if err := bundle.WriteImages(r.Bundle, r.Images); err != nil {
		return nil, fmt.Errorf("name images of container %q: %w", r.ID, err)
	}
	return &message.CreateTaskRequest{
		ID: r.ID, Bundle: r.Bundle, Rootfs: r.Rootfs, Terminal: r.Terminal,
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Checkpoint: r.Checkpoint,
		Options: &message.Any{TypeURL: message.RuncOptionsName, Value: message.Marshal(&r.Options)},
	}, nil
}

// Start runs a created process (execID "" = init) and returns its pid.
func (c *Client) Start(ctx context.Context, id, execID string) (int, error) {
	var resp message.PidResponse
	if err := c.call(ctx, "Start", &message.ProcessRequest{ID: id, ExecID: execID}, &resp); err != nil {
		return 0, err
	}
	return int(resp.Pid), nil
}

// Kill signals a process, with all every process of the container. ErrNotFound when it is removed.
func (c *Client) Kill(ctx context.Context, id, execID string, sig syscall.Signal, all bool) error {
	call := c.call
	if sig == syscall.SIGKILL { // any other may be meant to be heard once
		call = c.recall
	}
	return call(ctx, "Kill", &message.KillRequest{ID: id, ExecID: execID, Signal: uint32(sig), All: all}, &message.Empty{})
}

// Wait returns when the process has ended; the exit is then in the bundle's exit.json too.
func (c *Client) Wait(ctx context.Context, id, execID string) (Exit, error) {
	var resp message.WaitResponse
	if err := c.recall(ctx, "Wait", &message.ProcessRequest{ID: id, ExecID: execID}, &resp); err != nil {
		return Exit{}, err
	}
	return Exit{Code: resp.ExitStatus, At: resp.ExitedAt.AsTime()}, nil
}

// Delete releases a process that has ended or never started. Its container is deleted with init,
// and its root is unmounted.
func (c *Client) Delete(ctx context.Context, id, execID string) (Exit, error) {
	var resp message.DeleteResponse
	if err := c.recall(ctx, "Delete", &message.ProcessRequest{ID: id, ExecID: execID}, &resp); err != nil {
		return Exit{}, err
	}
	return Exit{Code: resp.ExitStatus, At: resp.ExitedAt.AsTime()}, nil
}

// Remove kills what runs in a container, and deletes it.
//
// # Errors
//
// ErrNotFound if the shim has no such container; ErrFailedPrecondition if it was started meanwhile.
func (c *Client) Remove(ctx context.Context, id string) error {
	err := c.Kill(ctx, id, "", syscall.SIGKILL, true)
	if err == nil {
		_, err = c.Wait(ctx, id, "")
	}
	// It has ended, or has no process yet.
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) {
		_, err = c.Delete(ctx, id, "")
	}
	return err
}

// State returns what a process is doing.
func (c *Client) State(ctx context.Context, id, execID string) (State, error) {
	var resp message.StateResponse
	if err := c.recall(ctx, "State", &message.ProcessRequest{ID: id, ExecID: execID}, &resp); err != nil {
		return State{}, err
	}
	s := State{PID: int(resp.Pid), Terminal: resp.Terminal}
	if uint32(resp.Status) < uint32(len(message.Statuses)) {
		s.Status = Status(message.Statuses[resp.Status])
	}
	if s.Status == StatusStopped {
		s.Exit = Exit{Code: resp.ExitStatus, At: resp.ExitedAt.AsTime()}
	}
	return s, nil
}

// Exec prepares a further process in a running container; Start starts it.
func (c *Client) Exec(ctx context.Context, r ExecRequest) error {
	spec, err := jsonAny(api.TypeProcess, r.Process)
	if err != nil {
		return fmt.Errorf("encode process %q: %w", r.ExecID, err)
	}
	return c.call(ctx, "Exec", &message.ExecProcessRequest{
		ID: r.ID, ExecID: r.ExecID, Terminal: r.Terminal,
		Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Spec: spec,
	}, &message.Empty{})
}

// Update changes a container's resources.
func (c *Client) Update(ctx context.Context, id string, res *specs.LinuxResources) error {
	value, err := jsonAny(api.TypeResources, res)
	if err != nil {
		return fmt.Errorf("encode resources of container %q: %w", id, err)
	}
	return c.recall(ctx, "Update", &message.UpdateTaskRequest{ID: id, Resources: value}, &message.Empty{})
}

// Pause freezes every process of a container.
func (c *Client) Pause(ctx context.Context, id string) error {
	return c.call(ctx, "Pause", &message.ContainerRequest{ID: id}, &message.Empty{})
}

// Resume thaws a paused container.
func (c *Client) Resume(ctx context.Context, id string) error {
	return c.call(ctx, "Resume", &message.ContainerRequest{ID: id}, &message.Empty{})
}

// Checkpoint writes the state of a container's processes into the folder images, and logs into the
// folder work. It is running or paused, and stays so.
//
// # Errors
//
// ErrFailedPrecondition with what CRIU said if it cannot be done; context.DeadlineExceeded.
func (c *Client) Checkpoint(ctx context.Context, id, images, work string) error {
	options := message.Marshal(&message.CheckpointOptions{Images: images, Work: work, FileLocks: true})
	return c.call(ctx, "Checkpoint", &message.CheckpointTaskRequest{
		ID: id, Path: images, Options: &message.Any{TypeURL: message.CheckpointOptionsName, Value: options},
	}, &message.Empty{})
}

// Pids lists a container's processes as host pids.
func (c *Client) Pids(ctx context.Context, id string) ([]int, error) {
	var resp message.PidsResponse
	if err := c.recall(ctx, "Pids", &message.ContainerRequest{ID: id}, &resp); err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(resp.Processes))
	for _, p := range resp.Processes {
		pids = append(pids, int(p.Pid))
	}
	return pids, nil
}

// ResizePty sets a terminal's size in characters.
func (c *Client) ResizePty(ctx context.Context, id, execID string, width, height uint32) error {
	return c.recall(ctx, "ResizePty", &message.ResizePtyRequest{ID: id, ExecID: execID, Width: width, Height: height}, &message.Empty{})
}

// CloseIO ends a process's stdin after what was written to it so far has been passed on.
func (c *Client) CloseIO(ctx context.Context, id, execID string) error {
	return c.call(ctx, "CloseIO", &message.CloseIORequest{ID: id, ExecID: execID, Stdin: true}, &message.Empty{})
}

// ReopenLog lets the shim open the container's cri:// log path anew, after it was rotated.
// ErrFailedPrecondition when the container has ended or has no log file; no file is made then.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	return c.repeat(ctx, api.ExtraService, api.MethodReopen, &message.Text{Value: id}, &message.Text{})
}

// Details returns what the Task API has no words for.
func (c *Client) Details(ctx context.Context, id string) (Details, error) {
	var resp message.Text
	if err := c.repeat(ctx, api.ExtraService, api.MethodDetails, &message.Text{Value: id}, &resp); err != nil {
		return Details{}, err
	}
	return decoded[Details](&resp, fmt.Sprintf("details of container %q", id))
}

// History returns what has happened to the shims that the supervisor has started.
// ErrFailedPrecondition for a shim without a supervisor.
func (c *Client) History(ctx context.Context) (History, error) {
	var resp message.Text
	if err := c.repeat(ctx, api.ExtraService, api.MethodHistory, &message.Text{}, &resp); err != nil {
		return History{}, err
	}
	return decoded[History](&resp, "history of shim")
}

// Attach lets the caller take part in the streams of a container's init process, which must have
// been created with attachable ones. It is let go when it closes its ends, or is too slow: an
// output ends then, and with the process. A stream that the process does not have has no other end.
// ErrFailedPrecondition if the container does not run.
func (c *Client) Attach(ctx context.Context, r AttachRequest) error {
	return c.tell(ctx, api.MethodAttach, r)
}

// Prepare tells the shim that a container which a WebAssembly guest runs in is likely to be created
// soon, so that it can start with what does not depend on the container. It is a hint: nothing has
// to be undone except the cgroup, with the pod.
func (c *Client) Prepare(ctx context.Context, r PrepareRequest) error {
	return c.tell(ctx, api.MethodPrepare, r)
}

// Unprepare tells a shim of several pods that one of them ends: what Prepare started for it has
// ended when Unprepare returns, and later requests for it do nothing. A shim of one pod ends all of
// it by itself.
func (c *Client) Unprepare(ctx context.Context, pod string) error {
	return c.repeat(ctx, api.ExtraService, api.MethodUnprepare, &message.Text{Value: pod}, &message.Text{})
}

// Vacate tells a shim that no container of a guest will be created in this cgroup (an OCI
// cgroupsPath): what Prepare started there has ended when Vacate returns.
func (c *Client) Vacate(ctx context.Context, cgroup string) error {
	return c.repeat(ctx, api.ExtraService, api.MethodVacate, &message.Text{Value: cgroup}, &message.Text{})
}

// Shutdown ends the shim if it has no containers left; otherwise it does nothing.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, "Shutdown", &message.ShutdownRequest{}, &message.Empty{})
}

func jsonAny(typeURL string, v any) (*message.Any, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &message.Any{TypeURL: typeURL, Value: value}, nil
}
