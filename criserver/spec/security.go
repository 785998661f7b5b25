package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errRROUnsupported starts with the word by which clients know this refusal.
var errRROUnsupported = fmt.Errorf("RROUnsupported: kernel or runtime handler has no recursive read-only mounts: %w", errdefs.ErrFailedPrecondition)

// What a container may not see or change in the kernel's file systems unless
// the pod says otherwise.
var (
	defaultMasked = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
	defaultReadonly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// paths: the lists of a security context hold as they are, and an empty one hides nothing, which is
// what procMount Unmasked needs; kubelets send the defaults themselves. Only a container without
// any security context, such as a short crictl configuration, gets them from here.
func (in *Input) paths(s *specs.Spec) error {
	if in.privileged() {
		return nil
	}
	s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = DefaultPaths()
	if sc := in.security(); sc != nil {
		s.Linux.MaskedPaths = slices.Clone(sc.GetMaskedPaths())
		s.Linux.ReadonlyPaths = slices.Clone(sc.GetReadonlyPaths())
	}
	return eachPath(in.security(), func(field, p string) error {
		if !filepath.IsAbs(p) {
			return invalid(field, "%.300q is not an absolute path", p)
		}
		if err := CheckPath(p); err != nil {
			return invalid(field, "%w", err)
		}
		return nil
	})
}

// eachPath calls f for the paths of the security context that are masked or read-only, with their
// fields, until it fails.
func eachPath(sc *runtime.LinuxContainerSecurityContext, f func(field, p string) error) error {
	for _, list := range []struct {
		field string
		paths []string
	}{{"masked_paths", sc.GetMaskedPaths()}, {"readonly_paths", sc.GetReadonlyPaths()}} {
		for i, p := range list.paths {
			if err := f(fmt.Sprintf("linux.security_context.%s[%d]", list.field, i), p); err != nil {
				return err
			}
		}
	}
	return nil
}

// DefaultPaths returns what is hidden from a container and what it cannot write in /proc and /sys
// where nothing else is asked for; they are the kubelet's lists too.
func DefaultPaths() (masked, readonly []string) {
	return slices.Clone(defaultMasked), slices.Clone(defaultReadonly)
}

// profile reads a security profile from the field in use or from the
// deprecated one, whose "" means what none says. No profile at all is nil.
func profile(p *runtime.SecurityProfile, deprecated string) (*runtime.SecurityProfile, error) {
	if p == nil {
		ref, local := strings.CutPrefix(deprecated, "localhost/")
		switch {
		case deprecated == "":
			return nil, nil
		case deprecated == "runtime/default" || deprecated == "docker/default":
			p = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_RuntimeDefault}
		case deprecated == "unconfined":
			p = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Unconfined}
		case local:
			p = &runtime.SecurityProfile{ProfileType: runtime.SecurityProfile_Localhost, LocalhostRef: ref}
		default:
			return nil, fmt.Errorf("profile %q is not known: %w", deprecated, errdefs.ErrInvalidArgument)
		}
	}
	switch p.GetProfileType() {
	case runtime.SecurityProfile_RuntimeDefault, runtime.SecurityProfile_Unconfined:
		if p.GetLocalhostRef() != "" {
			return nil, fmt.Errorf("localhost_ref is given, but profile_type is %s: %w", p.GetProfileType(), errdefs.ErrInvalidArgument)
		}
	case runtime.SecurityProfile_Localhost:
		if p.GetLocalhostRef() == "" {
			return nil, fmt.Errorf("localhost_ref is empty, but profile_type is Localhost: %w", errdefs.ErrInvalidArgument)
		}
	default:
		return nil, fmt.Errorf("profile_type %s is not known: %w", p.GetProfileType(), errdefs.ErrInvalidArgument)
	}
	return p, nil
}

// SeccompFile returns the path of the profile that a container wants from the
// node, whose content belongs into Input.Seccomp; "" if it wants none.
//
// # Errors
//
// ErrInvalidArgument for a path that is not absolute, or a profile that contradicts itself.
func SeccompFile(container *runtime.ContainerConfig) (string, error) {
	sc := container.GetLinux().GetSecurityContext()
	if sc.GetPrivileged() {
		return "", nil
	}
	p, err := seccompProfile(sc)
	if err != nil || p.GetProfileType() != runtime.SecurityProfile_Localhost {
		return "", err
	}
	return p.GetLocalhostRef(), nil
}

func seccompProfile(sc *runtime.LinuxContainerSecurityContext) (*runtime.SecurityProfile, error) {
	p, err := profile(sc.GetSeccomp(), sc.GetSeccompProfilePath())
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	if p.GetProfileType() == runtime.SecurityProfile_Localhost && !filepath.IsAbs(p.GetLocalhostRef()) {
		return nil, fmt.Errorf("seccomp: localhost_ref: %q is not an absolute path: %w", p.GetLocalhostRef(), errdefs.ErrInvalidArgument)
	}
	return p, nil
}

// seccomp: a guest is confined by a filter made for it. Else no profile means no
// filter; the kubelet names RuntimeDefault where it is wanted.
func (in *Input) seccomp(s *specs.Spec) error {
	const field = "linux.security_context"
	p, err := seccompProfile(in.security())
	if err != nil {
		return inField(field, err)
	}
	if in.Guest || in.privileged() || p == nil || p.GetProfileType() == runtime.SecurityProfile_Unconfined {
		return nil
	}
	local := p.GetProfileType() == runtime.SecurityProfile_Localhost
	switch {
	case in.Host.NoSeccomp && local:
		return unmet(field+".seccomp", "the kernel has no seccomp filters")
	case in.Host.NoSeccomp:
	case !local:
		s.Linux.Seccomp = seccomp.DefaultProfile(s)
	default:
		filter := &specs.LinuxSeccomp{}
		if err := json.Unmarshal(in.Seccomp, filter); err != nil {
			return invalid(field+".seccomp", "read profile %q: %v", p.GetLocalhostRef(), err)
		}
		if filter.DefaultAction == "" {
			return invalid(field+".seccomp", "profile %q has no defaultAction", p.GetLocalhostRef())
		}
		s.Linux.Seccomp = filter
	}
	return nil
}

// DefaultAppArmor says whether a container is confined by the runtime's default
// profile, on a host that has AppArmor.
func DefaultAppArmor(container *runtime.ContainerConfig) bool {
	sc := container.GetLinux().GetSecurityContext()
	p, err := apparmorProfile(sc)
	return err == nil && !sc.GetPrivileged() && p.GetProfileType() == runtime.SecurityProfile_RuntimeDefault
}

func apparmorProfile(sc *runtime.LinuxContainerSecurityContext) (*runtime.SecurityProfile, error) {
	return profile(sc.GetApparmor(), sc.GetApparmorProfile())
}

// selinuxLevel is the form of a level: a sensitivity or a range of them, and categories.
const selinuxLevel = `^s\d{1,2}(-s\d{1,2})?(:c\d{1,4}(\.c\d{1,4})?(,c\d{1,4}(\.c\d{1,4})?)*)?$`

// checkSELinux checks the form of options; whether the policy has them is seen where labels are on.
func checkSELinux(o *runtime.SELinuxOption) error {
	const field = "selinux_options"
	if level := o.GetLevel(); level != "" && !regexp.MustCompile(selinuxLevel).MatchString(level) {
		return invalid(field+".level", "%q is not of the form s0:c1,c2", level)
	}
	for _, f := range []struct{ name, value string }{{"user", o.GetUser()}, {"role", o.GetRole()}, {"type", o.GetType()}} {
		if strings.ContainsAny(f.value, ": \t\n\x00") {
			return invalid(field+"."+f.name, "%q holds a colon or a blank", f.value)
		}
	}
	return nil
}

// apparmor: a guest is confined in its own way. Else no profile means the runtime's default, where
// the host has one; a privileged container is confined only by a profile that it names.
func (in *Input) apparmor(s *specs.Spec) error {
	const field = "linux.security_context.apparmor"
	p, err := apparmorProfile(in.security())
	if err != nil {
		return inField(field, err)
	}
	local := p.GetProfileType() == runtime.SecurityProfile_Localhost
	name := in.Host.AppArmorDefault
	if local {
		name = strings.TrimPrefix(p.GetLocalhostRef(), "localhost/")
	}
	switch {
	case in.Guest || p.GetProfileType() == runtime.SecurityProfile_Unconfined:
		return nil
	case !in.Host.AppArmor && p != nil:
		return unmet(field, "profile %q is asked for, but this host does not use AppArmor", cmp.Or(p.GetLocalhostRef(), p.GetProfileType().String()))
	case !in.Host.AppArmor || name == "" || in.privileged() && !local:
		return nil
	case in.Host.AppArmorLoaded != nil && !slices.Contains(in.Host.AppArmorLoaded, name):
		return unmet(field, "profile %q is not loaded on this host", name)
	}
	s.Process.ApparmorProfile = name
	return nil
}
