package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
)

// Driver says who makes cgroups.
type Driver string

const (
	// Cgroupfs makes them by mkdir.
	Cgroupfs Driver = "cgroupfs"
	// Systemd asks systemd for slices and scopes.
	Systemd Driver = "systemd"
)

const (
	prefix      = "sunaba" // scope prefix, and the folder of pods that came without a parent
	sliceSuffix = ".slice"
	ownShims    = "/" + prefix + "/shims" // holds the shims that pods share, driver cgroupfs
)

// Layout says where the cgroups of pods and containers are. It is pure.
type Layout struct{ Driver Driver }

// Pod returns the parent of all cgroups of a pod: the given one, or, if there is none, one of our own (owned), which is
// made before and removed after the pod.
//
// # Errors
//
// ErrInvalidArgument if the given parent is not of the driver's form.
func (l Layout) Pod(id, given string) (parent string, owned bool, err error) {
	if slices.Contains(strings.Split(given, "/"), "..") || strings.ContainsFunc(given, unicode.IsControl) {
		return "", false, fmt.Errorf("linux.cgroup_parent: %q leads above itself or holds a control character: %w", given, errdefs.ErrInvalidArgument)
	}
	switch {
	case given == "" && l.Driver == Systemd:
		return prefix + "-pod" + id + sliceSuffix, true, nil
	case given == "":
		return ownParent + "/pod-" + id, true, nil
	case l.Driver == Systemd:
		slice := path.Base(given)
		if !strings.HasSuffix(slice, sliceSuffix) {
			return "", false, fmt.Errorf("linux.cgroup_parent: %q is no slice, but the cgroup driver is systemd: %w", given, errdefs.ErrInvalidArgument)
		}
		return slice, false, nil
	default:
		return path.Clean("/" + given), false, nil
	}
}

// Leaf returns the cgroup of one container (or of a sandbox's shim) in the form of an OCI spec's cgroupsPath. It ends
// in the id, by which the kubelet recognises it.
func (l Layout) Leaf(parent, id string) string {
	if l.Driver == Systemd {
		return parent + ":" + prefix + ":" + id
	}
	return path.Join(parent, id)
}

// SpareLeaf returns the cgroup of the process that a sandbox's shim has at hand for the next guest, as long as it is no
// container's: it becomes the container's by another name. "" under systemd, whose cgroups keep their names.
func (l Layout) SpareLeaf(parent, id string) string {
	if l.Driver == Systemd {
		return ""
	}
	return l.Leaf(parent, id+"-spare")
}

// ShimLeaf returns the cgroup of a shim that several pods share, beside those of pods that came without a parent, as OCI
// cgroupsPath. name tells it from those of other handlers and servers.
func (l Layout) ShimLeaf(name string) string {
	if l.Driver == Systemd {
		return l.Leaf(prefix+"-shims"+sliceSuffix, name)
	}
	return l.Leaf(ownShims, name)
}

// Path returns where a parent or a leaf is below the root of a hierarchy.
func (l Layout) Path(cgroup string) string {
	if l.Driver != Systemd {
		return path.Clean("/" + cgroup)
	}
	slice, rest, leaf := strings.Cut(cgroup, ":")
	dir := expandSlice(slice)
	if !leaf {
		return dir
	}
	pre, id, _ := strings.Cut(rest, ":")
	return path.Join(dir, pre+"-"+id+".scope")
}

// expandSlice turns a-b.slice into /a.slice/a-b.slice, as systemd.slice(5) defines it.
func expandSlice(slice string) string {
	name := strings.TrimSuffix(slice, sliceSuffix)
	if name == "" || name == "-" {
		return "/"
	}
	dir, sofar := "/", ""
	for _, part := range strings.Split(name, "-") {
		sofar += part
		dir = path.Join(dir, sofar+sliceSuffix)
		sofar += "-"
	}
	return dir
}
