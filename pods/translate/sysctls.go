package translate

import (
	"strings"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/host/sysctl"
)

// safeSysctls are those that every pod may set: they are of a namespace and harm nobody else.
func safeSysctls() []string {
	return []string{
		"kernel.shm_rmid_forced",
		"net.ipv4.ip_local_port_range",
		"net.ipv4.tcp_syncookies",
		"net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start",
		"net.ipv4.ip_local_reserved_ports",
		"net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl",
		"net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_rmem",
		"net.ipv4.tcp_wmem",
	}
}

// CheckSysctls says whether the pod may set the sysctls that it wants. unsafe are names, or
// prefixes that end with an asterisk, that are allowed in addition to the safe ones.
//
// # Errors
//
// ErrFailedPrecondition with a kubelet's message, for a pod that fails with reason SysctlForbidden.
func CheckSysctls(pod *corev1.Pod, unsafe []string) error {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	allowed := append(safeSysctls(), unsafe...)
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := sysctl.Dotted(s.Name)
		if !matches(allowed, name) {
			return classed(errdefs.ErrFailedPrecondition, "forbidden sysctl: %q not allowlisted", name)
		}
		namespace, host := "", false
		switch {
		case strings.HasPrefix(name, "net."):
			namespace, host = "net", pod.Spec.HostNetwork
		case strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem", strings.HasPrefix(name, "fs.mqueue."):
			namespace, host = "ipc", pod.Spec.HostIPC
		default:
			return classed(errdefs.ErrFailedPrecondition, "forbidden sysctl: %q is not known to be namespaced", name)
		}
		if host {
			return classed(errdefs.ErrFailedPrecondition, "forbidden sysctl: %q not allowed with host %s enabled", name, namespace)
		}
	}
	return nil
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		prefix, open := strings.CutSuffix(sysctl.Dotted(p), "*")
		if name == prefix || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func sysctls(pod *corev1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		out[sysctl.Dotted(s.Name)] = s.Value
	}
	return out
}
