package node

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Seen is what an Object has besides the facts.
type Seen struct {
	UID     types.UID
	Created time.Time
	// Version is this program's. Runtime is the name of the CRI server.
	Version, Runtime string
	// Status is the CRI server's answer to Status, nil if it gave none.
	Status     *cri.StatusResponse
	Conditions []corev1.NodeCondition
}

// Object is the node as Kubernetes shows it (NC1-NC3).
func (f Facts) Object(s Seen) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: f.Node.Name, UID: s.UID, CreationTimestamp: metav1.NewTime(s.Created), Labels: f.Labels},
		Status: corev1.NodeStatus{
			Capacity: f.Capacity, Allocatable: f.Node.Allocatable, Conditions: s.Conditions, NodeInfo: f.Info,
		},
	}
	for _, ip := range f.Node.IPs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: f.Node.Name})
	n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.ContainerRuntimeVersion = s.Version, s.Runtime+"://"+s.Version
	for _, h := range s.Status.GetRuntimeHandlers() {
		recursive, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{
			Name: h.GetName(), Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users},
		})
	}
	return n
}

// Health is what decides whether the node is ready.
type Health struct {
	// Agent is the agent's own failure, Failed that of the CRI server's call Status; nil for none.
	Agent, Failed error
	// Status is the answer of Status.
	Status *cri.StatusResponse
	// ShuttingDown says that the node is (SD6).
	ShuttingDown bool
}

// Ready is the node's condition Ready (NC1), in a kubelet's words.
func Ready(h Health) corev1.NodeCondition {
	var wrong []string
	if h.Agent != nil {
		wrong = append(wrong, h.Agent.Error())
	}
	if h.Failed != nil {
		wrong = append(wrong, "container runtime is down: "+h.Failed.Error())
	} else {
		wrong = append(wrong, lacking(h.Status, cri.RuntimeReady, "container runtime not ready"),
			lacking(h.Status, cri.NetworkReady, "container runtime network not ready"))
	}
	if h.ShuttingDown {
		wrong = append(wrong, "node is shutting down")
	}
	var errs []error
	for _, text := range wrong {
		if text != "" {
			errs = append(errs, errors.New(text))
		}
	}
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentReady", Message: "agent is posting ready status"}
	if err := errors.Join(errs...); err != nil {
		c.Status, c.Reason = corev1.ConditionFalse, "AgentNotReady"
		c.Message = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return c
}

// lacking says what is wrong if a condition of the CRI server does not hold, "" otherwise.
func lacking(s *cri.StatusResponse, condition, what string) string {
	for _, c := range s.GetStatus().GetConditions() {
		if c.GetType() != condition {
			continue
		}
		if c.GetStatus() {
			return ""
		}
		return fmt.Sprintf("%s: %s=false reason:%s message:%s", what, c.GetType(), c.GetReason(), c.GetMessage())
	}
	return fmt.Sprintf("%s: %s is not known", what, condition)
}

// heartbeat is how long a condition that stays as it is keeps its time, as a kubelet's
// nodeStatusReportFrequency.
const heartbeat = 5 * time.Minute

// Conditions remember when conditions changed. The zero value knows of none. Its method may be
// called at the same time.
type Conditions struct {
	mu   sync.Mutex
	last map[corev1.NodeConditionType]corev1.NodeCondition
}

// Keep gives conditions their times, where they have none. The time at which one was seen moves
// with what it says, or every heartbeat: those who watch the node are told of news.
func (k *Conditions) Keep(list []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		k.last = map[corev1.NodeConditionType]corev1.NodeCondition{}
	}
	out := make([]corev1.NodeCondition, 0, len(list))
	at := metav1.NewTime(now.Truncate(time.Second))
	for _, c := range list {
		before, known := k.last[c.Type]
		changed := !known || before.Status != c.Status
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = before.LastTransitionTime
			if changed {
				c.LastTransitionTime = at
			}
		}
		switch {
		case !changed && before.Message == c.Message && now.Sub(before.LastHeartbeatTime.Time) < heartbeat:
			c.LastHeartbeatTime = before.LastHeartbeatTime
		case c.LastHeartbeatTime.IsZero():
			c.LastHeartbeatTime = at
		}
		k.last[c.Type] = c
		out = append(out, c)
	}
	return out
}
