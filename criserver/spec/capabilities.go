package spec

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCapabilities is what a container has that asks for nothing.
var defaultCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// knownCapabilities are the kernel's, in the order of their numbers.
var knownCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN",
	"CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT",
	"CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
	"CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL",
	"CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",
	"CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}

// KnownCapabilities returns the names of the kernel's capabilities; the index
// is the capability's number.
func KnownCapabilities() []string { return slices.Clone(knownCapabilities) }

// capabilities: ALL first, in both lists, then single names; what is dropped
// stays dropped. Nothing is inheritable unless asked for as ambient, so that
// a program with file capabilities gains nothing by the container's.
func (in *Input) capabilities(s *specs.Spec) error {
	host := in.Host.Capabilities
	if host == nil {
		host = knownCapabilities
	}
	if in.privileged() {
		s.Process.Capabilities = capabilitySet(host)
		return nil
	}
	wish := in.security().GetCapabilities()
	add, err := capabilityNames(in.Host, "add_capabilities", wish.GetAddCapabilities())
	if err != nil {
		return err
	}
	drop, err := capabilityNames(in.Host, "drop_capabilities", wish.GetDropCapabilities())
	if err != nil {
		return err
	}
	ambient, err := capabilityNames(in.Host, "add_ambient_capabilities", wish.GetAddAmbientCapabilities())
	if err != nil {
		return err
	}
	set := slices.DeleteFunc(slices.Clone(defaultCapabilities), func(c string) bool { return !slices.Contains(host, c) })
	if slices.Contains(add, "ALL") {
		set = slices.Clone(host)
	}
	if slices.Contains(drop, "ALL") {
		set = nil
	}
	for _, c := range append(add, ambient...) {
		if c == "ALL" || slices.Contains(set, c) {
			continue
		}
		if !slices.Contains(host, c) {
			return unmet("linux.security_context.capabilities", "this host cannot give %s", c)
		}
		set = append(set, c)
	}
	set = slices.DeleteFunc(set, func(c string) bool { return slices.Contains(drop, c) })
	s.Process.Capabilities = capabilitySet(set)
	for _, c := range ambient {
		if c == "ALL" || !slices.Contains(set, c) {
			return invalid("linux.security_context.capabilities.add_ambient_capabilities", "%s is not among the container's capabilities", c)
		}
		s.Process.Capabilities.Ambient = append(s.Process.Capabilities.Ambient, c)
		s.Process.Capabilities.Inheritable = append(s.Process.Capabilities.Inheritable, c)
	}
	return nil
}

func capabilitySet(set []string) *specs.LinuxCapabilities {
	set = slices.Clone(set)
	slices.Sort(set)
	return &specs.LinuxCapabilities{Bounding: set, Effective: slices.Clone(set), Permitted: slices.Clone(set)}
}

// capabilityNames writes names in one way: upper case with the prefix.
func capabilityNames(host Host, field string, names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		n := strings.ToUpper(name)
		if n == "ALL" || n == "CAP_ALL" {
			out = append(out, "ALL")
			continue
		}
		if !strings.HasPrefix(n, "CAP_") {
			n = "CAP_" + n
		}
		if !slices.Contains(knownCapabilities, n) && !slices.Contains(host.Capabilities, n) {
			return nil, invalid("linux.security_context.capabilities."+field, "%q is not a capability", name)
		}
		out = append(out, n)
	}
	return out, nil
}
