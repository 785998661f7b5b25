package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// lacks says, in a scheduler's words, what the node does not have for a pod.
func (n Node) lacks(pod *corev1.Pod, others []*corev1.Pod) []string {
	var why []string
	if !n.selected(pod) {
		why = append(why, "node(s) didn't match Pod's node affinity/selector")
	}
	if most := n.Allocatable.Pods().Value(); most > 0 && int64(len(others)) >= most {
		why = append(why, "Too many pods")
	}
	requests := runtimeclass.EffectiveRequests(pod, pod.Spec.Overhead)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		want := requests[name]
		if want.IsZero() {
			continue
		}
		for _, other := range others {
			want.Add(runtimeclass.EffectiveRequests(other, other.Spec.Overhead)[name])
		}
		if have := n.Allocatable[name]; want.Cmp(have) > 0 {
			why = append(why, "Insufficient "+string(name))
		}
	}
	if slices.ContainsFunc(others, func(other *corev1.Pod) bool { return clash(pod, other) }) {
		why = append(why, "node(s) didn't have free ports for the requested pod ports")
	}
	if slices.ContainsFunc(others, func(other *corev1.Pod) bool { return n.contend(pod, other) }) {
		why = append(why, "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode")
	}
	return why
}

// Fits says whether pods fit on the node with others: as what they request is now, and on the empty
// node.
func (n Node) Fits(pod *corev1.Pod, others []*corev1.Pod) (now, ever bool) {
	return len(n.lacks(pod, others)) == 0, len(n.lacks(pod, nil)) == 0
}

// selected says whether a pod may be on the node by its selector and its required node affinity.
func (n Node) selected(pod *corev1.Pod) bool {
	have := labels.Set(n.Labels)
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(have) {
		return false
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		if len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 {
			return false // as documented: an empty term matches nothing
		}
		return all(t.MatchExpressions, have) && all(t.MatchFields, labels.Set{"metadata.name": n.Name})
	})
}

func all(list []corev1.NodeSelectorRequirement, have labels.Set) bool {
	return !slices.ContainsFunc(list, func(r corev1.NodeSelectorRequirement) bool { return !meets(r, have) })
}

func meets(r corev1.NodeSelectorRequirement, have labels.Set) bool {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	requirement, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
	return err == nil && requirement.Matches(have)
}

// clash says whether two pods want one port of the host.
func clash(a, b *corev1.Pod) bool {
	for _, x := range hostPorts(a) {
		for _, y := range hostPorts(b) {
			if x.HostPort == y.HostPort && protocol(x) == protocol(y) && meet(x.HostIP, y.HostIP) {
				return true
			}
		}
	}
	return false
}

// hostPorts are those of the containers that serve: not of init containers that end.
func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var list []corev1.ContainerPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				list = append(list, p)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; runtimeclass.IsSidecar(c) {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return list
}

func protocol(p corev1.ContainerPort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}

func meet(a, b string) bool {
	whole := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a == b || whole(a) || whole(b)
}

// contend says whether two pods want one claim that is for one pod at a time.
func (n Node) contend(a, b *corev1.Pod) bool {
	if n.Exclusive == nil || a.Namespace != b.Namespace {
		return false
	}
	for _, x := range a.Spec.Volumes {
		for _, y := range b.Spec.Volumes {
			if x.PersistentVolumeClaim != nil && y.PersistentVolumeClaim != nil &&
				x.PersistentVolumeClaim.ClaimName == y.PersistentVolumeClaim.ClaimName &&
				n.Exclusive(a.Namespace, x.PersistentVolumeClaim.ClaimName) {
				return true
			}
		}
	}
	return false
}
