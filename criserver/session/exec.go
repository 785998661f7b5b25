package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

const (
	// maxStream is what ExecSync returns of one stream at most (api.proto: 16 MB); the rest is read
	// and dropped.
	maxStream = 16_000_000
	// maxOutput is what it returns of both: a client does not take a message of 16 MiB or more.
	maxOutput = 16<<20 - 64<<10
	// drainLimit is how long after the command's end its output is waited for: a grandchild may
	// hold the pipe.
	drainLimit = 2 * time.Second
)

// Output is what a command wrote and how it ended.
type Output struct {
	Stdout, Stderr []byte
	Code           int32
}

// CheckCommand says what is wrong with a command to execute.
//
// # Errors
//
// ErrInvalidArgument if it is empty or holds a zero byte, which no program can be given.
func CheckCommand(cmd []string) error {
	if len(cmd) == 0 || strings.Contains(strings.Join(cmd, ""), "\x00") {
		return fmt.Errorf("the command is empty or holds a zero byte: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// ExecSync runs a command in a running container and returns its output. timeout 0 means no
// timeout.
//
// # Errors
//
// context.DeadlineExceeded when the timeout has passed: the command and all it started are killed
// then, but daemons, which have left both their parent and its session. ErrFailedPrecondition if
// the container does not run. A command that ends with a code other than 0 is no error.
func (m *Manager) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (Output, error) {
	r, err := m.containers.Reach(id)
	if err != nil {
		return Output{}, fmt.Errorf("exec: %w", err)
	}
	if err := CheckCommand(cmd); err != nil {
		return Output{}, fmt.Errorf("exec in container %q: %w", r.Record.Name(), err)
	}
	process, err := m.process(r, cmd)
	if err != nil {
		return Output{}, err
	}
	out, err := newExecution(r, syncPrefix).run(ctx, r.Bundle, process, timeout)
	if err != nil {
		return Output{}, fmt.Errorf("exec in container %q: %w", r.Record.Name(), err)
	}
	return out, nil
}

// execution is one command that runs in a container.
type execution struct {
	shim       *client.Client
	id, execID string
}

// The prefixes of commands' ids, by what happens to them when the server dies: see Manager.Adopt.
const (
	syncPrefix   = "sync-"
	streamPrefix = "exec-"
)

func newExecution(r container.Running, prefix string) *execution {
	return &execution{shim: r.Shim, id: r.Record.ID, execID: prefix + shortID()}
}

// shortID is a name for something that lives as long as a request.
func shortID() string {
	var raw [8]byte
	rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
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
	if err := e.prepare(ctx, client.ExecRequest{
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

// prepare lets the shim know the command. It does not end with ctx: what the shim then knows would
// stay there as long as the container.
func (e *execution) prepare(ctx context.Context, r client.ExecRequest) error {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	return e.shim.Exec(ctx, r)
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
	_, _ = e.shim.Delete(ctx, e.id, e.execID) // the rest is removed with the container
}
