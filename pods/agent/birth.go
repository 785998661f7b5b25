package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/identity"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// NodeEvent is one about the node, in the words of Kubernetes.
type NodeEvent struct{ Type, Reason, Message string }

// born records the events of a node whose agent starts, as a kubelet's: the start, a reboot since
// the last one, the conditions, and what was done before.
func (l *loop) born(readings pressure.Readings) {
	if l.o.RunMark != "" { // a run is not the node
		l.evictor.took(readings)
		return
	}
	l.nodeEvent(corev1.EventTypeNormal, "Starting", "Starting sunaba.")
	last, err := identity.LastBoot(l.o.Root)
	if err != nil {
		l.o.Logger.Error("failed to find out whether the node was rebooted", "error", err)
	}
	if last != "" && last != l.o.BootID {
		l.nodeEvent(corev1.EventTypeWarning, "Rebooted", "Node "+l.o.Node.Name+" has been rebooted, boot id: "+l.o.BootID)
	}
	if last != l.o.BootID {
		l.spawn(l.noteBoot)
	}
	l.evictor.took(readings)
	for _, reason := range l.evictor.conditions.Absent() {
		l.nodeStatus(reason)
	}
	for _, e := range l.o.Before {
		l.nodeEvent(e.Type, e.Reason, e.Message)
	}
}

// noteBoot keeps the id of this boot, after its event: killed in between, the next start records
// the event again.
func (l *loop) noteBoot(context.Context) {
	err := l.events.Flush(l.o.now())
	if err == nil {
		err = identity.NoteBoot(l.o.Root, l.o.BootID)
	}
	if err != nil {
		l.o.Logger.Error("failed to note the boot of the node", "error", err)
	}
}

// nodeStatus records the event of a condition of the node.
func (l *loop) nodeStatus(reason string) {
	l.nodeEvent(corev1.EventTypeNormal, reason, "Node "+l.o.Node.Name+" status is now: "+reason)
}
