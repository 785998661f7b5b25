// Package api is what travels between a shim and its caller beside containerd's Task API:
// values of the extra service, its names, and the error classes in both directions.
package api

import (
	"time"
)

// Names of the extra service, which a shim serves on the same ttrpc socket as the Task API.
// Requests and answers are google.protobuf.StringValue: a container id in (Attach and Prepare:
// their requests as JSON), JSON out.
const (
	ExtraService    = "sunaba.shim.v1.Extra"
	MethodReopen    = "ReopenLog"
	MethodDetails   = "Details"
	MethodAttach    = "Attach"
	MethodPrepare   = "Prepare"
	MethodUnprepare = "Unprepare" // takes the PrepareRequest's pod, answers when the prepared process has exited
	MethodVacate    = "Vacate"    // takes the PrepareRequest's cgroup, answers when the prepared process there has exited
	MethodLaunch    = "Launch"    // takes the Task API's CreateTaskRequest, answers with Launched
	MethodHistory   = "History"   // takes nothing, answers with History
)

// Names of the Task API's services: messages of both versions are alike on the wire.
const (
	TaskService   = "containerd.task.v3.Task"
	TaskServiceV2 = "containerd.task.v2.Task"
)

// Type URLs of JSON values inside Task API messages, as containerd's typeurl package names them.
const (
	TypeProcess   = "types.containerd.io/opencontainers/runtime-spec/1/Process"
	TypeResources = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
	TypeFeatures  = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"
)

// Exit is how a process ended.
type Exit struct {
	Code      uint32    `json:"code"`                // exit status verbatim, or 128 + signal
	At        time.Time `json:"at"`                  // when the shim reaped it
	Message   string    `json:"message,omitempty"`   // what the engine has to say about it (a trap's name, a start error)
	OOMKilled bool      `json:"oomKilled,omitempty"` // it ended for lack of memory: the kernel killed something in its cgroup, or a guest could not grow
}

// Details is what callers may ask of a container beyond the Task API.
type Details struct {
	PID        int           `json:"pid"`
	LinearBase uint64        `json:"linearBase,omitempty"` // where the guest's linear memory lies in its process, 0 = none
	LinearSize uint64        `json:"linearSize,omitempty"` // bytes reserved there
	EngineCPU  time.Duration `json:"engineCPU,omitempty"`  // CPU time used before the guest's _start
	Exit       *Exit         `json:"exit,omitempty"`       // set once the init process has ended
	StartedAt  time.Time     `json:"startedAt,omitzero"`   // when the init process was released to run
	Told       []int         `json:"told,omitempty"`       // signals that the init process was sent so far, each once
	Execs      []string      `json:"execs,omitempty"`      // ids of further processes that were not deleted
}

// History is what has happened to the shims that a supervisor has started, one after the other.
type History struct {
	Shims   int `json:"shims"`   // how many, the one that answers among them
	Adopted int `json:"adopted"` // containers that one of them took over from the one before, each time
	Lost    int `json:"lost"`    // containers whose adoption failed, and were ended
}

// AttachRequest asks to take part in the streams of a container's init process by FIFOs whose other
// ends the caller has open. An empty name leaves a stream out.
type AttachRequest struct {
	ID     string `json:"id"`
	Stdin  string `json:"stdin,omitempty"`
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	Once   bool   `json:"once,omitempty"` // the container's input ends with this one's
}

// Launched is a container that was created and started.
type Launched struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"begun"` // just before the process started: it may have exited already
}

// PrepareRequest tells a shim which namespaces of the pod its next container will join, by their
// paths. The others will be the container's own; without Net it is in the host's network.
type PrepareRequest struct {
	Net string `json:"net,omitempty"`
	IPC string `json:"ipc,omitempty"`
	UTS string `json:"uts,omitempty"`
	// Pod is the pod's id. A shim of several pods is told by Unprepare when one ends.
	Pod string `json:"pod"`
	// Cgroup is what will be that container's, as OCI cgroupsPath: the shim may make it, and start
	// the container's process there; "" = none is known. The caller removes it with the pod.
	Cgroup string `json:"cgroup,omitempty"`
	// OOMGroup is the container's memory.oom.group, as far as the caller can guess, "" for none.
	// systemd takes it only when it makes the cgroup.
	OOMGroup string `json:"oomGroup,omitempty"`
}
