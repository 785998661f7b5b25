// Package container runs the containers of pod sandboxes.
//
// # States
//
// Every change of a container's state goes through Container.move, which knows these and no others:
//
//	             made              Start             its process ended
//	Creating ──────────▶ Created ─────────▶ Running ──────────────────▶ Exited
//	   │                    │                  │▲                          ▲
//	   │                    │     shim silent  ▼│ shim answers again       │
//	   │                    │               Unknown ───────────────────────┤
//	   │                    └─ could not be started ───────────────────────┘
//	   └─ not made: nothing is left
//
// Start and Remove, and changes of resources, exclude one another by Container.begin; a stop waits for a start to end.
//
// # Who notices the end
//
// Each running container has one watcher. When its process ends the watcher first makes the status durable (exit code,
// time, reason), then deletes the task from the shim, then tells those who wait. If the shim dies instead, the watcher
// waits until the sandbox has cleaned up after it and takes the exit that the shim wrote beside the bundle, or, if it
// wrote none, ends the container as Unknown with code 255.
package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/selinux"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Options configure New.
type Options struct {
	Sandboxes *sandbox.Manager
	Images    *images.Service
	Modules   Modules // nil = nothing is made ready
	Handlers  *runtimeclass.Table
	Cgroups   *cgroup.Manager
	Host      spec.Host
	Runtime   func(binary string) ociruntime.Report // what is known of an OCI runtime now
	Labels    *selinux.Labels

	Records string // folder of the durable records
	Volumes string // folder of the images' anonymous volumes
	// Checkpoints is the folder in which checkpoints are made and laid out. What a server that died left there goes.
	Checkpoints string
	// CheckpointLimit bounds what a checkpoint is laid out to, in bytes.
	CheckpointLimit int64
	// RestoreImages lets containers begin from images whose annotation says that they were made of a checkpoint: who writes
	// the image then chooses the state of the processes.
	RestoreImages bool
	// CDISpecDirs are the folders of CDI specifications, the later before the earlier ones; none turns CDI devices off.
	CDISpecDirs []string
	// LogLimits bound a container's log, by its pod's handler; "" stands for those that are not named.
	LogLimits map[string]stdio.Limits
	// OptimizeGo says whether the functions of Go's guests are rewritten where neither container nor pod says it.
	OptimizeGo bool
	// Follow is told of every change of a record; see state.Follower. It may be nil.
	Follow state.Follower[state.Container]
	Logger *slog.Logger
}

// Modules makes modules ready for their start, as far as that works. With path "" it compiles nothing.
type Modules interface {
	Ready(ctx context.Context, path, digest string)
}

// Manager holds all containers.
type Manager struct {
	o       Options
	records *state.Store[state.Container]
	names   *state.Names
	paths   facts.Paths
	ctx     context.Context // of the watchers
	cancel  context.CancelFunc

	mu   sync.Mutex
	live map[string]*Container
}

// New loads the records of containers. Nothing is touched before Adopt.
func New(o Options) (*Manager, error) {
	records, err := state.OpenFollowed(o.Records, o.Logger, state.CheckContainer, o.Follow)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Volumes, 0o711); err != nil {
		return nil, fmt.Errorf("create folder of volumes: %w", err)
	}
	if err := errors.Join(space.Empty(o.Checkpoints), os.MkdirAll(o.Checkpoints, 0o700)); err != nil {
		return nil, fmt.Errorf("create folder of checkpoints: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{o: o, records: records, names: state.NewNames(), ctx: ctx, cancel: cancel, live: map[string]*Container{}}
	for _, rec := range records.List() {
		m.live[rec.ID] = newContainer(m, rec.ID, rec.SandboxID)
		o.Labels.Keep(rec.ProcessLabel)
		if rec.Phase == state.Creating {
			continue // removed by Adopt
		}
		sb, err := o.Sandboxes.Get(rec.SandboxID)
		if err == nil && !sb.Unfinished() && !m.names.Hold(name(rec.Config.Value, sb.Config.Value), rec.ID) {
			o.Logger.Warn("two containers have one name", "container", rec.ID)
		}
	}
	return m, nil
}

// Close ends the watching of containers, which go on.
func (m *Manager) Close() { m.cancel() }

// name is what no two containers may share.
func name(config *runtime.ContainerConfig, pod *runtime.PodSandboxConfig) string {
	md, pmd := config.GetMetadata(), pod.GetMetadata()
	return fmt.Sprintf("%s_%s_%s_%s_%d", md.GetName(), pmd.GetName(), pmd.GetNamespace(), pmd.GetUid(), md.GetAttempt())
}

// Get returns the record of a container, by its id or an unambiguous beginning of it. One that is still being made is
// not there yet.
//
// # Errors
//
// ErrNotFound; ErrInvalidArgument if several ids begin so.
func (m *Manager) Get(id string) (state.Container, error) {
	full, err := m.records.Resolve(id)
	if err != nil {
		return state.Container{}, fmt.Errorf("find container: %w", err)
	}
	rec, err := m.records.Get(full)
	if err == nil && rec.Phase == state.Creating {
		err = fmt.Errorf("id %q: %w", id, errdefs.ErrNotFound)
	}
	if err != nil {
		return state.Container{}, fmt.Errorf("find container: %w", err)
	}
	return rec, nil
}

// List returns the records of all containers that are not still being made.
func (m *Manager) List() []state.Container {
	var out []state.Container
	for _, rec := range m.records.List() {
		if rec.Phase != state.Creating {
			out = append(out, rec)
		}
	}
	return out
}

// In returns the containers of one sandbox.
func (m *Manager) In(sandboxID string) []state.Container {
	var out []state.Container
	for _, rec := range m.List() {
		if rec.SandboxID == sandboxID {
			out = append(out, rec)
		}
	}
	return out
}

// Spec returns the bytes of a container's OCI specification, as they are now.
func (m *Manager) Spec(rec state.Container) ([]byte, error) {
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(sb.Dir, rec.ID, configFile))
	if err != nil {
		return nil, fmt.Errorf("read specification of container %q: %w", rec.ID, err)
	}
	return data, nil
}

// find returns a container to work with: its record and living side.
func (m *Manager) find(id string) (state.Container, *Container, error) {
	rec, err := m.Get(id)
	if err != nil {
		return rec, nil, err
	}
	c := m.alive(rec.ID)
	if c == nil {
		return rec, nil, fmt.Errorf("container %q: %w", rec.ID, errdefs.ErrNotFound)
	}
	return rec, c, nil
}

// idempotent is find for requests that an unknown id is no error for: the container is nil then.
func (m *Manager) idempotent(id string) (state.Container, *Container, error) {
	rec, c, err := m.find(id)
	if errdefs.IsNotFound(err) {
		return rec, nil, nil
	}
	return rec, c, err
}

// alive returns the living side of a container, nil if there is none.
func (m *Manager) alive(id string) *Container {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id]
}

func (m *Manager) add(c *Container) {
	m.mu.Lock()
	m.live[c.ID] = c
	m.mu.Unlock()
}

func (m *Manager) drop(id string) {
	m.mu.Lock()
	delete(m.live, id)
	m.mu.Unlock()
}
