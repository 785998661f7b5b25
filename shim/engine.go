// Package shim has the contracts of the process that owns a pod's containers: what it asks of an
// engine that turns bundles into processes, and what a bundle and the Task API's options tell an
// engine. Package task is the service over them.
package shim

import (
	"context"
	"os"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/message"
)

// Bundle is an OCI bundle whose root filesystem, if it has one, is already mounted at Rootfs.
type Bundle struct {
	ID, Namespace string
	Path          string // bundle directory on the host
	Rootfs        string // mounted root (Path/rootfs), "" when the bundle has none (sandbox, wasm artifact)
	Spec          *specs.Spec
	Facts         annotation.Facts // what Spec's annotations tell
	Box           *Box             // for files of the engine that must outlive the shim; nil = nobody would take over
}

// IO is what a process reads and writes. The files belong to the shim, which closes its copies
// once the child holds its own; an engine only hands them on. A nil file means /dev/null.
//
// With Terminal set, the three files are one pty slave of the host and Console is its master,
// for Process.Resize. An engine whose runtime opens the pty itself (OCI: inside the container)
// ignores the four files and implements ConsoleHolder on its Process.
type IO struct {
	Stdin, Stdout, Stderr *os.File
	Terminal              bool
	Console               *os.File
}

// Options is how the caller wants a container to be run.
type Options = message.RuncOptions

// Checkpoint is how the state of a container's processes is to be written down.
type Checkpoint = message.CheckpointOptions

// Engine turns bundles into processes.
//
// Life story: the shim asks its engines in order whether they handle a bundle; the first that does
// creates the container: everything is set up and the init process exists, but the user's program
// has not started. Process.Start lets it run. When init has exited the shim asks for its Exit, and
// Delete releases what is left (cgroup, runtime state). An engine never touches the bundle's root
// mount, log files or exit.json: those are the shim's.
type Engine interface {
	// Name is short and lower case; it is kept in the bundle.
	Name() string
	// Handles says whether this engine runs the bundle. It is cheap: spec, annotations, magic
	// bytes. An error ends the search (a bundle that is this engine's but is not valid).
	Handles(ctx context.Context, b *Bundle) (bool, error)
	// Create makes the container with its init process, not yet started.
	// On error nothing is left behind.
	Create(ctx context.Context, b *Bundle, io IO, o Options) (Container, error)
}

// Launcher is an Engine that makes a container and lets it run in one step, which takes less than
// Create and Start. What Launch returns has no process yet (Pid 0), and its cgroup has a path
// already: Start makes it and lets it run. It is for bundles of whose runtime Facts.OneStep is
// said.
type Launcher interface {
	Launch(ctx context.Context, b *Bundle, io IO, o Options) (Container, error)
}

// Preparer is an Engine that can do a part of the next Create beforehand.
type Preparer interface {
	// Prepare gets ready for a container that is likely to come soon. It is a hint: what it does
	// ends by itself if none comes, and an error changes nothing for one that does.
	Prepare(ctx context.Context, p Preparation) error
	// Vacate ends what Prepare started in this cgroup (an OCI cgroupsPath), which becomes that of
	// another engine's container, or of none. A later Prepare does nothing there.
	Vacate(cgroup string)
	// Unprepare ends what Prepare started for a pod, before that ends. It is idempotent, and a
	// later Prepare for that pod does nothing.
	Unprepare(ctx context.Context, pod string) error
	// Close ends all that Prepare started, for good.
	Close() error
}

// Preparation is what is known of a container before there is a bundle.
type Preparation struct {
	Pod        string                 // its id
	Namespaces []specs.LinuxNamespace // those of the pod by their paths; without one: the container's own
	Cgroup     string                 // the container's, as OCI cgroupsPath, which Prepare may make; "" = not known
	OOMGroup   string                 // the container's memory.oom.group, as far as it can be guessed; "" = none
}

// Container is a created container of an engine.
type Container interface {
	Init() Process
	// Exec prepares a further process; Process.Start makes and starts it.
	// errdefs.ErrNotImplemented with a text when the engine cannot.
	Exec(ctx context.Context, id string, p *specs.Process, io IO) (Process, error)
	// Pids lists the container's processes as host pids.
	Pids(ctx context.Context) ([]int, error)
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Update(ctx context.Context, r *specs.LinuxResources) error
	// Cgroup is spec.Linux.CgroupsPath resolved to a path below the hierarchies' mount points
	// ("/kubepods/pod1/id"), for stats and OOM; "" when the container has none.
	Cgroup() string
	Details() Details
	// Delete releases everything the engine made. It is idempotent and is called after init exited.
	Delete(ctx context.Context) error
}

// Process is one process of a container.
type Process interface {
	// Pid is the host pid, 0 before the process exists.
	Pid() int
	// Start lets the process run. Of a command that is not there it may say ErrInvalidArgument,
	// of one that cannot be executed ErrPermissionDenied.
	Start(ctx context.Context) error
	// Signal sends sig to the process, with all to every process of the container; for one that
	// Exec made, to those that it started. errdefs.ErrNotFound when it is already gone.
	Signal(ctx context.Context, sig syscall.Signal, all bool) error
	// Exited is closed once, after Exit is true.
	Exited() <-chan struct{}
	// Exit is valid after Exited.
	Exit() Exit
	// Resize sets the terminal's size in characters.
	Resize(width, height uint16) error
	// CloseStdin is called after the shim closed its end of the process's stdin, for engines that
	// hold another.
	CloseStdin() error
}

// ConsoleHolder is a Process whose runtime opened the pty itself. Console is the master: valid
// after Create for an init process, after Start for an exec; the shim then owns and closes it.
type ConsoleHolder interface {
	Console() *os.File
}

// Exit is how a process ended.
type Exit = api.Exit

// Details is what callers may ask of a container beyond the Task API.
type Details = api.Details

// PauseName is the name of the engine that runs sandboxes. It executes nothing in them, and a
// sandbox's cgroup may be the shim's too.
const PauseName = "pause"

// CgroupPath is a container's cgroup as a path below the hierarchies' mount points, "" if its
// specification names none.
func CgroupPath(spec *specs.Spec, systemd bool) string {
	if spec.Linux == nil {
		return ""
	}
	return cgroup.Path(spec.Linux.CgroupsPath, systemd)
}
