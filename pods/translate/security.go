package translate

import (
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UserNamespaceLength is the number of ids of a pod with hostUsers false.
const UserNamespaceLength = 65536

// OwnUsers says whether the pod has users of its own.
func OwnUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// userNamespace is nil for a pod with the node's users.
func userNamespace(in Input) *runtime.UserNamespace {
	if !OwnUsers(in.Pod) {
		return nil
	}
	ids := func() []*runtime.IDMapping {
		return []*runtime.IDMapping{{HostId: in.UserNamespace, ContainerId: 0, Length: UserNamespaceLength}}
	}
	return &runtime.UserNamespace{Mode: runtime.NamespaceMode_POD, Uids: ids(), Gids: ids()}
}

func namespaceOptions(in Input) (*runtime.NamespaceOption, error) {
	spec := &in.Pod.Spec
	if OwnUsers(in.Pod) && in.UserNamespace == 0 {
		return nil, classed(errdefs.ErrFailedPrecondition, "spec.hostUsers: pod %q has no range of ids assigned", podName(in.Pod))
	}
	o := &runtime.NamespaceOption{Pid: runtime.NamespaceMode_CONTAINER, UsernsOptions: userNamespace(in)}
	if spec.HostNetwork {
		o.Network = runtime.NamespaceMode_NODE
	}
	if spec.HostIPC {
		o.Ipc = runtime.NamespaceMode_NODE
	}
	switch {
	case spec.HostPID:
		o.Pid = runtime.NamespaceMode_NODE
	case is(spec.ShareProcessNamespace):
		o.Pid = runtime.NamespaceMode_POD
	}
	return o, nil
}

func sandboxSecurity(in Input) (*runtime.LinuxSandboxSecurityContext, error) {
	namespaces, err := namespaceOptions(in)
	if err != nil {
		return nil, err
	}
	out := &runtime.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces,
		Privileged:       anyPrivileged(in.Pod),
		Seccomp:          &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_RuntimeDefault},
	}
	sc := in.Pod.Spec.SecurityContext
	if sc == nil {
		return out, nil
	}
	if out.RunAsUser = int64Value(sc.RunAsUser); out.RunAsUser != nil {
		out.RunAsGroup = int64Value(sc.RunAsGroup) // the server takes no group without a user
	}
	out.SupplementalGroups = podGroups(sc)
	out.SelinuxOptions = selinux(sc.SELinuxOptions)
	out.SupplementalGroupsPolicy, err = groupsPolicy(sc)
	return out, err
}

func anyPrivileged(pod *corev1.Pod) bool {
	privileged := func(c corev1.Container) bool { return c.SecurityContext != nil && is(c.SecurityContext.Privileged) }
	return slices.ContainsFunc(pod.Spec.InitContainers, privileged) || slices.ContainsFunc(pod.Spec.Containers, privileged)
}

// containerSecurity joins the container's security context with the pod's. The container's counts
// where both say something.
func containerSecurity(in Input, c *corev1.Container, o ContainerInput) (*runtime.LinuxContainerSecurityContext, error) {
	own, all := securityContexts(in.Pod, c)
	namespaces, err := namespaceOptions(in)
	if err != nil {
		return nil, err
	}
	if o.Ephemeral && o.TargetID != "" && namespaces.Pid == runtime.NamespaceMode_CONTAINER {
		namespaces.Pid, namespaces.TargetId = runtime.NamespaceMode_TARGET, o.TargetID
	}
	out := &runtime.LinuxContainerSecurityContext{
		NamespaceOptions:   namespaces,
		Privileged:         is(own.Privileged),
		ReadonlyRootfs:     is(own.ReadOnlyRootFilesystem),
		NoNewPrivs:         own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		RunAsUser:          int64Value(first(own.RunAsUser, all.RunAsUser)),
		RunAsGroup:         int64Value(first(own.RunAsGroup, all.RunAsGroup)),
		SupplementalGroups: podGroups(all),
		SelinuxOptions:     selinux(first(own.SELinuxOptions, all.SELinuxOptions)),
		Capabilities:       capabilities(own.Capabilities),
	}
	if out.SupplementalGroupsPolicy, err = groupsPolicy(all); err != nil {
		return nil, err
	}
	imageUser(out, o.Image)
	if err := hiddenPaths(out, in, own.ProcMount); err != nil {
		return nil, err
	}
	if out.Seccomp, err = seccomp(in.Node, first(own.SeccompProfile, all.SeccompProfile)); err != nil {
		return nil, err
	}
	out.Apparmor, err = appArmor(appArmorProfile(in.Pod, c))
	return out, err
}

// imageUser names the image's user where the pod names none. An image without one runs as root.
func imageUser(sc *runtime.LinuxContainerSecurityContext, image *runtime.Image) {
	switch {
	case sc.RunAsUser != nil:
	case image.GetUid() != nil:
		sc.RunAsUser = &runtime.Int64Value{Value: image.GetUid().GetValue()}
	case image.GetUsername() != "":
		sc.RunAsUsername = image.GetUsername()
	default:
		sc.RunAsUser = &runtime.Int64Value{}
	}
}

// hiddenPaths sets what the container may not see and not write in /proc and /sys: the node's
// defaults, or nothing for procMount Unmasked in a user namespace.
func hiddenPaths(sc *runtime.LinuxContainerSecurityContext, in Input, mount *corev1.ProcMountType) error {
	switch {
	case mount == nil || *mount == corev1.DefaultProcMount || *mount == "":
		if len(in.Node.MaskedPaths) == 0 || len(in.Node.ReadonlyPaths) == 0 {
			return classed(errdefs.ErrFailedPrecondition, "node %q has no masked and read-only paths", in.Node.Name)
		}
		sc.MaskedPaths, sc.ReadonlyPaths = slices.Clone(in.Node.MaskedPaths), slices.Clone(in.Node.ReadonlyPaths)
		return nil
	case *mount != corev1.UnmaskedProcMount:
		return invalid("securityContext.procMount", "%q is not known", *mount)
	case !OwnUsers(in.Pod):
		return invalid("securityContext.procMount", "Unmasked needs spec.hostUsers: false")
	}
	return nil
}

// CheckNonRoot does a kubelet's check of runAsNonRoot, which needs the image's user.
//
// # Errors
//
// ErrFailedPrecondition, in the kubelet's words.
func CheckNonRoot(pod *corev1.Pod, c *corev1.Container, image *runtime.Image) error {
	own, all := securityContexts(pod, c)
	if !is(first(own.RunAsNonRoot, all.RunAsNonRoot)) {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return classed(errdefs.ErrFailedPrecondition, format+" (pod: %q, container: %s)", append(args, podName(pod), c.Name)...)
	}
	if user := first(own.RunAsUser, all.RunAsUser); user != nil {
		if *user == 0 {
			return refuse("container's runAsUser breaks non-root policy")
		}
		return nil
	}
	switch uid, name := image.GetUid(), image.GetUsername(); {
	case uid == nil && name != "":
		return refuse("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root", name)
	case uid.GetValue() == 0:
		return refuse("container has runAsNonRoot and image will run as root")
	default:
		if errs := validation.IsValidUserID(uid.GetValue()); len(errs) > 0 {
			return refuse("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)): %s",
				uid.GetValue(), math.MaxInt32, strings.Join(errs, "; "))
		}
	}
	return nil
}

func capabilities(own *corev1.Capabilities) *runtime.Capability {
	if own == nil {
		return nil
	}
	out := &runtime.Capability{}
	for _, name := range own.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range own.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

// seccomp is a seccomp profile; none is Unconfined, or RuntimeDefault with the node's
// SeccompDefault, a kubelet's seccompDefault (SE6). A Localhost one is a file below the node's
// folder of profiles.
func seccomp(node Node, p *corev1.SeccompProfile) (*runtime.SecurityProfile, error) {
	const field = "securityContext.seccompProfile"
	switch {
	case p == nil && node.SeccompDefault:
		return &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_RuntimeDefault}, nil
	case p == nil:
		return &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined}, nil
	}
	out, err := profile(field, string(p.Type), p.LocalhostProfile)
	if err != nil || out.ProfileType != runtime.SecurityProfile_Localhost || node.SeccompProfiles == "" {
		return out, err
	}
	name := out.LocalhostRef
	if !filepath.IsLocal(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return nil, invalid(field+".localhostProfile", "%q is not a path below the folder of profiles", name)
	}
	out.LocalhostRef = filepath.Join(node.SeccompProfiles, name)
	return out, nil
}

// appArmorProfile is the container's profile: its own, else that of the old annotation, else the
// pod's, else nil.
func appArmorProfile(pod *corev1.Pod, c *corev1.Container) *corev1.AppArmorProfile {
	own, all := securityContexts(pod, c)
	if own.AppArmorProfile != nil {
		return own.AppArmorProfile
	}
	switch value := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; {
	case value == "":
		return all.AppArmorProfile
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case strings.HasPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		name := strings.TrimPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	default:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileType(value)} // refused as not known
	}
}

// CheckAppArmor says whether the node can enforce the profiles that the pod asks for. enabled says
// that it has AppArmor.
//
// # Errors
//
// ErrFailedPrecondition with a kubelet's message, for a pod that fails with reason AppArmor.
func CheckAppArmor(pod *corev1.Pod, enabled bool) error {
	if enabled {
		return nil
	}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for _, e := range pod.Spec.EphemeralContainers {
		containers = append(containers, corev1.Container(e.EphemeralContainerCommon))
	}
	for i := range containers {
		if p := appArmorProfile(pod, &containers[i]); p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined {
			return classed(errdefs.ErrFailedPrecondition, "Cannot enforce AppArmor: AppArmor is not enabled on the host")
		}
	}
	return nil
}

// appArmor is an AppArmor profile; nil leaves it to the server.
func appArmor(p *corev1.AppArmorProfile) (*runtime.SecurityProfile, error) {
	if p == nil {
		return nil, nil
	}
	return profile("securityContext.appArmorProfile", string(p.Type), p.LocalhostProfile)
}

func profile(field, kind string, local *string) (*runtime.SecurityProfile, error) {
	n, ok := runtime.SecurityProfile_ProfileType_value[kind]
	if !ok {
		return nil, invalid(field+".type", "%q is not known", kind)
	}
	out := &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_ProfileType(n)}
	switch {
	case out.ProfileType != runtime.SecurityProfile_Localhost:
	case local == nil || *local == "":
		return nil, invalid(field+".localhostProfile", "must be set if the type is Localhost")
	default:
		out.LocalhostRef = *local
	}
	return out, nil
}

// podGroups are the groups of all processes of the pod, fsGroup first as a kubelet has it.
func podGroups(sc *corev1.PodSecurityContext) []int64 {
	var groups []int64
	if sc.FSGroup != nil {
		groups = append(groups, *sc.FSGroup)
	}
	return append(groups, sc.SupplementalGroups...)
}

func groupsPolicy(sc *corev1.PodSecurityContext) (runtime.SupplementalGroupsPolicy, error) {
	if sc.SupplementalGroupsPolicy == nil {
		return runtime.SupplementalGroupsPolicy_Merge, nil
	}
	n, ok := runtime.SupplementalGroupsPolicy_value[string(*sc.SupplementalGroupsPolicy)]
	if !ok {
		return 0, invalid("spec.securityContext.supplementalGroupsPolicy", "%q is not known", *sc.SupplementalGroupsPolicy)
	}
	return runtime.SupplementalGroupsPolicy(n), nil
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
