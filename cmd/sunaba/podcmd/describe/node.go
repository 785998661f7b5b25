package describe

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Node writes the node, with the pods on it and its events. now is for ages.
func Node(out io.Writer, n *corev1.Node, pods []corev1.Pod, all []corev1.Event, now time.Time) error {
	w := &writer{}
	w.line(0, "Name:\t%s", n.Name)
	w.pairs("Labels", n.Labels)
	w.annotations(n.Annotations)
	w.line(0, "CreationTimestamp:\t%s", n.CreationTimestamp.Format(time.RFC1123Z))
	w.line(0, "Conditions:")
	w.line(1, "Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage")
	w.line(1, "----\t------\t-----------------\t------------------\t------\t-------")
	for _, c := range n.Status.Conditions {
		w.line(1, "%s\t%s\t%s\t%s\t%s\t%s", string(c.Type), string(c.Status), c.LastHeartbeatTime.Format(time.RFC1123Z),
			c.LastTransitionTime.Format(time.RFC1123Z), c.Reason, c.Message)
	}
	w.line(0, "Addresses:")
	for _, a := range n.Status.Addresses {
		w.line(1, "%s:\t%s", string(a.Type), a.Address)
	}
	amounts(w, "Capacity", n.Status.Capacity)
	amounts(w, "Allocatable", n.Status.Allocatable)
	info := n.Status.NodeInfo
	w.line(0, "System Info:")
	for _, l := range [][2]string{
		{"Machine ID", info.MachineID}, {"System UUID", info.SystemUUID}, {"Boot ID", info.BootID}, {"Kernel Version", info.KernelVersion},
		{"OS Image", info.OSImage}, {"Operating System", info.OperatingSystem}, {"Architecture", info.Architecture},
		{"Container Runtime Version", info.ContainerRuntimeVersion}, {"Sunaba Version", info.KubeletVersion},
	} {
		w.line(1, "%s:\t%s", l[0], l[1])
	}
	allocated(w, n, slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return p.Spec.NodeName != n.Name || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), now)
	if len(all) == 0 {
		w.line(0, "Events:\t<none>")
	}
	if err := w.flush(out); err != nil || len(all) == 0 {
		return err
	}
	return events(out, all, now)
}

// amounts writes a list of resources in the order of their names.
func amounts(w *writer, title string, list corev1.ResourceList) {
	w.line(0, "%s:", title)
	for _, name := range resourceNames(list) {
		q := list[corev1.ResourceName(name)]
		w.line(1, "%s:\t%s", name, q.String())
	}
}

func resourceNames(list corev1.ResourceList) []string {
	var names []string
	for name := range list {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// allocated writes what pods request, and the sums, in parts of what is allocatable.
func allocated(w *writer, n *corev1.Node, pods []corev1.Pod, now time.Time) {
	of := func(list corev1.ResourceList, name corev1.ResourceName) string {
		q, have := list[name], n.Status.Allocatable[name]
		return fmt.Sprintf("%s (%d%%)", q.String(), percent(q, have))
	}
	w.line(0, "Non-terminated Pods:\t(%d in total)", len(pods))
	w.line(1, "Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge")
	w.line(1, "---------\t----\t\t------------\t----------\t---------------\t-------------\t---")
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pods {
		p := &pods[i]
		asked, most := runtimeclass.EffectiveRequests(p, p.Spec.Overhead), runtimeclass.EffectiveLimits(p, p.Spec.Overhead)
		w.line(1, "%s\t%s\t\t%s\t%s\t%s\t%s\t%s", p.Namespace, p.Name, of(asked, corev1.ResourceCPU), of(most, corev1.ResourceCPU),
			of(asked, corev1.ResourceMemory), of(most, corev1.ResourceMemory), cycle.Age(p.CreationTimestamp.Time, now))
		sum(requests, asked)
		sum(limits, most)
	}
	w.line(0, "Allocated resources:")
	w.line(1, "(Total limits may be over 100 percent, i.e., overcommitted.)")
	w.line(1, "Resource\tRequests\tLimits")
	w.line(1, "--------\t--------\t------")
	for _, name := range resourceNames(n.Status.Allocatable) {
		if name != string(corev1.ResourcePods) {
			w.line(1, "%s\t%s\t%s", name, of(requests, corev1.ResourceName(name)), of(limits, corev1.ResourceName(name)))
		}
	}
}

func sum(list, more corev1.ResourceList) {
	for name, q := range more {
		have := list[name]
		have.Add(q)
		list[name] = have
	}
}

// percent is a part of a whole, 0 of nothing.
func percent(part, whole resource.Quantity) int64 {
	if whole.IsZero() {
		return 0
	}
	return int64(part.AsApproximateFloat64() / whole.AsApproximateFloat64() * 100)
}

// NodeEvents are those about a node.
func NodeEvents(all []corev1.Event, name string) []corev1.Event {
	return slices.DeleteFunc(all, func(e corev1.Event) bool {
		return !strings.EqualFold(e.InvolvedObject.Kind, "Node") || e.InvolvedObject.Name != name
	})
}
