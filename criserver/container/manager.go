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
//	   │                    └─ failed to start ────────────────────────────┘
//	   └─ not made: nothing is left
//
// Start and Remove, and changes of resources, exclude one another by Container.claim; stops and
// removals wait for it.
//
// # Exit
//
// Each running container has one watcher. When the process exits, the watcher makes the status
// durable (exit code, time, reason), then deletes the task from the shim, then tells the waiters.
// If the shim dies instead, the watcher waits until the sandbox has cleaned up, and takes the exit
// that the shim wrote beside the bundle. Without one the container ends as Unknown with code 255.
package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/container/build"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/selinux"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Options configure New.
type Options struct {
	Sandboxes *sandbox.Manager
	Images    *images.Service
	Modules   build.Modules // nil = nothing is made ready
	Handlers  *runtimeclass.Table
	Cgroups   *cgroup.Manager
	Host      spec.Host
	Runtime   func(binary string) ociruntime.Report // what is known of an OCI runtime now
	Labels    *selinux.Labels

	Records string // folder of the durable records
	Volumes string // folder of the images' anonymous volumes
	// CDISpecDirs are the folders of CDI specifications, the later before the earlier ones; none
	// turns CDI devices off.
	CDISpecDirs []string
	// LogLimits bound a container's log, by its pod's handler; "" stands for those that are not
	// named.
	LogLimits map[string]stdio.Limits
	// OptimizeGo says whether the functions of Go's guests are rewritten where neither container
	// nor pod says it.
	OptimizeGo bool
	// Follow is told of every change of a record; see state.Follower. It may be nil.
	Follow state.Follower[state.Container]
	// Started is told of each start of a container and whether it failed; it may be nil.
	Started func(handler string, took time.Duration, err error)
	Logger  *slog.Logger
}

// Manager holds all containers.
type Manager struct {
	*index
	o       Options
	names   *state.Names
	volumes volumes
	maker   *build.Maker
	watcher watcher
	cancel  context.CancelFunc
}

// New loads the records of containers. Nothing is touched before Adopt.
func New(o Options) (*Manager, error) {
	records, err := state.Open(o.Records, o.Logger, state.CheckContainer, o.Follow)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Volumes, 0o711); err != nil {
		return nil, fmt.Errorf("create folder of volumes: %w", err)
	}
	maker := build.New(build.Options{
		Images: o.Images, Modules: o.Modules, Handlers: o.Handlers, Host: o.Host, Runtime: o.Runtime, Labels: o.Labels,
		CDISpecDirs: o.CDISpecDirs, LogLimits: o.LogLimits, OptimizeGo: o.OptimizeGo,
	})
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{
		index: newIndex(records), o: o, names: state.NewNames(), volumes: volumes(o.Volumes), maker: maker,
		watcher: watcher{ctx: ctx}, cancel: cancel,
	}
	for _, rec := range records.List() {
		m.add(newContainer(records, rec, o.Logger))
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

// Close ends the watching of containers, which continue.
func (m *Manager) Close() { m.cancel() }

// name is what no two containers may share.
func name(config *runtime.ContainerConfig, pod *runtime.PodSandboxConfig) string {
	md, pmd := config.GetMetadata(), pod.GetMetadata()
	return fmt.Sprintf("%s_%s_%s_%s_%d", md.GetName(), pmd.GetName(), pmd.GetNamespace(), pmd.GetUid(), md.GetAttempt())
}

// Hold takes the right to change a container for one request, which must find it in one of the
// given states, until end is called. doing names the request.
//
// # Errors
//
// ErrNotFound; ErrFailedPrecondition if another request changes it, or the state is another.
func (m *Manager) Hold(id, doing string, in ...state.Phase) (rec state.Container, end func(), err error) {
	_, c, err := m.find(id)
	if err != nil {
		return rec, nil, err
	}
	return c.claim(doing, in...)
}

// Spec returns the bytes of a container's OCI specification, as they are now.
func (m *Manager) Spec(rec state.Container) ([]byte, error) {
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return nil, err
	}
	data, err := readSpec(sb, rec.ID)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", rec.Name(), err)
	}
	return data, nil
}

func readSpec(sb *sandbox.Sandbox, id string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(sb.Dir, id, build.ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("its files are missing, remove it: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, fmt.Errorf("read specification: %w", err)
	}
	return data, nil
}

// volumes is the folder in which each container has one of its own.
type volumes string

// of is the folder of a container's anonymous volumes.
func (v volumes) of(id string) string { return filepath.Join(string(v), id) }

// state is where a container that starts from a checkpoint keeps the state of its processes until
// it is started.
func (v volumes) state(id string) string { return filepath.Join(v.of(id), "checkpoint") }

// Running is a running container, and the shim to ask about it.
type Running struct {
	Record state.Container
	Bundle string // its folder
	Shim   *client.Client
	Ended  <-chan struct{} // closed once the container's end is on record
}

// Reach finds a running container.
//
// # Errors
//
// ErrNotFound; ErrFailedPrecondition if it does not run or its shim has exited.
func (m *Manager) Reach(id string) (Running, error) {
	rec, c, err := m.find(id)
	if err != nil {
		return Running{}, err
	}
	if rec.Phase != state.Running {
		return Running{}, fmt.Errorf("container %q is %s: %w", rec.Name(), rec.Phase, errdefs.ErrFailedPrecondition)
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return Running{}, err
	}
	shim := sb.Shim()
	if shim == nil {
		return Running{}, fmt.Errorf("container %q: its sandbox is not ready: %w", rec.Name(), errdefs.ErrFailedPrecondition)
	}
	return Running{Record: rec, Bundle: filepath.Join(sb.Dir, rec.ID), Shim: shim, Ended: c.ended}, nil
}
