package run

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	crispec "github.com/sunaba-project/sunaba/criserver/spec"
)

func namespaceOptions(pod *corev1.Pod) *runtime.NamespaceOption {
	o := &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		o.Network = runtime.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		o.Ipc = runtime.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		o.Pid = runtime.NamespaceMode_NODE
	case is(pod.Spec.ShareProcessNamespace):
		o.Pid = runtime.NamespaceMode_POD
	}
	return o
}

func sandboxSecurity(pod *corev1.Pod) *runtime.LinuxSandboxSecurityContext {
	out := &runtime.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaceOptions(pod),
		Privileged:       anyPrivileged(pod),
		Seccomp:          &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_RuntimeDefault},
	}
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return out
	}
	out.RunAsUser = int64Value(sc.RunAsUser)
	if out.RunAsUser != nil {
		out.RunAsGroup = int64Value(sc.RunAsGroup)
	}
	out.SupplementalGroups = podGroups(sc)
	out.SupplementalGroupsPolicy = groupsPolicy(sc)
	out.SelinuxOptions = selinux(sc.SELinuxOptions)
	return out
}

func anyPrivileged(pod *corev1.Pod) bool {
	for _, l := range containerLists(pod) {
		if slices.ContainsFunc(l.list, func(c corev1.Container) bool {
			return c.SecurityContext != nil && is(c.SecurityContext.Privileged)
		}) {
			return true
		}
	}
	return false
}

// containerSecurity joins the container's security context with the pod's;
// the container's word counts.
func containerSecurity(pod *corev1.Pod, c *corev1.Container, at string) (*runtime.LinuxContainerSecurityContext, error) {
	own := c.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	all := pod.Spec.SecurityContext
	if all == nil {
		all = &corev1.PodSecurityContext{}
	}
	out := &runtime.LinuxContainerSecurityContext{
		NamespaceOptions:         namespaceOptions(pod),
		Privileged:               is(own.Privileged),
		ReadonlyRootfs:           is(own.ReadOnlyRootFilesystem),
		NoNewPrivs:               own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		RunAsUser:                int64Value(first(own.RunAsUser, all.RunAsUser)),
		RunAsGroup:               int64Value(first(own.RunAsGroup, all.RunAsGroup)),
		SupplementalGroups:       podGroups(all),
		SupplementalGroupsPolicy: groupsPolicy(all),
		SelinuxOptions:           selinux(first(own.SELinuxOptions, all.SELinuxOptions)),
	}
	out.MaskedPaths, out.ReadonlyPaths = crispec.DefaultPaths()
	if caps := own.Capabilities; caps != nil {
		out.Capabilities = &runtime.Capability{}
		for _, name := range caps.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(name))
		}
		for _, name := range caps.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(name))
		}
	}
	if p := first(own.SeccompProfile, all.SeccompProfile); p != nil {
		profile, err := profile(at+".securityContext.seccompProfile", string(p.Type), p.LocalhostProfile)
		if err != nil {
			return nil, err
		}
		out.Seccomp = profile
	}
	if p := first(own.AppArmorProfile, all.AppArmorProfile); p != nil {
		profile, err := profile(at+".securityContext.appArmorProfile", string(p.Type), p.LocalhostProfile)
		if err != nil {
			return nil, err
		}
		out.Apparmor = profile
	}
	return out, nil
}

// profile: a Localhost seccomp profile is an absolute path here, for there is
// no kubelet with a directory of profiles.
func profile(at, kind string, local *string) (*runtime.SecurityProfile, error) {
	n, ok := runtime.SecurityProfile_ProfileType_value[kind]
	if !ok {
		return nil, invalid(at+".type", "%q is not known", kind)
	}
	out := &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_ProfileType(n)}
	if local != nil {
		out.LocalhostRef = *local
	}
	return out, nil
}

// nonRoot says whether the container must not run as root.
func nonRoot(pod *corev1.Pod, c *corev1.Container) bool {
	if sc := c.SecurityContext; sc != nil && sc.RunAsNonRoot != nil {
		return *sc.RunAsNonRoot
	}
	return pod.Spec.SecurityContext != nil && is(pod.Spec.SecurityContext.RunAsNonRoot)
}

// checkNonRoot does the kubelet's check, which needs the image's user.
func checkNonRoot(c *planned, image *runtime.Image) error {
	if !c.nonRoot {
		return nil
	}
	const field = "securityContext.runAsNonRoot"
	if u := c.config.GetLinux().GetSecurityContext().GetRunAsUser(); u != nil {
		if u.GetValue() == 0 {
			return invalid("container "+c.name+": "+field, "runAsUser is 0")
		}
		return nil
	}
	switch {
	case image.GetUid() != nil && image.GetUid().GetValue() != 0:
		return nil
	case image.GetUsername() != "":
		return invalid("container "+c.name+": "+field, "the image's user %q is a name, so it is not known whether it is root", image.GetUsername())
	default:
		return invalid("container "+c.name+": "+field, "the image runs as root")
	}
}

// nameUser names the image's user where only a group is asked for, since the
// CRI has no group without a user.
func nameUser(c *planned, image *runtime.Image) {
	sc := c.config.GetLinux().GetSecurityContext()
	if sc.GetRunAsGroup() == nil || sc.GetRunAsUser() != nil {
		return
	}
	if name := image.GetUsername(); name != "" {
		sc.RunAsUsername = name
		return
	}
	sc.RunAsUser = &runtime.Int64Value{Value: image.GetUid().GetValue()}
}

func podGroups(sc *corev1.PodSecurityContext) []int64 {
	groups := slices.Clone(sc.SupplementalGroups)
	if sc.FSGroup != nil {
		groups = append(groups, *sc.FSGroup)
	}
	return groups
}

func groupsPolicy(sc *corev1.PodSecurityContext) runtime.SupplementalGroupsPolicy {
	if p := sc.SupplementalGroupsPolicy; p != nil && *p == corev1.SupplementalGroupsPolicyStrict {
		return runtime.SupplementalGroupsPolicy_Strict
	}
	return runtime.SupplementalGroupsPolicy_Merge
}

func selinux(o *corev1.SELinuxOptions) *runtime.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtime.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(v *int64) *runtime.Int64Value {
	if v == nil {
		return nil
	}
	return &runtime.Int64Value{Value: *v}
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// signalName is a signal's name in the CRI's words: SIGRTMIN+1 is SIGRTMINPLUS1 there.
func signalName(s corev1.Signal) string {
	return strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(s))
}
