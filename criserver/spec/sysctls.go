package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ipcSysctls are the names of kernel parameters that belong to an IPC
// namespace; fs.mqueue. does too.
var ipcSysctls = []string{
	"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem", "kernel.shmall", "kernel.shmmax",
	"kernel.shmmni", "kernel.shm_rmid_forced", "kernel.auto_msgmni", "kernel.msg_next_id", "kernel.sem_next_id", "kernel.shm_next_id",
}

// Sysctls returns the kernel parameters to set in a sandbox's namespaces, with
// dots: the configuration's, and for a pod with a network of its own those
// that let its users bind every port and send echo requests. The
// configuration must have passed ValidateSandbox.
func Sysctls(config *runtime.PodSandboxConfig) map[string]string {
	out := map[string]string{}
	if network(config) != runtime.NamespaceMode_NODE {
		out["net.ipv4.ip_unprivileged_port_start"] = "0"
		out["net.ipv4.ping_group_range"] = "0 2147483647"
	}
	for name, value := range config.GetLinux().GetSysctls() {
		out[dotted(name)] = value
	}
	return out
}

// dotted turns "net/ipv4/conf/eth0.1/x" into the form with dots, in which a
// dot of an interface's name is written as a slash, as sysctl(8) has it.
func dotted(name string) string {
	i := strings.IndexAny(name, "./")
	if i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// checkSysctls accepts what belongs to a namespace that the pod has for
// itself; anything else would change the host.
func checkSysctls(config *runtime.PodSandboxConfig) error {
	sysctls := config.GetLinux().GetSysctls()
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	for _, raw := range slices.Sorted(maps.Keys(sysctls)) {
		field := fmt.Sprintf("linux.sysctls[%.300s]", raw)
		name := dotted(raw)
		if strings.ContainsAny(sysctls[raw], "\x00\n") {
			return invalid(field, "the value holds a line break or a zero byte")
		}
		if plain := "." + strings.ReplaceAll(name, "/", ".") + "."; strings.Contains(plain, "..") || strings.ContainsAny(plain, " \t\n\x00") || len(plain) > maxName {
			return invalid(field, "is not the name of a kernel parameter")
		}
		switch {
		case slices.Contains(ipcSysctls, name) || strings.HasPrefix(name, "fs.mqueue."):
			if options.GetIpc() == runtime.NamespaceMode_NODE {
				return invalid(field, "belongs to the IPC namespace, which is the host's")
			}
		case strings.HasPrefix(name, "net."):
			if options.GetNetwork() == runtime.NamespaceMode_NODE {
				return invalid(field, "belongs to the network namespace, which is the host's")
			}
		case name == "kernel.domainname":
			if options.GetNetwork() == runtime.NamespaceMode_NODE {
				return invalid(field, "belongs to the UTS namespace, which is the host's")
			}
		default:
			return invalid(field, "does not belong to a namespace, so it would change the host")
		}
	}
	return nil
}
