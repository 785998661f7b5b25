// Package admission decides whether a pod may run on this node now, and as what: it resolves its
// class and priority and compares its wishes with the node and the pods that run. It is pure.
package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/pressure"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Reasons of pods that are not admitted.
const (
	Unschedulable          = "Unschedulable"
	SchedulingGated        = "SchedulingGated"
	FailedValidation       = "FailedValidation"
	RuntimeClassNotFound   = "RuntimeClassNotFound"
	RuntimeHandlerNotFound = "RuntimeHandlerNotFound"
	PodOSNotSupported      = "PodOSNotSupported"
	SysctlForbidden        = "SysctlForbidden"
	AppArmorMissing        = "AppArmor"
)

// The priorities of the built-in classes.
const (
	nodeCritical    = "system-node-critical"
	clusterCritical = "system-cluster-critical"

	nodeCriticalPriority = 2000001000
)

// rejected is the prefix of the messages of pods that a kubelet rejects.
const rejected = "Pod was rejected: "

// NodeShutdown is the reason for which no pod is admitted while the node shuts down (SD6).
const NodeShutdown = "NodeShutdown"

// ShuttingDown is why every pod waits then, in a kubelet's words.
func ShuttingDown() *cycle.Reason {
	return &cycle.Reason{Reason: NodeShutdown, Message: "Pod was rejected as the node is shutting down."}
}

// Event is what is told about a pod that fails: of one that a kubelet rejects, the reason.
func Event(f cycle.Final) (reason, message string) {
	if message, found := strings.CutPrefix(f.Message, rejected); found {
		return f.Reason, message
	}
	return "FailedCreatePodSandBox", f.Message
}

// Node is what a pod's wishes are compared with.
type Node struct {
	Name   string
	Labels map[string]string
	// Allocatable is what pods may request; the number of pods is in it.
	Allocatable corev1.ResourceList
	Classes     []nodev1.RuntimeClass
	// Handlers are the names of the server's runtime handlers.
	Handlers []string
	// Pressure are the conditions of the node that keep pods out.
	Pressure []corev1.NodeConditionType
	// Sysctls refuses a pod whose sysctls the node does not allow; nil allows all.
	Sysctls func(*corev1.Pod) error
	// AppArmor refuses a pod whose profiles the node cannot enforce; nil refuses none.
	AppArmor func(*corev1.Pod) error
	// Exclusive says whether a claim is for one pod at a time.
	Exclusive func(namespace, claim string) bool
}

// Verdict is the decision about a pod.
type Verdict struct {
	// Pod is the pod with the effects of its class and its priority; Handler is the runtime
	// handler, "" for the server's default. Both are set if neither Pending nor Final is.
	Pod     *corev1.Pod
	Handler string
	// Pending is why the pod must wait, Final why it fails.
	Pending *cycle.Reason
	Final   *cycle.Final
}

// Foreign says whether a pod names another node (AD4).
func (n Node) Foreign(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Spec.NodeName != n.Name
}

// Judge decides about a pod as it stands in its manifest. others are the pods that hold resources
// of the node.
func (n Node) Judge(pod *corev1.Pod, others []*corev1.Pod) Verdict {
	if pod.Spec.OS != nil && pod.Spec.OS.Name != corev1.Linux {
		return failed(PodOSNotSupported, "Failed to admit pod as the OS field doesn't match node OS")
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return Verdict{Pending: &cycle.Reason{Reason: SchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"}}
	}
	v := n.resolve(pod)
	if v.Final != nil || v.Pending != nil {
		return v
	}
	if n.Sysctls != nil {
		if err := n.Sysctls(v.Pod); err != nil {
			return failed(SysctlForbidden, rejected+err.Error())
		}
	}
	if n.AppArmor != nil {
		if err := n.AppArmor(v.Pod); err != nil {
			return failed(AppArmorMissing, rejected+err.Error())
		}
	}
	if refusal := pressure.Refuse(v.Pod, n.Pressure); refusal != "" { // EX10; a kubelet looks at it first too
		return Verdict{Pending: &cycle.Reason{Reason: Unschedulable, Message: refusal}}
	}
	if why := n.lacks(v.Pod, others); len(why) > 0 {
		slices.Sort(why)
		return Verdict{Pending: &cycle.Reason{
			Reason: Unschedulable, Message: "0/1 nodes are available: 1 " + strings.Join(why, ", 1 ") + ".",
		}}
	}
	v.Pod.Spec.NodeName = n.Name
	return v
}

func failed(reason, message string) Verdict {
	return Verdict{Final: &cycle.Final{Phase: corev1.PodFailed, Reason: reason, Message: message}}
}

func invalid(err error) Verdict {
	return Verdict{Pending: &cycle.Reason{Reason: FailedValidation, Message: err.Error()}}
}

// resolve sets what the pod has of its class and its priority.
func (n Node) resolve(pod *corev1.Pod) Verdict {
	classes, handler, err := n.class(pod)
	if errdefs.IsNotFound(err) {
		return failed(RuntimeClassNotFound, err.Error())
	}
	admitted, err := runtimeclass.Admit(pod, classes)
	if err != nil {
		return invalid(err)
	}
	if handler != "" && !slices.Contains(n.Handlers, handler) {
		return failed(RuntimeHandlerNotFound, fmt.Sprintf("RuntimeClass %q: the server has no handler %q, it has %s",
			*pod.Spec.RuntimeClassName, handler, strings.Join(n.Handlers, ", ")))
	}
	priority, err := priorityOf(pod)
	if err != nil {
		return invalid(err)
	}
	admitted.Spec.Priority = &priority
	if admitted.Spec.PreemptionPolicy == nil {
		policy := corev1.PreemptLowerPriority
		admitted.Spec.PreemptionPolicy = &policy
	}
	return Verdict{Pod: admitted, Handler: handler}
}

// class finds the pod's class, or takes a handler of its name for one (AD13).
func (n Node) class(pod *corev1.Pod) ([]nodev1.RuntimeClass, string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return n.Classes, "", nil
	}
	class, err := runtimeclass.Find(n.Classes, *name)
	if err == nil {
		return n.Classes, class.Handler, nil
	}
	if !slices.Contains(n.Handlers, *name) {
		return nil, "", fmt.Errorf("spec.runtimeClassName: %w", err)
	}
	implicit := nodev1.RuntimeClass{Handler: *name}
	implicit.Name = *name
	return append(slices.Clip(n.Classes), implicit), *name, nil
}

// priorityOf is the number of the pod's class of priority (AD16).
func priorityOf(pod *corev1.Pod) (int32, error) {
	var given int32
	if pod.Spec.Priority != nil {
		given = *pod.Spec.Priority
	}
	switch pod.Spec.PriorityClassName {
	case "":
		return given, nil
	case nodeCritical:
		return nodeCriticalPriority, nil
	case clusterCritical:
		return pressure.CriticalPriority, nil
	}
	return 0, fmt.Errorf("spec.priorityClassName: no PriorityClass with name %s was found: %w", pod.Spec.PriorityClassName, errdefs.ErrNotFound)
}

// Before says which of two pods is started first (AD7): negative for a, 0 if the order of their
// files decides.
func Before(a, b *corev1.Pod) int {
	x, errX := priorityOf(a)
	y, errY := priorityOf(b)
	switch {
	case errX != nil || errY != nil || x == y:
		return 0
	case x > y:
		return -1
	}
	return 1
}
