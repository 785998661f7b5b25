package spec

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxHostname is the kernel's __NEW_UTS_LEN.
	maxHostname = 64
	// maxName is the kernel's NAME_MAX, maxPath its PATH_MAX without the zero byte.
	maxName = 255
	maxPath = 4095
)

// CheckContainerName refuses the name of a container that is missing or longer
// than any that Kubernetes gives.
func CheckContainerName(name string) error {
	switch {
	case name == "":
		return invalid("metadata.name", "is empty")
	case len(name) > maxName:
		return invalid("metadata.name", "%.300q is longer than %d bytes", name, maxName)
	}
	return nil
}

// CheckPath refuses a path that no file can have.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("%.100q is longer than %d bytes", path, maxPath)
	}
	for part := range strings.SplitSeq(path, "/") {
		if len(part) > maxName {
			return fmt.Errorf("a name in %.300q is longer than %d bytes", path, maxName)
		}
	}
	if strings.Contains(path, "\x00") {
		return fmt.Errorf("%q holds a zero byte", path)
	}
	return nil
}

// ValidateSandbox checks a sandbox's configuration at the edge, before anything is made for it.
//
// # Errors
//
// ErrInvalidArgument or, for user namespaces, ErrNotImplemented; the text
// names the sandbox and the field.
func ValidateSandbox(config *runtime.PodSandboxConfig) error {
	if config == nil {
		return fmt.Errorf("sandbox configuration is missing: %w", errdefs.ErrInvalidArgument)
	}
	for _, check := range []func(*runtime.PodSandboxConfig) error{
		checkMetadata, checkHostname, checkLogs, checkSandboxSecurity, checkSandboxAmounts, checkSysctls, checkPorts, checkDNS,
	} {
		if err := check(config); err != nil {
			return fmt.Errorf("sandbox %q: %w", config.GetMetadata().GetName(), err)
		}
	}
	return nil
}

func checkMetadata(config *runtime.PodSandboxConfig) error {
	m := config.GetMetadata()
	for _, f := range []struct{ name, value string }{
		{"name", m.GetName()}, {"namespace", m.GetNamespace()}, {"uid", m.GetUid()},
	} {
		if f.value == "" {
			return invalid("metadata."+f.name, "is empty")
		}
		if strings.ContainsAny(f.value, "/\x00\n") {
			return invalid("metadata."+f.name, "%.300q holds a slash, a line break or a zero byte", f.value)
		}
		if len(f.value) > maxName {
			return invalid("metadata."+f.name, "%.300q is longer than %d bytes", f.value, maxName)
		}
	}
	return nil
}

// checkHostname: it becomes a line of /etc/hosts and the UTS name. Clients
// leave it out in spite of the CRI's word; see Hostname.
func checkHostname(config *runtime.PodSandboxConfig) error {
	name := config.GetHostname()
	switch {
	case len(name) > maxHostname:
		return invalid("hostname", "%.100q is longer than %d bytes", name, maxHostname)
	case strings.ContainsAny(name, " \t\r\n\x00/"):
		return invalid("hostname", "%q holds a character that no host name can", name)
	}
	return nil
}

func checkLogs(config *runtime.PodSandboxConfig) error {
	dir := config.GetLogDirectory()
	if dir != "" && !filepath.IsAbs(dir) {
		return invalid("log_directory", "%.300q is not an absolute path", dir)
	}
	if err := CheckPath(dir); err != nil {
		return invalid("log_directory", "%w", err)
	}
	return nil
}

func checkSandboxAmounts(config *runtime.PodSandboxConfig) error {
	if err := CheckPodAmounts(config.GetLinux().GetOverhead()); err != nil {
		return fmt.Errorf("linux.overhead.%w", err)
	}
	if err := CheckPodAmounts(config.GetLinux().GetResources()); err != nil {
		return fmt.Errorf("linux.resources.%w", err)
	}
	return nil
}

func network(config *runtime.PodSandboxConfig) runtime.NamespaceMode {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork()
}

func checkSandboxSecurity(config *runtime.PodSandboxConfig) error {
	const field = "linux.security_context"
	sc := config.GetLinux().GetSecurityContext()
	if err := checkModes(sc.GetNamespaceOptions(), false); err != nil {
		return fmt.Errorf("%s.namespace_options: %w", field, err)
	}
	if sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil {
		return invalid(field+".run_as_group", "is given without run_as_user")
	}
	if _, err := pauseUser(sc); err != nil {
		return fmt.Errorf("%s.%w", field, err)
	}
	if err := checkSELinux(sc.GetSelinuxOptions()); err != nil {
		return fmt.Errorf("%s.%w", field, err)
	}
	if _, err := profile(sc.GetSeccomp(), sc.GetSeccompProfilePath()); err != nil {
		return fmt.Errorf("%s.seccomp: %w", field, err)
	}
	if _, err := profile(sc.GetApparmor(), ""); err != nil {
		return fmt.Errorf("%s.apparmor: %w", field, err)
	}
	return nil
}

func checkPorts(config *runtime.PodSandboxConfig) error {
	type key struct {
		protocol runtime.Protocol
		ip       string
		port     int32
	}
	seen := map[key]int{}
	for i, p := range config.GetPortMappings() {
		name := func(f string) string { return field("port_mappings", i, f) }
		if _, ok := runtime.Protocol_name[int32(p.GetProtocol())]; !ok {
			return invalid(name("protocol"), "%d is not known", p.GetProtocol())
		}
		if p.GetContainerPort() < 0 || p.GetContainerPort() > 65535 {
			return invalid(name("container_port"), "%d is not a port", p.GetContainerPort())
		}
		if p.GetHostPort() > 65535 {
			return invalid(name("host_port"), "%d is not a port", p.GetHostPort())
		}
		if p.GetHostIp() != "" {
			if _, err := netip.ParseAddr(p.GetHostIp()); err != nil {
				return invalid(name("host_ip"), "%q is not an IP address", p.GetHostIp())
			}
		}
		if p.GetHostPort() <= 0 { // no port of the host
			continue
		}
		if p.GetContainerPort() == 0 {
			return invalid(name("container_port"), "is 0, but host_port is %d", p.GetHostPort())
		}
		k := key{p.GetProtocol(), p.GetHostIp(), p.GetHostPort()}
		if first, ok := seen[k]; ok {
			return invalid(name("host_port"), "%d is the host port of port_mappings[%d] too", p.GetHostPort(), first)
		}
		seen[k] = i
	}
	return nil
}

// checkDNS: each word becomes part of a line of resolv.conf.
func checkDNS(config *runtime.PodSandboxConfig) error {
	dns := config.GetDnsConfig()
	for _, f := range []struct {
		name  string
		words []string
	}{{"servers", dns.GetServers()}, {"searches", dns.GetSearches()}, {"options", dns.GetOptions()}} {
		for i, w := range f.words {
			if w == "" || strings.ContainsAny(w, " \t\r\n\x00") {
				return invalid(fmt.Sprintf("dns_config.%s[%d]", f.name, i), "%q is empty or holds a blank", w)
			}
		}
	}
	return nil
}
