package pressure

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// conditions are those of the node, with the words for each: is, and is not.
var conditions = []struct {
	kind             corev1.NodeConditionType
	reason, message  [2]string
	eventIs, eventNo string
}{
	{corev1.NodeMemoryPressure, [2]string{"HasSufficientMemory", "HasInsufficientMemory"},
		[2]string{"the node has sufficient memory available", "the node has insufficient memory available"}, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	{corev1.NodeDiskPressure, [2]string{"HasNoDiskPressure", "HasDiskPressure"},
		[2]string{"the node has no disk pressure", "the node has disk pressure"}, "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	{corev1.NodePIDPressure, [2]string{"HasSufficientPID", "HasInsufficientPID"},
		[2]string{"the node has sufficient PID available", "the node has insufficient PID available"}, "NodeHasInsufficientPID", "NodeHasSufficientPID"},
}

// Conditions are the node's, and when they last changed. The zero value has seen nothing.
type Conditions struct {
	// Transition is how long a condition stays after its last sight (EX9).
	Transition time.Duration

	seen    map[corev1.NodeConditionType]time.Time // last sight
	changed map[corev1.NodeConditionType]time.Time
	active  []corev1.NodeConditionType
	at      time.Time
}

// See takes in the signals that are met now, and returns the reasons of the events about conditions
// that changed.
func (c *Conditions) See(met []Signal, now time.Time) []string {
	if c.seen == nil {
		c.seen, c.changed = map[corev1.NodeConditionType]time.Time{}, map[corev1.NodeConditionType]time.Time{}
	}
	for kind, at := range c.seen {
		if at.After(now) { // the clock was set back
			c.seen[kind] = now
		}
	}
	for _, s := range met {
		c.seen[s.Condition()] = now
	}
	var events []string
	for _, one := range conditions {
		was := slices.Contains(c.active, one.kind)
		at, ever := c.seen[one.kind]
		is := ever && (now.Sub(at) < c.Transition || at.Equal(now))
		switch {
		case is && !was:
			c.active = append(c.active, one.kind)
			events = append(events, one.eventIs)
		case was && !is:
			c.active = slices.DeleteFunc(c.active, func(k corev1.NodeConditionType) bool { return k == one.kind })
			events = append(events, one.eventNo)
		}
		if was != is || c.at.IsZero() {
			c.changed[one.kind] = now
		}
	}
	slices.Sort(c.active)
	c.at = now
	return events
}

// Active are the conditions that hold, sorted.
func (c *Conditions) Active() []corev1.NodeConditionType { return slices.Clone(c.active) }

// Holds says whether a condition holds.
func (c *Conditions) Holds(kind corev1.NodeConditionType) bool {
	return slices.Contains(c.active, kind)
}

// Absent are the reasons of the events about conditions that do not hold.
func (c *Conditions) Absent() []string {
	var events []string
	for _, one := range conditions {
		if !c.Holds(one.kind) {
			events = append(events, one.eventNo)
		}
	}
	return events
}

// List are the conditions as a Node's status has them (NC1), nil before the first sight.
func (c *Conditions) List() []corev1.NodeCondition {
	if c.at.IsZero() {
		return nil
	}
	var list []corev1.NodeCondition
	for _, one := range conditions {
		status, i := corev1.ConditionFalse, 0
		if c.Holds(one.kind) {
			status, i = corev1.ConditionTrue, 1
		}
		list = append(list, corev1.NodeCondition{
			Type: one.kind, Status: status, Reason: one.reason[i], Message: one.message[i],
			LastHeartbeatTime: metav1.NewTime(c.at), LastTransitionTime: metav1.NewTime(c.changed[one.kind]),
		})
	}
	return list
}

// Refuse says why a pod is not admitted while conditions hold, "" if it is (EX10). Its priority is
// resolved.
func Refuse(pod *corev1.Pod, active []corev1.NodeConditionType) string {
	if len(active) == 0 || Critical(pod) {
		return ""
	}
	if slices.Equal(active, []corev1.NodeConditionType{corev1.NodeMemoryPressure}) &&
		(runtimeclass.QOS(pod) != corev1.PodQOSBestEffort || tolerates(pod)) {
		return ""
	}
	return fmt.Sprintf("node had condition: %v", active)
}

// tolerates says whether a pod tolerates a node without memory.
func tolerates(pod *corev1.Pod) bool {
	taint := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		switch t.Operator {
		case corev1.TolerationOpExists:
			return true
		case corev1.TolerationOpEqual, "":
			return t.Key == taint.Key && t.Value == taint.Value
		}
		return false
	})
}
