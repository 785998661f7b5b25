// Package cycle is the life cycle of one pod as the Kubernetes documentation describes it, as a
// pure function: from what is wanted and recorded, what is observed and the time, Next decides what
// to do next, what the pod's status is and when to look again. It starts nothing, waits for nothing
// and reads no clock.
package cycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// RecordVersion is the format of the records that this package writes and reads.
const RecordVersion = 1

// Record is what must outlive a crash of the agent and a reboot of the node, of one pod. It is one
// JSON file. Next changes it; whoever called Next writes it before it executes the actions.
type Record struct {
	Version int `json:"version"`
	// Pod is the pod as it was admitted: with UID, generation, creation time, defaults, and the
	// overhead and scheduling of its class. Its status is empty: Next computes it.
	Pod *corev1.Pod `json:"pod"`
	// Handler is the runtime handler that its class named when it was admitted.
	Handler string `json:"handler,omitempty"`
	// Source says where the pod is declared.
	Source Source `json:"source"`
	// Pending is why the pod is not admitted yet, nil once it is.
	Pending *Reason `json:"pending,omitempty"`
	// StartTime is when the agent first accepted the pod. Zero before.
	StartTime time.Time `json:"startTime,omitzero"`
	// DeadlineFrom is when activeDeadlineSeconds counts from, if the clock was set back behind
	// StartTime. Zero: StartTime.
	DeadlineFrom time.Time `json:"deadlineFrom,omitzero"`
	// BootID is the boot of the node in which the record was last acted on.
	BootID string `json:"bootID,omitempty"`
	// Sandbox is the attempt of the newest sandbox that was asked for; Sandboxes counts how many
	// were, so that 0 means none yet. SandboxID is its id once it was observed.
	Sandbox   uint32 `json:"sandbox,omitempty"`
	Sandboxes uint32 `json:"sandboxes,omitempty"`
	SandboxID string `json:"sandboxID,omitempty"`
	// IPs are the last known addresses of the pod.
	IPs []string `json:"ips,omitempty"`
	// Initialized says that a regular container was asked for in this sandbox.
	Initialized bool `json:"initialized,omitempty"`
	// Done says that the pod is over: no container is started again. What still runs is stopped.
	Done bool `json:"done,omitempty"`
	// Final is set once the pod's phase is Succeeded or Failed. It never changes then.
	Final *Final `json:"final,omitempty"`
	// Interrupted is why the pod waits after a shutdown of the node, until it is started again.
	Interrupted *Reason `json:"interrupted,omitempty"`
	// Disruption is the reason of the condition DisruptionTarget, nil without.
	Disruption *Reason `json:"disruption,omitempty"`
	// Deletion is set once the pod is to be deleted.
	Deletion *Deletion `json:"deletion,omitempty"`
	// Ended is set when the pod is to be ended without being deleted: a deadline, an eviction, a
	// shutdown. Its containers are stopped with its grace period.
	Ended *Deletion `json:"ended,omitempty"`
	// Purge asks that the pod's containers, sandboxes and files are removed once it has ended, while
	// the pod itself stays: what it took of the node is needed.
	Purge bool `json:"purge,omitempty"`
	// Stopping is set while all containers are stopped for another cause: the pod is done or its
	// sandbox is replaced.
	Stopping *Deletion `json:"stopping,omitempty"`
	// Containers are by name: init, regular and ephemeral ones.
	Containers map[string]*Container `json:"containers,omitempty"`
	// Conditions are those of the last status, for their times.
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
	// UserNamespace is the first host id of the pod's range, 0 without.
	UserNamespace uint32 `json:"userNamespace,omitempty"`

	// Live is what Next keeps from call to call and may be lost with the agent.
	Live Live `json:"-"`
}

// Source says where an object is declared: Kind is "file", "api" (applied) or "run".
type Source struct {
	Kind string `json:"kind"`
	File string `json:"file,omitempty"`
	Hash string `json:"hash,omitempty"`
}

// Reason is a reason in the form of a condition's, and a message for people.
type Reason struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// Final is a terminal phase.
type Final struct {
	Phase   corev1.PodPhase `json:"phase"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Deletion is an order to end a pod.
type Deletion struct {
	At time.Time `json:"at"`
	// Grace is the pod's grace period, Deadline when it is spent.
	Grace    time.Duration `json:"grace"`
	Deadline time.Time     `json:"deadline"`
}

// Container is what is recorded of one container of the pod.
type Container struct {
	// Attempt is that of the newest container that was asked for; it is also its restart count.
	Attempt uint32 `json:"attempt"`
	// Asked says that a container was asked for at all.
	Asked bool `json:"asked,omitempty"`
	// Sandbox is the attempt of the sandbox in which it was asked for.
	Sandbox uint32 `json:"sandbox,omitempty"`
	// ID is the id of the present attempt's container once it was observed.
	ID string `json:"id,omitempty"`
	// Image is the image with which it was asked for.
	Image string `json:"image,omitempty"`
	// ImageRef and ImageID are the image of the present attempt as the server names it.
	ImageRef string `json:"imageRef,omitempty"`
	ImageID  string `json:"imageID,omitempty"`
	// Last is the termination before the present state.
	Last *corev1.ContainerStateTerminated `json:"last,omitempty"`
	// Gone is the last known termination of the present attempt, for when the server has no
	// container of it any more.
	Gone *corev1.ContainerStateTerminated `json:"gone,omitempty"`
	// BackOff holds between restarts.
	BackOff BackOff `json:"backOff,omitzero"`
	// Started and Ready are ids of the container that is started and ready.
	Started string `json:"started,omitempty"`
	Ready   string `json:"ready,omitempty"`
	// PostStart and PreStop are the hooks of the present container.
	PostStart Hook `json:"postStart,omitzero"`
	PreStop   Hook `json:"preStop,omitzero"`
	// Kill is the container's kill in progress.
	Kill *Kill `json:"kill,omitempty"`
	// Restart asks for a stop and a new start whatever the policy: an edit of the image, the command
	// restart, a new sandbox.
	Restart *Reason `json:"restart,omitempty"`
	// Pull says that the image is pulled before the container is stopped for Restart.
	Pull bool `json:"pull,omitempty"`
	// InForce are the resources of the present container while those of the pod are not applied to it
	// yet; nil if it has those.
	InForce *corev1.ResourceRequirements `json:"inForce,omitempty"`
	// Now says that the next start waits for no back-off: the container ran when the node stopped.
	Now bool `json:"now,omitempty"`
}

// Hook is the state of a hook of one container.
type Hook struct {
	// ID is the container of which it is.
	ID string `json:"id,omitempty"`
	// Begun says that it was asked for.
	Begun bool `json:"asked,omitempty"`
	// Over says that it ended, whatever its result.
	Over bool `json:"over,omitempty"`
}

// BackOff is the state of one restart delay.
type BackOff struct {
	// Delay is the least time between the end of a run and the next start. Zero: no entry.
	Delay time.Duration `json:"delay,omitempty"`
	// Since is when Delay was last set: at the start of the run that is followed by it.
	Since time.Time `json:"since,omitzero"`
	// Image is the image of the container that it is about.
	Image string `json:"image,omitempty"`
	// Ended is the end of the run of attempt Of, not later than when it was first seen.
	Ended time.Time `json:"ended,omitzero"`
	Of    uint32    `json:"of,omitempty"`
}

// Kill is why a container is killed and how long that may take.
type Kill struct {
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// At is when it was decided, Deadline when its grace period is spent.
	At       time.Time `json:"at"`
	Deadline time.Time `json:"deadline"`
	// NoHook leaves out the preStop hook.
	NoHook bool `json:"noHook,omitempty"`
}
