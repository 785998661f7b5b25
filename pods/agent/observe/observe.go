// Package observe keeps what is known of one pod in the CRI server. It is put together of events
// and of answers, which come in no order: so a container's state only goes forward, and what was
// removed stays removed.
package observe

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
)

// forgetRemoved is how long an id is known as removed: events of it may be on the way.
const forgetRemoved = 10 * time.Minute

// Pod is what is known of one pod. It is for one goroutine.
type Pod struct {
	// Sandboxes and Containers are by id. They are changed by methods only, except Container.Read
	// and what a termination message says.
	Sandboxes  map[string]*Sandbox
	Containers map[string]*Container
	// Turn counts what was taken in.
	Turn    uint64
	removed map[string]time.Time
}

// Sandbox is a sandbox of the pod. Since is the turn in which it was first seen.
type Sandbox struct {
	cycle.Sandbox
	Since uint64
}

// Container is a container of the pod.
type Container struct {
	cycle.Observation
	// LogPath is the file of its log, Read says that its termination message was read.
	LogPath string
	Read    bool
	over    chan struct{} // closed when it ended, nil if nobody waits
	since   uint64
}

// New returns a pod of which nothing is known yet.
func New() *Pod {
	return &Pod{Sandboxes: map[string]*Sandbox{}, Containers: map[string]*Container{}, removed: map[string]time.Time{}}
}

// Live says whether a sandbox or a container may still run.
func (o *Pod) Live() bool {
	for _, s := range o.Sandboxes {
		if s.Ready {
			return true
		}
	}
	for _, c := range o.Containers {
		if c.State == cycle.StateRunning || c.State == cycle.StateUnknown {
			return true
		}
	}
	return false
}

// Take takes in the status of a sandbox and those of its containers.
func (o *Pod) Take(s *runtime.PodSandboxStatus, containers []*runtime.ContainerStatus) {
	o.Turn++
	o.sandbox(s)
	for _, c := range containers {
		o.container(s.GetId(), c)
	}
}

// TakeAll is take for an answer that was asked for in an earlier turn: what was known then and is
// not in it was removed.
func (o *Pod) TakeAll(asked uint64, s *runtime.PodSandboxStatus, containers []*runtime.ContainerStatus, now time.Time) {
	o.Take(s, containers)
	for id, c := range o.Containers {
		listed := slices.ContainsFunc(containers, func(l *runtime.ContainerStatus) bool { return l.GetId() == id })
		if c.SandboxID == s.GetId() && c.since <= asked && !listed {
			o.Remove(id, now)
		}
	}
}

func (o *Pod) sandbox(s *runtime.PodSandboxStatus) {
	id := s.GetId()
	if _, gone := o.removed[id]; gone || id == "" {
		return
	}
	have := o.Sandboxes[id]
	if have == nil {
		have = &Sandbox{Since: o.Turn}
		have.Sandbox = cycle.Sandbox{
			ID: id, Attempt: s.GetMetadata().GetAttempt(), Ready: true, Created: at(s.GetCreatedAt()),
			HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtime.NamespaceMode_NODE,
		}
		o.Sandboxes[id] = have
	}
	if s.GetState() != runtime.PodSandboxState_SANDBOX_READY {
		have.Ready = false
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		have.IPs = []string{ip}
		for _, more := range s.GetNetwork().GetAdditionalIps() {
			have.IPs = append(have.IPs, more.GetIp())
		}
	}
}

func (o *Pod) container(sandbox string, s *runtime.ContainerStatus) {
	id := s.GetId()
	if _, gone := o.removed[id]; gone || id == "" {
		return
	}
	have := o.Containers[id]
	if have == nil {
		have = &Container{since: o.Turn}
		o.Containers[id] = have
	}
	state := StateOf(s.GetState())
	if rank(state) < rank(have.State) && have.Name != "" {
		return // an older answer
	}
	termination, read := have.Termination, have.Read
	have.Observation = cycle.Observation{
		ID: id, SandboxID: sandbox, Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(), State: state,
		Created: at(s.GetCreatedAt()), Started: at(s.GetStartedAt()), Finished: at(s.GetFinishedAt()),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(),
		Image: s.GetImage().GetImage(), ImageID: s.GetImageRef(), Termination: termination,
		User: userOf(s.GetUser()), StopSignal: signalOf(s.GetStopSignal()),
	}
	have.LogPath, have.Read = s.GetLogPath(), read
	if state == cycle.StateExited {
		have.end()
	}
}

// end tells those who wait for the container's end.
func (c *Container) end() {
	if c.over != nil {
		close(c.over)
		c.over = nil
	}
}

// Ended is closed when a container ends. It is closed already for one that is not known.
func (o *Pod) Ended(id string) <-chan struct{} {
	c := o.Containers[id]
	if c == nil || c.State == cycle.StateExited {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if c.over == nil {
		c.over = make(chan struct{})
	}
	return c.over
}

// Remove forgets a sandbox or a container for good.
func (o *Pod) Remove(id string, now time.Time) {
	o.drop(id)
	if _, known := o.Sandboxes[id]; known {
		delete(o.Sandboxes, id)
		for cid, c := range o.Containers {
			if c.SandboxID == id {
				o.drop(cid)
				o.removed[cid] = now
			}
		}
	}
	o.removed[id] = now
	for old, when := range o.removed {
		if now.Sub(when) > forgetRemoved {
			delete(o.removed, old)
		}
	}
}

// Gone says whether a container was removed.
func (o *Pod) Gone(id string) bool {
	_, gone := o.removed[id]
	return gone
}

func (o *Pod) drop(container string) {
	if c := o.Containers[container]; c != nil {
		c.end()
		delete(o.Containers, container)
	}
}

// Lists are what Next is given, in the order of their making.
func (o *Pod) Lists(results func(id string) (startup, readiness, liveness cycle.ProbeResult, message string)) ([]cycle.Sandbox, []cycle.Observation) {
	sandboxes := make([]cycle.Sandbox, 0, len(o.Sandboxes))
	for _, s := range slices.SortedFunc(maps.Values(o.Sandboxes), func(a, b *Sandbox) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.Created.Compare(b.Created))
	}) {
		sandboxes = append(sandboxes, s.Sandbox)
	}
	containers := make([]cycle.Observation, 0, len(o.Containers))
	for _, c := range slices.SortedFunc(maps.Values(o.Containers), func(a, b *Container) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	}) {
		seen := c.Observation
		seen.Startup, seen.Readiness, seen.Liveness, seen.ProbeMessage = results(c.ID)
		containers = append(containers, seen)
	}
	return sandboxes, containers
}

// Newest is the sandbox of the highest attempt, nil without.
func (o *Pod) Newest() *Sandbox {
	var found *Sandbox
	for _, s := range o.Sandboxes {
		if found == nil || s.Attempt > found.Attempt {
			found = s
		}
	}
	return found
}

// Running is the running container of a name, nil without.
func (o *Pod) Running(name string) *Container {
	for _, c := range o.Containers {
		if c.Name == name && c.State == cycle.StateRunning {
			return c
		}
	}
	return nil
}

// StateOf is a state of the CRI.
func StateOf(s runtime.ContainerState) cycle.State {
	switch s {
	case runtime.ContainerState_CONTAINER_CREATED:
		return cycle.StateCreated
	case runtime.ContainerState_CONTAINER_RUNNING:
		return cycle.StateRunning
	case runtime.ContainerState_CONTAINER_EXITED:
		return cycle.StateExited
	}
	return cycle.StateUnknown
}

// rank orders the states of a container's life. One that is unknown may be found to run again.
func rank(s cycle.State) int {
	switch s {
	case cycle.StateCreated:
		return 1
	case cycle.StateRunning, cycle.StateUnknown:
		return 2
	}
	return 3
}

func at(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

func userOf(u *runtime.ContainerUser) *corev1.ContainerUser {
	l := u.GetLinux()
	if l == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
		UID: l.GetUid(), GID: l.GetGid(), SupplementalGroups: l.GetSupplementalGroups(),
	}}
}

// signalOf is a signal in the words of the API, in which SIGRTMINPLUS1 is SIGRTMIN+1.
func signalOf(s runtime.Signal) *corev1.Signal {
	if s == runtime.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	name := strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(strings.TrimPrefix(s.String(), "SIGNAL_"))
	signal := corev1.Signal(name)
	return &signal
}
