// Package session runs commands in running containers and lets clients take part in them: ExecSync,
// Exec and Attach. Package stream below it serves the network protocols in which clients do so, and
// port forwarding.
//
// The bytes of a session pass through FIFOs in the container's bundle, which the shim opens too. A
// session does not outlive its server: Adopt ends what a server that died has left.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/state"
)

// Manager opens sessions in containers.
type Manager struct {
	containers *container.Manager
	log        *slog.Logger
	ctx        context.Context // of commands whose clients have left
	cancel     context.CancelFunc
}

// New returns a manager for the sessions in the containers of another one.
func New(containers *container.Manager, log *slog.Logger) *Manager {
	ctx, cancel := context.WithCancel(context.Background())
	return &Manager{containers: containers, log: log, ctx: ctx, cancel: cancel}
}

// Close ends the waiting for commands whose clients have left. The commands run on.
func (m *Manager) Close() { m.cancel() }

// Running returns the record of a container that runs.
//
// # Errors
//
// ErrNotFound; ErrFailedPrecondition if it does not run.
func (m *Manager) Running(id string) (state.Container, error) {
	r, err := m.containers.Reach(id)
	if err != nil {
		return state.Container{}, fmt.Errorf("open session: %w", err)
	}
	return r.Record, nil
}

// process is the container's own process with another command.
func (m *Manager) process(r container.Running, cmd []string) (*specs.Process, error) {
	data, err := m.containers.Spec(r.Record)
	if err != nil {
		return nil, err
	}
	var s struct {
		Process *specs.Process `json:"process"`
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Process == nil {
		return nil, fmt.Errorf("read specification of container %q: %w", r.Record.Name(), errors.Join(err, errdefs.ErrDataLoss))
	}
	s.Process.Args, s.Process.Terminal, s.Process.ConsoleSize = cmd, false, nil
	return s.Process, nil
}
