package cycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Live is what Next keeps in memory between two calls.
type Live struct {
	// Running are the actions that were given out and whose results have not come, by subject.
	Running map[string]Action
	// Failures are the last failures by subject, until it succeeds.
	Failures map[string]Failure
	// Stopped is when a container or sandbox was last stopped, by id.
	Stopped map[string]time.Time
	// Told are the events that are recorded once only, by key: what they were last told of.
	Told map[string]string
	// TornDown says that TearDown succeeded.
	TornDown bool
}

// Failure is one that is retried.
type Failure struct {
	Reason
	// Since is the failure's time, Retry when it is retried: never, if it is zero, until
	// something changes (Observed.Changed).
	Since, Retry time.Time
	Delay        time.Duration
}

// Settings are what the configuration says about every pod.
type Settings struct {
	// CrashLoopMax is the longest back-off, from 1 s to 5 min; below 10 s it is the first delay too.
	CrashLoopMax time.Duration
	// HostIPs are the node's addresses.
	HostIPs []string
	// Runtime is the prefix of container ids in statuses, "sunaba".
	Runtime string
	// RecursiveReadOnly says that the node can mount recursively read-only.
	RecursiveReadOnly bool
	// NetworkWatched says that Observed.Changed comes when the network may have become ready.
	NetworkWatched bool
}

// Observed is what the agent knows of a pod at one time. Sandboxes and Containers were listed after
// the last of Results had come.
type Observed struct {
	// BootID is that of the node's present boot.
	BootID     string
	Sandboxes  []Sandbox
	Containers []Observation
	// Results are of actions that ended since the last call. Every action has one.
	Results []Result
	// Changed says that something that a failed step may have waited for has changed: an object, a
	// class, an image, the network. All failures are retried at once.
	Changed bool
	// Volumes says that the pod's volumes are set up in this run of the agent.
	Volumes bool
}

// Sandbox is a pod's sandbox as the CRI has it.
type Sandbox struct {
	ID      string
	Attempt uint32
	Ready   bool
	// HostNetwork is the network mode with which it was made.
	HostNetwork bool
	IPs         []string
	Created     time.Time
}

// State is that of a container in the CRI.
type State int

// The states of containers.
const (
	StateUnknown State = iota
	StateCreated
	StateRunning
	StateExited
)

// Observation is a container as the CRI has it. Those of the newest sandbox and of older ones are
// given.
type Observation struct {
	ID, SandboxID, Name        string
	Attempt                    uint32
	State                      State
	Created, Started, Finished time.Time
	ExitCode                   int32
	Reason, Message            string
	// Image is the reference that was asked for, ImageID the digest reference.
	Image, ImageID string
	// Termination is the termination message of an exited container.
	Termination string
	// Results of its probes; Unknown where none is defined or known.
	Startup, Readiness, Liveness ProbeResult
	// User and StopSignal are what is in force, nil if they are not known.
	User       *corev1.ContainerUser
	StopSignal *corev1.Signal
	// ProbeMessage is the last failure of the startup or liveness probe.
	ProbeMessage string
}

// ProbeResult is the state of one probe after its thresholds.
type ProbeResult int

// Results of probes.
const (
	ProbeUnknown ProbeResult = iota
	ProbeSuccess
	ProbeFailure
)

// Verb says what an action does.
type Verb string

// The verbs. What they need is in the fields that are named here.
const (
	SetUpVolumes    Verb = "SetUpVolumes"    // all volumes of the pod
	RunSandbox      Verb = "RunSandbox"      // Attempt
	StopSandbox     Verb = "StopSandbox"     // ID
	RemoveSandbox   Verb = "RemoveSandbox"   // ID; its containers are removed before
	StartContainer  Verb = "StartContainer"  // Container, Attempt, SandboxID: pull, create and start
	PullImage       Verb = "PullImage"       // Container, Image: before it is stopped for its new image
	RunPostStart    Verb = "RunPostStart"    // Container, ID
	RunPreStop      Verb = "RunPreStop"      // Container, ID, Deadline
	StopContainer   Verb = "StopContainer"   // Container, ID, Grace
	RemoveContainer Verb = "RemoveContainer" // Container, ID
	TearDown        Verb = "TearDown"        // volumes, cgroup and log folder of the pod: last
)

// Action is one step that the agent is to execute. At most one runs for each subject.
type Action struct {
	Verb
	// Subject is a key: a container's name, "hook/NAME", "pull/NAME", "again/NAME" (a second stop
	// with a shorter grace beside the first), "stop/ID", "remove/ID", "sandbox", "volumes", "pod".
	Subject       string
	Container, ID string
	SandboxID     string
	Image         string
	Attempt       uint32
	Grace         time.Duration
	Deadline      time.Time
}

// Result is how an action ended. Reason.Reason is empty if it succeeded. ID is that of the
// container or sandbox that was made.
type Result struct {
	Action
	Reason
	At time.Time
	// Wait says that the failure is retried when Observed.Changed only, Delay that it is retried
	// after that time (an image's back-off is the agent's); both zero: the usual back-off.
	Wait  bool
	Delay time.Duration
	// Cancelled says that it failed after Decision.Cancel had named its subject.
	Cancelled bool
}

// Event is one that Next wants recorded.
type Event struct {
	Type, Reason, Message string // Type is corev1.EventTypeNormal or Warning
	Container             string // of which it is about, "" for the pod
}

// Decision is what Next answers.
type Decision struct {
	// Actions are to be started now, at the same time as each other.
	Actions []Action
	Status  corev1.PodStatus
	Events  []Event
	// Wake is when to call Next again although nothing happened; zero: never.
	Wake time.Time
	// Waiting is what is waited for, in words: "restart of app (back-off 40s)"; until Wake, if
	// that is set. "" for nothing.
	Waiting string
	// Probes are ids of containers whose probes are to run now.
	Probes []ProbeSet
	// Over says that nothing of the pod is left and its record is to be removed.
	Over bool
	// Cancel are subjects whose running actions are to be cancelled. They have results as others.
	Cancel []string
	// Save says that the record was changed so that it must be written before the actions are
	// executed and the status is shown. StartContainer may start meanwhile: it may create the
	// container, and start it when the record is written.
	Save bool
	// Dirty says that the record was changed in parts that may be lost: conditions, readiness, ids.
	Dirty bool
}

// ProbeSet says which probes of a container run now.
type ProbeSet struct {
	Container, ID                string
	Started                      time.Time
	Startup, Readiness, Liveness bool
}
