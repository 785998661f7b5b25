package resize

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// State is the resize in progress of a pod's containers.
type State struct {
	// Wanted are the new resources of containers that do not fit yet.
	Wanted map[string]corev1.ResourceRequirements
	// Again says that it is to be looked whether they fit, Busy that a worker applies some, Retry
	// when the next one is to.
	Again bool
	Busy  bool
	Retry time.Time
	// Pending and Progress are the conditions, nil if they are not there.
	Pending, Progress *corev1.PodCondition
	since             time.Time // when they first had to wait
}

// Of is what the record of a pod says about resources that were not taken over when the agent
// ended.
func Of(rec *records.Record) State {
	var s State
	for _, c := range manifest.Containers(rec.Manifest) {
		have, _ := worker.Container(rec.Pod, c.Name)
		if have != nil && !equality.Semantic.DeepEqual(have.Resources, c.Resources) {
			s.want(c.Name, c.Resources)
		}
	}
	return s
}

func (s *State) want(name string, r corev1.ResourceRequirements) {
	if s.Wanted == nil {
		s.Wanted = map[string]corev1.ResourceRequirements{}
	}
	s.Wanted[name] = r
}

// Later keeps the old resources of containers in a pod's new form until they fit.
func (s *State) Later(rec *records.Record, pod *corev1.Pod, names []string) {
	for _, name := range names {
		c, _ := worker.Container(pod, name)
		old, _ := worker.Container(rec.Pod, name)
		if c == nil || old == nil {
			continue
		}
		s.want(name, *c.Resources.DeepCopy())
		c.Resources = *old.Resources.DeepCopy()
	}
}

// Waits says that a pod has resources that are to be taken over.
func (s *State) Waits(rec *records.Record) bool {
	return len(s.Wanted) > 0 && rec.Pending == nil && rec.Final == nil && rec.Deletion == nil
}

// Waiting is a pod's resize: its present form, and that with the resources that it waits for.
func (s *State) Waiting(rec *records.Record) Waiting {
	pod := rec.Pod.DeepCopy()
	for name, wanted := range s.Wanted {
		if c, _ := worker.Container(pod, name); c != nil {
			c.Resources = wanted
		}
	}
	return Waiting{Old: rec.Pod, New: pod, Since: s.since}
}

// Take takes a resize over into the pod's record. It answers which containers are to be restarted
// for it.
func (s *State) Take(rec *records.Record, w Waiting) (restart []string) {
	for name := range s.Wanted {
		c, _ := worker.Container(w.New, name)
		old, _ := worker.Container(w.Old, name)
		if c != nil && old != nil && desired.ResizeRestarts(c, &old.Resources, &c.Resources) {
			restart = append(restart, name)
		}
		if entry := rec.Containers[name]; entry != nil && old != nil && entry.InForce == nil {
			entry.InForce = old.Resources.DeepCopy()
		}
		if !slices.Contains(rec.Resizing, name) {
			rec.Resizing = append(rec.Resizing, name)
		}
	}
	slices.Sort(rec.Resizing)
	slices.Sort(restart)
	s.Wanted, s.Pending, s.since = nil, nil, time.Time{}
	rec.Pod = w.New
	return restart
}

// Postpone notes that a resize must wait, for room, or for good unless it can ever be. It answers
// the event, "" if that is known already.
func (s *State) Postpone(ever bool, now time.Time) (event, message string) {
	reason, event, message := corev1.PodReasonDeferred, "ResizeDeferred", "Node didn't have enough resource for the pod's new requests"
	if !ever {
		reason, event, message = corev1.PodReasonInfeasible, "ResizeInfeasible", "Node didn't have enough capacity for the pod's new requests"
	}
	if s.Pending != nil && s.Pending.Reason == reason {
		return "", ""
	}
	if s.Pending == nil {
		s.since = now
	}
	s.Pending = Condition(corev1.PodResizePending, reason, message, now)
	return event, message
}

// Condition is a condition that holds since now.
func Condition(kind corev1.PodConditionType, reason, message string, now time.Time) *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
}
