package pressure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// CriticalPriority is the least priority of critical pods, and that of the built-in class
// system-cluster-critical (RE12).
const CriticalPriority = 2000000000

// Critical says whether an admitted pod is critical: never evicted, and the last to be ended.
func Critical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= CriticalPriority
}

// Candidate is a pod that runs, with what it takes; a nil Use is not known.
type Candidate struct {
	Pod *corev1.Pod
	Use *Use
}

// Rank sorts the candidates, the first to be evicted first, and leaves critical ones out (EX6):
// those that take more than they request, then those of the lowest priority, then those that take
// the most above their request. Inodes and processes have no requests: they go by priority, then by
// number. What is not known comes first, as a kubelet has it. apart is as of OverLimit, logsApart
// says the same of logs.
func Rank(s Signal, all []Candidate, apart, logsApart bool) []Candidate {
	type ranked struct {
		Candidate
		known, modest bool // modest: within its request
		excess        int64
	}
	var list []ranked
	for _, c := range all {
		if Critical(c.Pod) {
			continue
		}
		r := ranked{Candidate: c}
		if c.Use != nil {
			used, request := take(s, c, apart, logsApart)
			r.known, r.modest, r.excess = true, used <= request, used-request
		}
		if s.Resource() == "inodes" || s == PIDs {
			r.modest = false
		}
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(a, b ranked) int {
		if c := cmp.Or(falseFirst(a.known, b.known), falseFirst(a.modest, b.modest)); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(priority(a.Pod), priority(b.Pod)), cmp.Compare(b.excess, a.excess), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	out := make([]Candidate, len(list))
	for i, r := range list {
		out[i] = r.Candidate
	}
	return out
}

// take is what a pod takes of what a signal is about, and its request.
func take(s Signal, c Candidate, apart, logsApart bool) (used, request int64) {
	requests := runtimeclass.EffectiveRequests(c.Pod, c.Pod.Spec.Overhead)
	image := s == ImageFS || s == ImageInodes
	room := c.Use.disk(!apart || image, !apart || !image)
	switch logs := c.Use.logs(); {
	case s == LogFS || s == LogInodes:
		room = logs
	case logsApart && (!apart || !image):
		room.add(Room{-logs.Bytes, -logs.Inodes})
	}
	switch s {
	case Memory:
		return c.Use.Memory, requests.Memory().Value()
	case ImageFS, NodeFS, LogFS:
		return room.Bytes, requests.StorageEphemeral().Value()
	case ImageInodes, NodeInodes, LogInodes:
		return room.Inodes, 0
	case PIDs:
		return c.Use.Processes, 0
	}
	return 0, 0
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Message is why a pod is evicted, in a kubelet's words (EX7).
func Message(s Signal, t Thresholds, readings Readings, c Candidate) string {
	var text strings.Builder
	name := s.Resource()
	fmt.Fprintf(&text, "The node was low on resource: %s. ", name)
	if r, measured := readings[s]; measured {
		threshold := t[s]
		least := threshold.of(r.Capacity)
		fmt.Fprintf(&text, "Threshold quantity: %s, available: %s. ", least.String(), resource.NewQuantity(r.Available, signals[s].format))
	}
	if c.Use == nil {
		return text.String()
	}
	const larger = "%s %s was using %s, request is %s, has larger consumption of %s. "
	if own := c.Pod.Spec.Resources; s == Memory && own != nil {
		if request, found := own.Requests[name]; found {
			used := bytes(c.Use.Memory)
			fmt.Fprintf(&text, larger, "Pod", c.Pod.Name, used.String(), request.String(), name)
		}
	}
	for _, u := range c.Use.Containers {
		request, of := requestOf(c.Pod, u.Name, name)
		used := bytes(u.Memory)
		if s.Disk() {
			used = bytes(u.Layer.Bytes + u.Logs.Bytes)
		}
		if of && (name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage) && used.Cmp(request) > 0 {
			fmt.Fprintf(&text, larger, "Container", u.Name, used.String(), request.String(), name)
		}
	}
	return text.String()
}

// requestOf is what a container that is not an ephemeral one requests.
func requestOf(pod *corev1.Pod, container string, name corev1.ResourceName) (request resource.Quantity, found bool) {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				return list[i].Resources.Requests[name], true
			}
		}
	}
	return request, false
}
