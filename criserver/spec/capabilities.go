package spec

import (
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCapabilities is what a container has that asks for nothing.
var defaultCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// capabilities: ALL first, in both lists, then single names; what is dropped
// stays dropped. Nothing is inheritable unless asked for as ambient, so that
// a program with file capabilities gains nothing by the container's.
func (in *Input) capabilities(s *specs.Spec) error {
	host := in.Host.Capabilities
	if host == nil {
		host = cap.Known()
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
		if !slices.Contains(cap.Known(), n) && !slices.Contains(host.Capabilities, n) {
			return nil, invalid("linux.security_context.capabilities."+field, "%q is not a capability", name)
		}
		out = append(out, n)
	}
	return out, nil
}
