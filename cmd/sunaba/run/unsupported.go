package run

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unsupported names a field that is set and would have no effect here. It takes away from a copy of
// the pod everything that is translated; what is left, nothing reads.
func unsupported(pod *corev1.Pod) error {
	if err := unsupportedValues(pod); err != nil {
		return err
	}
	rest := pod.DeepCopy()
	rest.Kind, rest.APIVersion = "", ""
	m := &rest.ObjectMeta
	m.Name, m.Namespace, m.UID, m.Labels, m.Annotations = "", "", "", nil, nil
	stripSpec(&rest.Spec)
	if field := firstSet(reflect.ValueOf(rest).Elem(), ""); field != "" {
		return invalid(field, "is not supported by sunaba run")
	}
	return nil
}

// unsupportedValues refuses values of fields that are otherwise understood.
func unsupportedValues(pod *corev1.Pod) error {
	s := &pod.Spec
	if p := s.RestartPolicy; p != "" && p != corev1.RestartPolicyNever {
		return invalid("spec.restartPolicy", "%s is not supported: sunaba run runs each container once (Never)", p)
	}
	switch s.DNSPolicy {
	case "", corev1.DNSDefault:
		if s.DNSConfig != nil {
			return invalid("spec.dnsConfig", "needs dnsPolicy None")
		}
	case corev1.DNSNone:
		if s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0 {
			return invalid("spec.dnsConfig.nameservers", "is empty, but dnsPolicy is None")
		}
	default:
		return invalid("spec.dnsPolicy", "%s is not supported (supported: Default, None)", s.DNSPolicy)
	}
	if s.OS != nil && s.OS.Name != corev1.Linux {
		return invalid("spec.os.name", "%s is not supported", s.OS.Name)
	}
	if is(s.AutomountServiceAccountToken) {
		return invalid("spec.automountServiceAccountToken", "true is not supported: there is no API server")
	}
	if s.HostUsers != nil && !*s.HostUsers {
		return invalid("spec.hostUsers", "false is not supported")
	}
	if is(s.ShareProcessNamespace) && s.HostPID {
		return invalid("spec.shareProcessNamespace", "cannot be together with hostPID")
	}
	for _, l := range containerLists(pod) {
		for i := range l.list {
			c := &l.list[i]
			if p := c.RestartPolicy; p != nil && (l.field != "spec.initContainers" || *p != corev1.ContainerRestartPolicyAlways) {
				return invalid(fmt.Sprintf("%s[%d].restartPolicy", l.field, i), "%s is not supported (supported: Always for init containers)", *p)
			}
			if sc := c.SecurityContext; sc != nil && sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount {
				return invalid(fmt.Sprintf("%s[%d].securityContext.procMount", l.field, i), "%s is not supported", *sc.ProcMount)
			}
		}
	}
	return nil
}

func is(b *bool) bool { return b != nil && *b }

// stripSpec takes away the fields that the translation reads, and those whose
// values unsupportedValues has found to be without effect.
func stripSpec(s *corev1.PodSpec) {
	s.RestartPolicy, s.TerminationGracePeriodSeconds = "", nil
	s.DNSPolicy, s.DNSConfig, s.OS = "", nil, nil
	s.HostNetwork, s.HostPID, s.HostIPC, s.ShareProcessNamespace = false, false, false, nil
	s.Hostname, s.HostUsers = "", nil
	s.RuntimeClassName, s.Overhead = nil, nil
	s.AutomountServiceAccountToken, s.EnableServiceLinks = nil, nil
	if s.Resources != nil {
		s.Resources.Requests, s.Resources.Limits = nil, nil
		s.Resources = nilIfZero(s.Resources)
	}
	if sc := s.SecurityContext; sc != nil {
		sc.RunAsUser, sc.RunAsGroup, sc.RunAsNonRoot, sc.FSGroup = nil, nil, nil, nil
		sc.SupplementalGroups, sc.SupplementalGroupsPolicy, sc.Sysctls = nil, nil, nil
		sc.SeccompProfile, sc.AppArmorProfile, sc.SELinuxOptions = nil, nil, nil
		s.SecurityContext = nilIfZero(sc)
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		v.Name, v.HostPath, v.Image = "", nil, nil
		if v.EmptyDir != nil {
			v.EmptyDir = nilIfZero(v.EmptyDir)
		}
	}
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			stripContainer(&list[i])
		}
	}
}

func stripContainer(c *corev1.Container) {
	c.Name, c.Image, c.ImagePullPolicy = "", "", ""
	c.Command, c.Args, c.WorkingDir, c.TTY, c.RestartPolicy = nil, nil, "", false, nil
	c.Resources.Requests, c.Resources.Limits = nil, nil
	for i := range c.Ports {
		c.Ports[i] = corev1.ContainerPort{}
	}
	for i := range c.Env {
		c.Env[i].Name, c.Env[i].Value = "", ""
	}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		m.Name, m.MountPath, m.SubPath, m.ReadOnly, m.MountPropagation, m.RecursiveReadOnly = "", "", "", false, nil, nil
	}
	if l := c.Lifecycle; l != nil {
		l.StopSignal = nil
		c.Lifecycle = nilIfZero(l)
	}
	if sc := c.SecurityContext; sc != nil {
		sc.Capabilities, sc.Privileged, sc.SELinuxOptions = nil, nil, nil
		sc.RunAsUser, sc.RunAsGroup, sc.RunAsNonRoot = nil, nil, nil
		sc.ReadOnlyRootFilesystem, sc.AllowPrivilegeEscalation, sc.ProcMount = nil, nil, nil
		sc.SeccompProfile, sc.AppArmorProfile = nil, nil
		c.SecurityContext = nilIfZero(sc)
	}
}

func nilIfZero[T any](p *T) *T {
	if reflect.ValueOf(p).Elem().IsZero() {
		return nil
	}
	return p
}

// firstSet returns the path of the first field that is not zero, in the
// manifest's words; "" if all are.
func firstSet(v reflect.Value, path string) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return ""
		}
		if inner := firstSet(v.Elem(), path); inner != "" {
			return inner
		}
		return path
	case reflect.Slice:
		for i := range v.Len() {
			if inner := firstSet(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); inner != "" {
				return inner
			}
		}
		return ""
	case reflect.Map:
		if v.Len() > 0 {
			return path
		}
		return ""
	case reflect.Struct:
		return firstSetField(v, path)
	default:
		if v.IsZero() {
			return ""
		}
		return path
	}
}

func firstSetField(v reflect.Value, path string) string {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			if !v.Field(i).IsZero() { // a type of its own, like a time
				return path
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := path
		if !strings.Contains(options, "inline") && name != "" {
			at = strings.TrimPrefix(path+"."+name, ".")
		}
		if inner := firstSet(v.Field(i), at); inner != "" {
			return inner
		}
	}
	return ""
}
