package table

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// nodeHeader are the columns of a node.
func nodeHeader(o Options) []string {
	h := []string{"NAME", "STATUS", "AGE", "VERSION"}
	if o.Wide {
		h = append(h, "INTERNAL-IP", "OS", "KERNEL", "MEMORY", "DISK")
	}
	return h
}

func nodeRow(n *corev1.Node, now time.Time, o Options) []string {
	row := []string{n.Name, nodeStatus(n), age(n.CreationTimestamp.Time, now), n.Status.NodeInfo.KubeletVersion}
	if !o.Wide {
		return row
	}
	ip := ""
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && ip == "" {
			ip = a.Address
		}
	}
	info := n.Status.NodeInfo
	return append(row, OrNone(ip), OrNone(info.OSImage), OrNone(info.KernelVersion),
		size(n.Status.Capacity.Memory()), size(n.Status.Capacity.StorageEphemeral()))
}

// nodeStatus is a node's status in kubectl's words.
func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// size is an amount of bytes for people: "15.6Gi".
func size(q *resource.Quantity) string {
	bytes := float64(q.Value())
	for _, unit := range []struct {
		name string
		is   float64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if bytes >= unit.is {
			return strconv.FormatFloat(bytes/unit.is, 'f', 1, 64) + unit.name
		}
	}
	return strconv.FormatInt(q.Value(), 10)
}
