package validation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/host/sysctl"
	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// sysctlName is the API server's: parts of lower-case letters, digits, - and _ with a dot or a
// slash between them.
var sysctlName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)
})

const maxSysctlName, maxProfileName = 253, 4095

// appArmorAnnotation starts the annotation that was there before the field, with the container's
// name after it (SE7).
const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

// checkPodSecurity checks the security context of the Pod as a whole.
func checkPodSecurity(p *fields.Problems, s *corev1.PodSpec) {
	c := s.SecurityContext
	const at = "spec.securityContext"
	checkUser(p, at+".runAsUser", c.RunAsUser)
	checkGroup(p, at+".runAsGroup", c.RunAsGroup)
	checkGroup(p, at+".fsGroup", c.FSGroup)
	for i := range c.SupplementalGroups {
		checkGroup(p, fmt.Sprintf("%s.supplementalGroups[%d]", at, i), &c.SupplementalGroups[i])
	}
	if v := c.SupplementalGroupsPolicy; v != nil {
		fields.OneOf(p, at+".supplementalGroupsPolicy", *v, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if v := c.FSGroupChangePolicy; v != nil {
		fields.OneOf(p, at+".fsGroupChangePolicy", *v, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	}
	if v := c.SELinuxChangePolicy; v != nil {
		fields.OneOf(p, at+".seLinuxChangePolicy", *v, corev1.SELinuxChangePolicyRecursive, corev1.SELinuxChangePolicyMountOption)
	}
	checkSeccomp(p, at+".seccompProfile", c.SeccompProfile)
	checkAppArmor(p, at+".appArmorProfile", c.AppArmorProfile)
	checkSysctls(p, at+".sysctls", c.Sysctls)
}

// checkSysctls checks the form of SE12; which names are allowed is known to the node.
func checkSysctls(p *fields.Problems, path string, sysctls []corev1.Sysctl) {
	names := map[string]bool{}
	for i, s := range sysctls {
		at := fmt.Sprintf("%s[%d].name", path, i)
		if !p.Required(at, s.Name) {
			continue
		}
		if len(s.Name) > maxSysctlName || !sysctlName().MatchString(s.Name) {
			p.Value(at, s.Name, "is no name of a sysctl, as kernel.shmmax or net/ipv4/conf/eth0.1/forwarding")
			continue
		}
		name := sysctl.Dotted(s.Name)
		if names[name] {
			p.Value(at, s.Name, "stands there twice")
		}
		names[name] = true
	}
}

// checkSecurity checks a container's security context (SE3, SE4, SE9).
func checkSecurity(p *fields.Problems, pod *corev1.Pod, c Container) {
	s := c.SecurityContext
	if s == nil {
		return
	}
	at := c.Path + ".securityContext"
	checkUser(p, at+".runAsUser", s.RunAsUser)
	checkGroup(p, at+".runAsGroup", s.RunAsGroup)
	checkSeccomp(p, at+".seccompProfile", s.SeccompProfile)
	checkAppArmor(p, at+".appArmorProfile", s.AppArmorProfile)
	if a := s.AllowPrivilegeEscalation; a != nil && !*a {
		if is(s.Privileged) {
			p.Add(at+".allowPrivilegeEscalation", "must not be false when privileged is true")
		}
		if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
			p.Add(at+".allowPrivilegeEscalation", "must not be false when capabilities.add has CAP_SYS_ADMIN")
		}
	}
	if m := s.ProcMount; m != nil {
		fields.OneOf(p, at+".procMount", *m, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *m == corev1.UnmaskedProcMount && (pod.Spec.HostUsers == nil || *pod.Spec.HostUsers) {
			p.Value(at+".procMount", string(*m), "needs spec.hostUsers false")
		}
	}
}

func checkUser(p *fields.Problems, path string, id *int64) {
	if id != nil {
		p.Value(path, *id, validation.IsValidUserID(*id)...)
	}
}

func checkGroup(p *fields.Problems, path string, id *int64) {
	if id != nil {
		p.Value(path, *id, validation.IsValidGroupID(*id)...)
	}
}

// checkSeccomp checks the form of SE6.
func checkSeccomp(p *fields.Problems, path string, s *corev1.SeccompProfile) {
	if s == nil {
		return
	}
	fields.OneOf(p, path+".type", s.Type, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeLocalhost,
		corev1.SeccompProfileTypeUnconfined)
	if checkLocal(p, path, string(s.Type), string(corev1.SeccompProfileTypeLocalhost), s.LocalhostProfile) {
		checkDescending(p, path+".localhostProfile", *s.LocalhostProfile)
	}
}

// checkAppArmor checks the form of SE7.
func checkAppArmor(p *fields.Problems, path string, a *corev1.AppArmorProfile) {
	if a == nil {
		return
	}
	fields.OneOf(p, path+".type", a.Type, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeLocalhost,
		corev1.AppArmorProfileTypeUnconfined)
	if checkLocal(p, path, string(a.Type), string(corev1.AppArmorProfileTypeLocalhost), a.LocalhostProfile) {
		checkProfileName(p, path+".localhostProfile", *a.LocalhostProfile)
	}
}

// checkLocal says whether a profile of the node is named, as its type wants it.
func checkLocal(p *fields.Problems, path, have, localhost string, profile *string) bool {
	switch {
	case have == localhost && value(profile) == "":
		p.Add(path+".localhostProfile", "is required with type Localhost")
	case have != localhost && profile != nil:
		p.Add(path+".localhostProfile", "must not be given without type Localhost")
	default:
		return profile != nil
	}
	return false
}

func checkProfileName(p *fields.Problems, path, name string) {
	if strings.TrimSpace(name) != name || name == "" || len(name) > maxProfileName {
		p.Value(path, name, fmt.Sprintf("must have 1 to %d characters and no blanks around them", maxProfileName))
	}
}

// checkAppArmorAnnotations checks the values of the old annotations and that their containers
// exist.
func checkAppArmorAnnotations(p *fields.Problems, pod *corev1.Pod) {
	for _, key := range sorted(pod.Annotations) {
		name, ok := strings.CutPrefix(key, appArmorAnnotation)
		if !ok {
			continue
		}
		path := fmt.Sprintf("metadata.annotations[%s]", key)
		if !slices.ContainsFunc(Containers(pod), func(c Container) bool { return c.Name == name }) {
			p.Value(path, name, "is no container of this pod")
		}
		profile := pod.Annotations[key]
		if local, ok := strings.CutPrefix(profile, "localhost/"); ok {
			checkProfileName(p, path, local)
		} else if profile != "unconfined" && profile != "runtime/default" {
			p.Value(path, profile, "must be unconfined, runtime/default or localhost/NAME")
		}
	}
}
