package describe

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/table"
	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/foreign"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Pod writes a pod. now is for ages; events is whether those are written. Each note has a line.
func Pod(out io.Writer, d api.Description, now time.Time, showEvents bool, notes ...string) error {
	w := &writer{}
	head(w, d, now)
	for _, note := range notes {
		w.line(0, "Note:\t%s", note)
	}
	p := d.Pod
	if p.Spec.Resources != nil {
		w.line(0, "Resources:")
		resources(w, 1, p.Spec.Resources)
	}
	if len(p.Spec.InitContainers) > 0 {
		containers(w, "Init Containers", p.Spec.InitContainers, p.Status.InitContainerStatuses, p)
	}
	containers(w, "Containers", p.Spec.Containers, p.Status.ContainerStatuses, p)
	if len(p.Spec.EphemeralContainers) > 0 {
		var all []corev1.Container
		for _, c := range p.Spec.EphemeralContainers {
			all = append(all, corev1.Container(c.EphemeralContainerCommon))
		}
		containers(w, "Ephemeral Containers", all, p.Status.EphemeralContainerStatuses, p)
	}
	if len(p.Status.Conditions) > 0 {
		w.line(0, "Conditions:")
		w.line(1, "Type\tStatus")
		for _, c := range p.Status.Conditions {
			// The blanks are kubectl's.
			w.line(1, "%s \t%s ", string(c.Type), string(c.Status))
		}
	}
	volumes(w, p.Spec.Volumes)
	if class := qosClass(p); class != "" {
		w.line(0, "QoS Class:\t%s", string(class))
	}
	w.pairs("Node-Selectors", p.Spec.NodeSelector)
	tolerations(w, p.Spec.Tolerations)
	if len(p.Spec.Overhead) > 0 {
		w.line(0, "Overhead:\t%s", runtimeclass.Quantities(p.Spec.Overhead))
	}
	if showEvents && len(d.Events) == 0 {
		w.line(0, "Events:\t<none>")
	}
	if err := w.flush(out); err != nil || !showEvents || len(d.Events) == 0 {
		return err
	}
	return events(out, d.Events, now)
}

// qosClass is a pod's class of service, "" if it is not known: what is shown of a sandbox that
// others made has neither requests nor limits.
func qosClass(p *corev1.Pod) corev1.PodQOSClass {
	if p.Status.QOSClass == "" && !foreign.Is(p) {
		return runtimeclass.QOS(p)
	}
	return p.Status.QOSClass
}

// head writes what stands before the containers.
func head(w *writer, d api.Description, now time.Time) {
	p := d.Pod
	w.line(0, "Name:\t%s", p.Name)
	w.line(0, "Namespace:\t%s", p.Namespace)
	if p.Spec.Priority != nil {
		w.line(0, "Priority:\t%d", *p.Spec.Priority)
	}
	if p.Spec.PriorityClassName != "" {
		w.line(0, "Priority Class Name:\t%s", p.Spec.PriorityClassName)
	}
	if c := p.Spec.RuntimeClassName; c != nil && *c != "" {
		w.line(0, "Runtime Class Name:\t%s", *c)
	}
	if p.Spec.ServiceAccountName != "" {
		w.line(0, "Service Account:\t%s", p.Spec.ServiceAccountName)
	}
	if p.Spec.NodeName == "" {
		w.line(0, "Node:\t<none>")
	} else {
		w.line(0, "Node:\t%s/%s", p.Spec.NodeName, p.Status.HostIP)
	}
	if p.Status.StartTime != nil {
		w.line(0, "Start Time:\t%s", p.Status.StartTime.Format(time.RFC1123Z))
	}
	w.pairs("Labels", p.Labels)
	w.annotations(p.Annotations)
	status(w, p, now)
	if s := p.Spec.SecurityContext; s != nil {
		seccomp(w, 0, s.SeccompProfile)
	}
	w.line(0, "IP:\t%s", p.Status.PodIP)
	if len(p.Status.PodIPs) == 0 {
		w.line(0, "IPs:\t<none>")
	} else {
		w.line(0, "IPs:")
	}
	for _, ip := range p.Status.PodIPs {
		w.line(1, "IP:\t%s", ip.IP)
	}
	if owner := metav1.GetControllerOf(p); owner != nil {
		w.line(0, "Controlled By:\t%s/%s", owner.Kind, owner.Name)
	}
	w.line(0, "File:\t%s", table.OrNone(p.Annotations[api.AnnotationFile]))
	w.line(0, "Next:\t%s", table.OrNone(NextText(d.Next, now)))
}

// status writes the phase, or that the pod is being deleted, and why.
func status(w *writer, p *corev1.Pod, now time.Time) {
	if p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
		w.line(0, "Status:\tTerminating (lasts %s)", cycle.Age(p.DeletionTimestamp.Time, now))
		if p.DeletionGracePeriodSeconds != nil {
			w.line(0, "Termination Grace Period:\t%ds", *p.DeletionGracePeriodSeconds)
		}
	} else {
		w.line(0, "Status:\t%s", string(p.Status.Phase))
	}
	if p.Status.Reason != "" {
		w.line(0, "Reason:\t%s", p.Status.Reason)
	}
	if p.Status.Message != "" {
		w.line(0, "Message:\t%s", p.Status.Message)
	}
}

func seccomp(w *writer, level int, s *corev1.SeccompProfile) {
	if s == nil {
		return
	}
	w.line(level, "SeccompProfile:\t%s", string(s.Type))
	if s.Type == corev1.SeccompProfileTypeLocalhost && s.LocalhostProfile != nil {
		if level > 0 {
			level++ // as kubectl indents it for containers
		}
		w.line(level, "LocalhostProfile:\t%s", *s.LocalhostProfile)
	}
}

// NextText is what the agent waits for, with the time that is left before the details in brackets:
// "restart of app in 38s (back-off 1m20s)".
func NextText(n api.Next, now time.Time) string {
	if n.Text == "" || n.Until.IsZero() {
		return n.Text
	}
	left := "in " + duration.HumanDuration(n.Until.Sub(now))
	if !n.Until.After(now) {
		left = "now"
	}
	what, details, ok := strings.Cut(n.Text, " (")
	if !ok {
		return what + " " + left
	}
	return what + " " + left + " (" + details
}

func tolerations(w *writer, all []corev1.Toleration) {
	if len(all) == 0 {
		w.line(0, "Tolerations:\t<none>")
		return
	}
	title := "Tolerations"
	for _, t := range sorted(all, func(t *corev1.Toleration) string { return t.Key }) {
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		if t.Effect != "" {
			text += ":" + string(t.Effect)
		}
		if t.Operator == corev1.TolerationOpExists && t.Value == "" {
			if t.Key != "" || t.Effect != "" {
				text += " "
			}
			text += "op=Exists"
		}
		if t.TolerationSeconds != nil {
			text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		w.line(0, "%s\t%s", titled(title), text)
		title = ""
	}
}

// events writes events from the oldest to the newest, aligned by themselves.
func events(out io.Writer, all []corev1.Event, now time.Time) error {
	w := &writer{}
	w.line(0, "Events:")
	w.line(1, "Type\tReason\tAge\tFrom\tMessage")
	w.line(1, "----\t------\t----\t----\t-------")
	for _, e := range all {
		message := strings.TrimSpace(e.Message)
		if e.InvolvedObject.FieldPath != "" {
			message = e.InvolvedObject.FieldPath + ": " + message
		}
		w.line(1, "%s\t%s\t%s\t%s\t%s", e.Type, e.Reason, table.Interval(&e, now), cmp.Or(e.Source.Component, e.ReportingController), message)
	}
	return w.flush(out)
}
