package message

import (
	"cmp"
	"time"

	"github.com/sunaba-project/sunaba/host/mount"
)

// Any is google.protobuf.Any.
type Any struct {
	TypeURL string
	Value   []byte
}

// Timestamp is google.protobuf.Timestamp.
type Timestamp struct {
	Seconds int64
	Nanos   int32
}

// At is a time, nil for the zero time.
func At(t time.Time) *Timestamp {
	if t.IsZero() {
		return nil
	}
	return &Timestamp{t.Unix(), int32(t.Nanosecond())}
}

// AsTime is the time; as with protobuf's own type, nil is the start of 1970.
func (t *Timestamp) AsTime() time.Time {
	at := cmp.Or(t, &Timestamp{})
	return time.Unix(at.Seconds, int64(at.Nanos)).UTC()
}

// Empty is google.protobuf.Empty.
type Empty struct{}

// Text is google.protobuf.StringValue.
type Text struct{ Value string }

// Entry is one of a map of strings.
type Entry struct{ Key, Value string }

// ContainerRequest is what Pids, Pause, Resume, Stats and Connect of the Task API take.
type ContainerRequest struct{ ID string }

// ProcessRequest is what State, Start, Delete and Wait take. ExecID "" is the container's init.
type ProcessRequest struct{ ID, ExecID string }

// CreateTaskRequest asks for a container.
type CreateTaskRequest struct {
	ID, Bundle                   string
	Rootfs                       []mount.Mount
	Terminal                     bool
	Stdin, Stdout, Stderr        string
	Checkpoint, ParentCheckpoint string
	Options                      *Any
}

// ExecProcessRequest asks for a further process in a container.
type ExecProcessRequest struct {
	ID, ExecID            string
	Terminal              bool
	Stdin, Stdout, Stderr string
	Spec                  *Any
}

// ResizePtyRequest sets the size of a terminal.
type ResizePtyRequest struct {
	ID, ExecID    string
	Width, Height uint32
}

// KillRequest signals a process, with All every one of the container.
type KillRequest struct {
	ID, ExecID string
	Signal     uint32
	All        bool
}

// CloseIORequest ends the input of a process.
type CloseIORequest struct {
	ID, ExecID string
	Stdin      bool
}

// CheckpointTaskRequest asks for the state of a container to be written.
type CheckpointTaskRequest struct {
	ID, Path string
	Options  *Any
}

// UpdateTaskRequest changes the resources of a container.
type UpdateTaskRequest struct {
	ID          string
	Resources   *Any
	Annotations []Entry
}

// ShutdownRequest ends a shim without containers.
type ShutdownRequest struct {
	ID  string
	Now bool
}

// PidResponse is what Create and Start answer.
type PidResponse struct{ Pid uint32 }

// DeleteResponse says how a process had ended.
type DeleteResponse struct {
	Pid, ExitStatus uint32
	ExitedAt        *Timestamp
}

// WaitResponse says how a process has ended.
type WaitResponse struct {
	ExitStatus uint32
	ExitedAt   *Timestamp
}

// Statuses are the names of containerd.v1.types.Status by their numbers.
var Statuses = []string{"unknown", "created", "running", "stopped", "paused", "pausing"}

// StateResponse says what a process is doing.
type StateResponse struct {
	ID, Bundle            string
	Pid                   uint32
	Status                int32 // see Statuses
	Stdin, Stdout, Stderr string
	Terminal              bool
	ExitStatus            uint32
	ExitedAt              *Timestamp
	ExecID                string
}

// PidsResponse lists the processes of a container.
type PidsResponse struct{ Processes []ProcessInfo }

// ProcessInfo is one of them.
type ProcessInfo struct {
	Pid  uint32
	Info *Any
}

// StatsResponse has a container's metrics.
type StatsResponse struct{ Stats *Any }

// ConnectResponse says who answers.
type ConnectResponse struct {
	ShimPid, TaskPid uint32
	Version          string
}

// BootstrapParams is what containerd 2.3 and later give a shim that is started.
type BootstrapParams struct {
	InstanceID, Namespace                         string
	LogLevel                                      int32 // below 0 for more than what is usual
	ContainerdVersion                             string
	ContainerdTTRPCAddress, ContainerdGRPCAddress string
	ContainerdBinary                              string
	Extensions                                    []Extension
	SocketDir                                     string
}

// Extension is an extension of BootstrapParams.
type Extension struct{ Value *Any }
