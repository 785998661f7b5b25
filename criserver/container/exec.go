package container

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

const (
	// maxStream is what ExecSync returns of one stream at most (api.proto: 16 MB); the rest is read and dropped.
	maxStream = 16_000_000
	// maxOutput is what it returns of both: a client does not take a message of 16 MiB or more.
	maxOutput = 16<<20 - 64<<10
	// drainLimit is how long after the command's end its output is waited for: a grandchild may hold the pipe.
	drainLimit = 2 * time.Second
)

// Output is what a command wrote and how it ended.
type Output struct {
	Stdout, Stderr []byte
	Code           int32
}

// ExecSync runs a command in a running container and returns its output. timeout 0 is none.
//
// # Errors
//
// context.DeadlineExceeded when the timeout has passed: the command and all it started are killed then, but daemons, which
// have left both their parent and its session.
// ErrFailedPrecondition if the container does not run. A command that ends with a code other than 0 is no error.
func (m *Manager) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (Output, error) {
	if len(cmd) == 0 {
		return Output{}, fmt.Errorf("exec in container %q: the command is empty: %w", id, errdefs.ErrInvalidArgument)
	}
	r, err := m.reach(id)
	if err != nil {
		return Output{}, fmt.Errorf("exec: %w", err)
	}
	process, err := m.execProcess(r.rec, cmd)
	if err != nil {
		return Output{}, err
	}
	e, err := newExecution(r, syncPrefix)
	if err != nil {
		return Output{}, err
	}
	out, err := e.run(ctx, r.dir(), process, timeout)
	if err != nil {
		return Output{}, fmt.Errorf("exec in container %q: %w", r.rec.ID, err)
	}
	return out, nil
}

// reached is a running container and the shim to ask about it.
type reached struct {
	rec     state.Container
	living  *Container
	sandbox *sandbox.Sandbox
	shim    *client.Client
}

// reach finds a running container.
//
// # Errors
//
// ErrNotFound; ErrFailedPrecondition if it does not run or its shim is gone.
func (m *Manager) reach(id string) (reached, error) {
	rec, c, err := m.find(id)
	if err != nil {
		return reached{}, err
	}
	if rec.Phase != state.Running {
		return reached{}, fmt.Errorf("container %q is %s: %w", rec.ID, rec.Phase, errdefs.ErrFailedPrecondition)
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return reached{}, err
	}
	shim := sb.Shim()
	if shim == nil {
		return reached{}, fmt.Errorf("container %q: its sandbox is not ready: %w", rec.ID, errdefs.ErrFailedPrecondition)
	}
	return reached{rec: rec, living: c, sandbox: sb, shim: shim}, nil
}

// dir is the container's bundle, where FIFOs to the shim are made.
func (r reached) dir() string { return filepath.Join(r.sandbox.Dir, r.rec.ID) }

// execProcess is the container's own process with another command.
func (m *Manager) execProcess(rec state.Container, cmd []string) (*specs.Process, error) {
	data, err := m.Spec(rec)
	if err != nil {
		return nil, err
	}
	var s struct {
		Process *specs.Process `json:"process"`
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Process == nil {
		return nil, fmt.Errorf("read specification of container %q: %w", rec.ID, errors.Join(err, errdefs.ErrDataLoss))
	}
	s.Process.Args, s.Process.Terminal, s.Process.ConsoleSize = cmd, false, nil
	return s.Process, nil
}

// execution is one command that runs in a container.
type execution struct {
	shim       *client.Client
	id, execID string
}

// The ids of commands begin so, by what becomes of them when the server dies: see Manager.dropSessions.
const (
	syncPrefix   = "sync-"
	streamPrefix = "exec-"
)

func newExecution(r reached, prefix string) (*execution, error) {
	id, err := shortID()
	if err != nil {
		return nil, err
	}
	return &execution{shim: r.shim, id: r.rec.ID, execID: prefix + id}, nil
}

// shortID is a name for something that lives as long as a request.
func shortID() (string, error) {
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("make id: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}

func (e *execution) run(ctx context.Context, dir string, process *specs.Process, timeout time.Duration) (Output, error) {
	budget := &atomic.Int64{}
	budget.Store(maxOutput)
	stdout, err := newStream(filepath.Join(dir, e.execID+"-stdout"), budget)
	if err != nil {
		return Output{}, err
	}
	defer stdout.remove()
	stderr, err := newStream(filepath.Join(dir, e.execID+"-stderr"), budget)
	if err != nil {
		return Output{}, err
	}
	defer stderr.remove()
	if err := e.shim.Exec(ctx, client.ExecRequest{
		ID: e.id, ExecID: e.execID, Process: process, Stdout: stdio.Loose + stdout.path, Stderr: stdio.Loose + stderr.path,
	}); err != nil {
		return Output{}, err
	}
	stdout.taken()
	stderr.taken()
	defer e.drop(ctx)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
		defer cancel()
	}
	if _, err := e.shim.Start(ctx, e.id, e.execID); err != nil {
		return Output{}, e.killed(ctx, err, timeout)
	}
	exit, err := e.shim.Wait(ctx, e.id, e.execID)
	if err != nil {
		return Output{}, e.killed(ctx, err, timeout)
	}
	deadline := time.Now().Add(drainLimit)
	return Output{Stdout: stdout.drain(deadline), Stderr: stderr.drain(deadline), Code: int32(exit.Code)}, nil
}

var errTimeout = errors.New("timeout")

// killed says why a command was not waited for to its end; drop then kills it.
func (e *execution) killed(ctx context.Context, err error, timeout time.Duration) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("command timed out after %s: %w", timeout, context.DeadlineExceeded)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return e.shim.ExplainMissing(err)
}

// drop removes the command from the shim; if it still runs, it is killed with all it started.
func (e *execution) drop(ctx context.Context) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	if _, err := e.shim.Delete(ctx, e.id, e.execID); err == nil || errdefs.IsNotFound(err) {
		return
	}
	if err := e.shim.Kill(ctx, e.id, e.execID, syscall.SIGKILL, true); err == nil {
		_, _ = e.shim.Wait(ctx, e.id, e.execID)
	}
	_, _ = e.shim.Delete(ctx, e.id, e.execID) // what is left goes with the container
}

// stream is one output of a command, kept as far as the limits allow.
type stream struct {
	*fifo
	done   chan struct{}
	budget *atomic.Int64 // shared by both streams

	mu   sync.Mutex
	data []byte
}

func newStream(path string, budget *atomic.Int64) (*stream, error) {
	f, err := newFIFO(path, false)
	if err != nil {
		return nil, err
	}
	s := &stream{fifo: f, done: make(chan struct{}), budget: budget}
	go func() {
		defer close(s.done)
		_, _ = io.Copy(s, s.file) // ends with the last writer, or when drain has waited long enough
	}()
	return s, nil
}

// Write keeps what the limits allow and takes the rest without keeping it.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := min(len(p), maxStream-len(s.data))
	if left := s.budget.Add(-int64(keep)); left < 0 {
		keep = max(0, keep+int(left))
		s.budget.Store(0)
	}
	s.data = append(s.data, p[:keep]...)
	return len(p), nil
}

// drain returns what was written, waiting for the end of it until the deadline.
func (s *stream) drain(deadline time.Time) []byte {
	_ = s.file.SetReadDeadline(deadline)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}
