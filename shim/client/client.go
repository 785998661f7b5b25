// Package client is the caller's side of a shim: start one, reach it again, ask it, and clean up
// what a dead one left behind. It is the only way the CRI server talks to shims.
package client

import (
	"path/filepath"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/message"
)

// Names of the files in a shim's working directory.
const (
	SocketName = "shim.sock"
	PidName    = "shim.pid"
	LogName    = "shim.log"
)

// StartOptions says which shim to start and where.
type StartOptions struct {
	Binary    string // shim binary
	Namespace string // "k8s.io"
	ID        string // sandbox id
	// Dir is the shim's working directory. The listening socket Dir/shim.sock is made here and
	// inherited by the shim as fd 3; Dir/shim.pid and Dir/shim.log lie beside it.
	// The path may be longer than a socket address can hold.
	Dir       string
	WasmCache string // compiled module cache; "" = the shim's default
	Debug     bool
	// Supervised has the shim started by a supervisor, which outlives it, starts a successor when it
	// dies, and hands that its containers. ID is not used: such a shim is for any number of pods. The
	// process that is started, placed and named in Dir/shim.pid is the supervisor. The pid of the shim
	// changes with each successor. As long as the supervisor lives, the socket refuses nobody.
	Supervised bool
	// Succeeded, unless nil, is called with the pid of each successor once it answers.
	Succeeded func(pid int)
	// Born, if given, is called right before the process is started, on the thread that does it and
	// ends thereafter: what it makes of the thread and of attr is the process's by birth. release,
	// unless nil, is called once that is there.
	Born func(attr *syscall.SysProcAttr) (release func(), err error)
	// Place, if given, is called right after the process exists: move it into its cgroup.
	Place func(pid int) error
}

// Client asks one shim. It is safe for concurrent use.
//
// The connection to a supervised shim is made again when the shim has died and has a successor.
// Calls wait for that. A call that was in progress is ErrUnavailable if it must not be made twice
// (Launch, Create, Start, Exec, a signal other than SIGKILL): State then says what has happened to
// it.
type Client struct{ Connection }

// RuntimeOptions is how an OCI runtime is run; wasm guests ignore it.
type RuntimeOptions = message.RuncOptions

// CreateRequest asks for a container. Stdin, Stdout and Stderr: "" discards, a path is a FIFO,
// cri:///path/0.log is a log file in CRI format that the shim writes itself; stdio.Loose and
// stdio.Attachable are what else there is.
type CreateRequest struct {
	ID     string
	Bundle string
	Rootfs []mount.Mount
	// Images are shown, as long as the container lasts, where ImagePath says.
	Images                []Image
	Stdin, Stdout, Stderr string
	Terminal              bool
	Options               RuntimeOptions
	// Checkpoint is the folder of the state from which Start makes the processes, "" to run the
	// program anew.
	Checkpoint string
}

// Image is an image that a container mounts as a volume.
type Image = bundle.Image

// ImagePath is where the shim shows an image of a container, on the host.
func ImagePath(bundleDir, name string) string {
	return filepath.Join(bundleDir, bundle.ImagesDir, name)
}

// ExecRequest asks for a further process in a container. Streams as in CreateRequest.
type ExecRequest struct {
	ID, ExecID            string
	Process               *specs.Process
	Stdin, Stdout, Stderr string
	Terminal              bool
}

// AttachRequest asks to take part in the streams of a container's init process.
type AttachRequest = api.AttachRequest

// Launched is a container that was created and started.
type Launched = api.Launched

// PrepareRequest names the namespaces of a pod that its next container will join.
type PrepareRequest = api.PrepareRequest

// Exit is how a process ended. Message and OOMKilled are known from ReadExit and Details only,
// not from Wait and Delete, whose answers are containerd's.
type Exit = api.Exit

// Details is what a shim says of a container beyond the Task API.
type Details = api.Details

// History is what has happened to the shims that a supervisor has started.
type History = api.History

// Status of a process in the Task API.
type Status string

// The states of a process, as the Task API names them.
const (
	StatusCreated Status = "created"
	StatusRunning Status = "running"
	StatusStopped Status = "stopped"
	StatusPaused  Status = "paused"
)

// State of one process. Exit is meaningful when Status is StatusStopped.
type State struct {
	PID      int
	Status   Status
	Exit     Exit
	Terminal bool
}
