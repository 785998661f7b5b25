package netns

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	rules "github.com/sunaba-project/sunaba/host/sysctl"
)

// netDefaults hold in every network namespace of a pod unless the pod says otherwise: its own ports
// below 1024 and its own pings are no concern of the node's. containerd and CRI-O set the same two.
var netDefaults = map[string]string{
	"net.ipv4.ip_unprivileged_port_start": "0",
	"net.ipv4.ping_group_range":           "0 2147483647",
}

type sysctl struct {
	name     string // as given
	path     string // below /proc/sys
	value    string
	optional bool // a default of ours: a kernel without it is fine
}

// parseSysctls checks the sysctls of o against its namespaces and adds the defaults, in the order
// of their names.
func parseSysctls(o PinOptions) ([]sysctl, error) {
	var out []sysctl
	given := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(o.Sysctls)) {
		p, err := sysctlPath(name)
		if err != nil {
			return nil, err
		}
		if err := checkNamespace(name, p, o); err != nil {
			return nil, err
		}
		if given[p] {
			return nil, fmt.Errorf("sysctl %q: given twice: %w", name, errdefs.ErrInvalidArgument)
		}
		given[p] = true
		out = append(out, sysctl{name: name, path: p, value: o.Sysctls[name]})
	}
	if !o.Net {
		return out, nil
	}
	for _, name := range slices.Sorted(maps.Keys(netDefaults)) {
		p, err := sysctlPath(name)
		if err != nil {
			return nil, err
		}
		if !given[p] {
			out = append(out, sysctl{name: name, path: p, value: netDefaults[name], optional: true})
		}
	}
	return out, nil
}

// sysctlPath turns a name into a path below /proc/sys.
func sysctlPath(name string) (string, error) {
	p := rules.Slashed(name)
	if !filepath.IsLocal(p) || path.Clean(p) != p || !strings.Contains(p, "/") || strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("sysctl %q: not a name of a sysctl: %w", name, errdefs.ErrInvalidArgument)
	}
	return p, nil
}

func checkNamespace(name, p string, o PinOptions) error {
	need, have := rules.NamespaceOf(p), false
	switch need {
	case rules.Network:
		have = o.Net
	case rules.IPC:
		have = o.IPC
	case rules.UTS:
		have = o.UTS
	default:
		if p == "kernel/hostname" {
			return fmt.Errorf("sysctl %q: the hostname of a pod is not set by a sysctl: %w", name, errdefs.ErrInvalidArgument)
		}
		return fmt.Errorf("sysctl %q: unknown or not namespaced: %w", name, errdefs.ErrInvalidArgument)
	}
	if !have {
		return fmt.Errorf("sysctl %q: needs an %s namespace of the pod's own: %w", name, need, errdefs.ErrInvalidArgument)
	}
	return nil
}

// ipc reports whether the sysctl belongs to the IPC namespace.
func (s sysctl) ipc() bool {
	return rules.NamespaceOf(s.path) == rules.IPC
}

// late reports whether the sysctl belongs to an interface that network setup makes after the
// pinning.
func (s sysctl) late() bool {
	parts := strings.Split(s.path, "/") // net/ipv4/conf/eth0/rp_filter, net/ipv6/neigh/eth0/…
	if len(parts) < 5 || parts[0] != "net" || (parts[2] != "conf" && parts[2] != "neigh") {
		return false
	}
	return !slices.Contains([]string{"all", "default", "lo"}, parts[3])
}

// set writes the sysctl in the namespaces of the thread.
func (s sysctl) set() error {
	err := rules.Write(s.path, s.value)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist) && s.optional:
		return nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		// In a network namespace of its own the kernel hides or write-protects what is not namespaced.
		return fmt.Errorf("sysctl %q: unknown or not namespaced in this kernel: %w", s.name, errdefs.ErrInvalidArgument)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.EISDIR):
		return fmt.Errorf("sysctl %q: the kernel refuses the value %q: %w", s.name, s.value, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("set sysctl %q: %w", s.name, err)
}

// SetInterfaceSysctls sets those of a pod's sysctls that name an interface which network setup has
// made meanwhile in the network namespace pinned in dir. Without any it does nothing.
//
// # Errors
//
// ErrInvalidArgument for a sysctl that this interface does not have, or when there is no such
// interface.
func SetInterfaceSysctls(dir string, sysctls map[string]string) error {
	all, err := parseSysctls(PinOptions{Net: true, IPC: true, UTS: true, Sysctls: sysctls})
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s sysctl) bool { return !s.late() })
	if len(all) == 0 {
		return nil
	}
	return Do(filepath.Join(dir, NetFile), func() error {
		for _, s := range all {
			if err := s.set(); err != nil {
				return err
			}
		}
		return nil
	})
}
