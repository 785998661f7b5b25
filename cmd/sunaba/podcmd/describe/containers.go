package describe

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// containers writes a section of containers of one kind.
func containers(w *writer, title string, all []corev1.Container, statuses []corev1.ContainerStatus, p *corev1.Pod) {
	w.line(0, "%s:", title)
	for i := range all {
		c := &all[i]
		at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		var s *corev1.ContainerStatus
		if at >= 0 {
			s = &statuses[at]
		}
		container(w, c, s, p)
	}
}

func container(w *writer, c *corev1.Container, s *corev1.ContainerStatus, p *corev1.Pod) {
	w.line(1, "%s:", c.Name)
	if s != nil {
		w.line(2, "Container ID:\t%s", s.ContainerID)
	}
	w.line(2, "Image:\t%s", c.Image)
	if s != nil {
		w.line(2, "Image ID:\t%s", s.ImageID)
	}
	ports(w, "Port", c.Ports, func(port corev1.ContainerPort) int32 { return port.ContainerPort })
	ports(w, "Host Port", c.Ports, func(port corev1.ContainerPort) int32 { return port.HostPort })
	if c.SecurityContext != nil {
		seccomp(w, 2, c.SecurityContext.SeccompProfile)
	}
	if len(c.Command) > 0 {
		w.line(2, "Command:")
		w.listed(3, c.Command)
	}
	if len(c.Args) > 0 {
		w.line(2, "Args:")
		w.listed(3, c.Args)
	}
	if s != nil {
		state(w, "State", s.State)
		if s.LastTerminationState.Terminated != nil {
			state(w, "Last State", s.LastTerminationState)
		}
		ready := "False"
		if s.Ready {
			ready = "True"
		}
		w.line(2, "Ready:\t%s", ready)
		w.line(2, "Restart Count:\t%d", s.RestartCount)
	}
	resources(w, 2, &c.Resources)
	for _, probe := range []struct {
		title string
		probe *corev1.Probe
	}{{"Liveness", c.LivenessProbe}, {"Readiness", c.ReadinessProbe}, {"Startup", c.StartupProbe}} {
		if probe.probe != nil {
			w.line(2, "%s:\t%s", probe.title, Probe(probe.probe))
		}
	}
	environment(w, c, p)
	mounts(w, c)
}

// ports writes the numbers that pick takes of ports, with kubectl's singular for one.
func ports(w *writer, title string, all []corev1.ContainerPort, pick func(corev1.ContainerPort) int32) {
	var texts []string
	for _, p := range all {
		text := fmt.Sprintf("%d/%s", pick(p), p.Protocol)
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
		texts = append(texts, text)
	}
	switch len(texts) {
	case 0:
		w.line(2, "%s:\t<none>", title)
	case 1:
		w.line(2, "%s:\t%s", title, texts[0])
	default:
		w.line(2, "%ss:\t%s", title, strings.Join(texts, ", "))
	}
}

func state(w *writer, title string, s corev1.ContainerState) {
	switch {
	case s.Running != nil:
		w.line(2, "%s:\tRunning", title)
		w.line(3, "Started:\t%s", s.Running.StartedAt.Format(time.RFC1123Z))
	case s.Terminated != nil:
		w.line(2, "%s:\tTerminated", title)
		t := s.Terminated
		if t.Reason != "" {
			w.line(3, "Reason:\t%s", t.Reason)
		}
		if t.Message != "" {
			w.line(3, "Message:\t%s", t.Message)
		}
		w.line(3, "Exit Code:\t%d", t.ExitCode)
		if t.Signal > 0 {
			w.line(3, "Signal:\t%d", t.Signal)
		}
		w.line(3, "Started:\t%s", t.StartedAt.Format(time.RFC1123Z))
		w.line(3, "Finished:\t%s", t.FinishedAt.Format(time.RFC1123Z))
	default:
		w.line(2, "%s:\tWaiting", title)
		if s.Waiting != nil && s.Waiting.Reason != "" {
			w.line(3, "Reason:\t%s", s.Waiting.Reason)
		}
		if s.Waiting != nil && s.Waiting.Message != "" {
			w.line(3, "Message:\t%s", s.Waiting.Message)
		}
	}
}

func resources(w *writer, level int, r *corev1.ResourceRequirements) {
	for _, part := range []struct {
		title string
		list  corev1.ResourceList
	}{{"Limits", r.Limits}, {"Requests", r.Requests}} {
		if len(part.list) == 0 {
			continue
		}
		w.line(level, "%s:", part.title)
		for _, name := range slices.Sorted(maps.Keys(part.list)) {
			q := part.list[name]
			w.line(level+1, "%s:\t%s", string(name), q.String())
		}
	}
}

// Probe is a probe on one line, as kubectl writes it.
func Probe(p *corev1.Probe) string {
	how := "unknown"
	switch {
	case p.Exec != nil:
		how = fmt.Sprintf("exec %v", p.Exec.Command)
	case p.HTTPGet != nil:
		u := url.URL{Scheme: strings.ToLower(string(p.HTTPGet.Scheme)), Path: p.HTTPGet.Path}
		if u.Host = p.HTTPGet.Host; p.HTTPGet.Port.String() != "" {
			u.Host = net.JoinHostPort(p.HTTPGet.Host, p.HTTPGet.Port.String())
		}
		how = "http-get " + u.String()
	case p.TCPSocket != nil:
		how = fmt.Sprintf("tcp-socket %s:%s", p.TCPSocket.Host, p.TCPSocket.Port.String())
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		how = fmt.Sprintf("grpc <pod>:%d %s", p.GRPC.Port, service)
	}
	return fmt.Sprintf("%s delay=%ds timeout=%ds period=%ds #success=%d #failure=%d", how,
		p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
}

// environment writes where variables come from. Values of Secrets are never shown.
func environment(w *writer, c *corev1.Container, p *corev1.Pod) {
	if len(c.EnvFrom) > 0 {
		w.line(2, "Environment Variables from:")
	}
	for _, e := range c.EnvFrom {
		name, from, optional := "", "", (*bool)(nil)
		switch {
		case e.ConfigMapRef != nil:
			name, from, optional = e.ConfigMapRef.Name, "ConfigMap", e.ConfigMapRef.Optional
		case e.SecretRef != nil:
			name, from, optional = e.SecretRef.Name, "Secret", e.SecretRef.Optional
		}
		if e.Prefix != "" {
			from += " with prefix '" + e.Prefix + "'"
		}
		w.line(3, "%s\t%s\tOptional: %t", name, from, optional != nil && *optional)
	}
	if len(c.Env) == 0 {
		w.line(2, "Environment:\t<none>")
		return
	}
	w.line(2, "Environment:")
	for _, e := range c.Env {
		variable(w, e, c, p)
	}
}

func variable(w *writer, e corev1.EnvVar, c *corev1.Container, p *corev1.Pod) {
	const from = "%s:\t<set to the key '%s' %s '%s'>\tOptional: %t"
	switch v := e.ValueFrom; {
	case v == nil:
		name := e.Name + ":"
		for part := range strings.SplitSeq(e.Value, "\n") {
			w.line(3, "%s\t%s", name, part)
			name = ""
		}
	case v.FieldRef != nil:
		w.line(3, "%s:\t%s (%s:%s)", e.Name, field(p, v.FieldRef.FieldPath), v.FieldRef.APIVersion, v.FieldRef.FieldPath)
	case v.ResourceFieldRef != nil:
		w.line(3, "%s:\t%s (%s)", e.Name, amount(c, v.ResourceFieldRef), v.ResourceFieldRef.Resource)
	case v.SecretKeyRef != nil:
		w.line(3, from, e.Name, v.SecretKeyRef.Key, "in secret", v.SecretKeyRef.Name, v.SecretKeyRef.Optional != nil && *v.SecretKeyRef.Optional)
	case v.ConfigMapKeyRef != nil:
		w.line(3, from, e.Name, v.ConfigMapKeyRef.Key, "of config map", v.ConfigMapKeyRef.Name, v.ConfigMapKeyRef.Optional != nil && *v.ConfigMapKeyRef.Optional)
	case v.FileKeyRef != nil:
		w.line(3, "%s:\t<set to the key '%s' of file '%s'>\tOptional: %t", e.Name, v.FileKeyRef.Key, v.FileKeyRef.Path, v.FileKeyRef.Optional != nil && *v.FileKeyRef.Optional)
	}
}

// field is a pod's field as the downward API names it, empty for one that kubectl does not show.
func field(p *corev1.Pod, path string) string {
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return map[string]string{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "metadata.uid": string(p.UID), "spec.nodeName": p.Spec.NodeName,
		"spec.serviceAccountName": p.Spec.ServiceAccountName, "status.hostIP": p.Status.HostIP, "status.podIP": p.Status.PodIP, "status.podIPs": strings.Join(ips, ","),
	}[path]
}

// amount is a container's limit or request in units of the divisor, rounded up.
func amount(c *corev1.Container, r *corev1.ResourceFieldSelector) string {
	kind, name, _ := strings.Cut(r.Resource, ".")
	list := c.Resources.Requests
	if kind == "limits" {
		list = c.Resources.Limits
	}
	q, ok := list[corev1.ResourceName(name)]
	switch {
	case !ok && kind == "limits" && (name == "cpu" || name == "memory"):
		return "node allocatable"
	case !ok:
		return "0"
	}
	divisor := r.Divisor.DeepCopy()
	if name == "cpu" {
		each := cmp.Or(divisor.MilliValue(), 1000)
		return fmt.Sprint((q.MilliValue() + each - 1) / each)
	}
	each := cmp.Or(divisor.Value(), 1)
	return fmt.Sprint((q.Value() + each - 1) / each)
}

func mounts(w *writer, c *corev1.Container) {
	if len(c.VolumeMounts) == 0 {
		w.line(2, "Mounts:\t<none>")
		return
	}
	w.line(2, "Mounts:")
	for _, m := range sorted(c.VolumeMounts, func(m *corev1.VolumeMount) string { return m.MountPath }) {
		flags := "rw"
		if m.ReadOnly {
			flags = "ro"
		}
		if m.SubPath != "" {
			flags += fmt.Sprintf(",path=%q", m.SubPath)
		}
		w.line(3, "%s from %s (%s)", m.MountPath, m.Name, flags)
	}
}

// sorted points to the elements of a list in the order of their keys. Pointers share one sorting
// routine, where each type of elements would link its own.
func sorted[T any](list []T, key func(*T) string) []*T {
	pointers := make([]*T, len(list))
	for i := range list {
		pointers[i] = &list[i]
	}
	slices.SortStableFunc(pointers, func(a, b *T) int { return cmp.Compare(key(a), key(b)) })
	return pointers
}
