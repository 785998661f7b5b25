package cgroup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/cgroup"
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
	scopeSuffix = ".scope"
	ownShims    = "/" + prefix + "/shims" // holds the shims that pods share, driver cgroupfs
)

// Layout says where the cgroups of pods and containers are. It is pure.
type Layout struct{ Driver Driver }

// maxPath bounds where a container's cgroup is below the root of a hierarchy. The kernel takes
// paths of 4096 bytes; the rest is for the mount point, for what a runtime or a container makes
// below, and for the names of files.
const maxPath = 2048

// maxName is how long a file's name may be.
const maxName = 255

// Pod returns the parent of all cgroups of a pod: the given one, or, without one, one of our
// own (owned), which is made before and removed after the pod.
//
// # Errors
//
// ErrInvalidArgument if the given parent is not of the driver's form, or no cgroup can have its
// name.
func (l Layout) Pod(id, given string) (parent string, owned bool, err error) {
	switch {
	case given == "" && l.Driver == Systemd:
		return prefix + "-pod" + id + sliceSuffix, true, nil
	case given == "":
		return ownParent + "/pod-" + id, true, nil
	}
	if parent, err = l.given(given); err != nil {
		return "", false, fmt.Errorf("linux.cgroup_parent: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return parent, false, nil
}

// given returns a parent that a client has named, in the one form in which records, runtimes and
// the kubelet name it.
func (l Layout) given(given string) (string, error) {
	parts := strings.Split(strings.TrimPrefix(given, "/"), "/")
	switch {
	case strings.ContainsFunc(given, unprintable):
		return "", fmt.Errorf("%.300q holds white space or a character that cannot be printed", given)
	case slices.ContainsFunc(parts, relative) && given != "/":
		return "", fmt.Errorf("%.300q holds an empty name, %q or %q", given, ".", "..")
	case slices.ContainsFunc(parts, func(part string) bool { return len(part) > maxName }):
		return "", fmt.Errorf("a name in %.300q is longer than %d bytes", given, maxName)
	}
	parent := path.Clean("/" + given)
	if l.Driver == Systemd {
		parent = path.Base(given)
		if !strings.HasSuffix(parent, sliceSuffix) {
			return "", fmt.Errorf("%.300q is no slice, but the cgroup driver is systemd", given)
		}
		if !cgroup.IsSlice(parent) {
			return "", fmt.Errorf("%.300q is not the name of a slice: see systemd.slice(5)", parent)
		}
	}
	if n := len(l.Path(l.Leaf(parent, strings.Repeat("x", idLength)))); n > maxPath {
		return "", fmt.Errorf("the cgroups of containers in %.300q would have paths of %d bytes, more than %d", given, n, maxPath)
	}
	return parent, nil
}

func unprintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// relative says whether a part of a path is "", "." or "..".
func relative(name string) bool { return name == "" || name == "." || name == ".." }

// idLength is how long the ids of containers are.
const idLength = 64

// Leaf returns the cgroup of one container (or of a sandbox's shim) in the form of an OCI spec's
// cgroupsPath. It ends in the id, by which the kubelet recognises it.
func (l Layout) Leaf(parent, id string) string {
	if l.Driver == Systemd {
		return parent + ":" + prefix + ":" + id
	}
	return path.Join(parent, id)
}

// leafID returns the id by which Leaf named a cgroup's folder, "" if it did not.
func (l Layout) leafID(folder string) string {
	if l.Driver == Systemd {
		name, scope := strings.CutSuffix(folder, scopeSuffix)
		id, ours := strings.CutPrefix(name, prefix+"-")
		if !scope || !ours {
			return ""
		}
		folder = id
	}
	if len(folder) != idLength || strings.Trim(folder, "0123456789abcdef") != "" {
		return ""
	}
	return folder
}

// ShimLeaf returns the cgroup of a shim that several pods share, beside those of pods that came
// without a parent, as OCI cgroupsPath. name tells it from those of other handlers and servers.
func (l Layout) ShimLeaf(name string) string {
	if l.Driver == Systemd {
		return l.Leaf(prefix+"-shims"+sliceSuffix, name)
	}
	return l.Leaf(ownShims, name)
}

// CompilerParent returns the parent of the cgroups in which a server has modules compiled. name
// tells it from those of other servers.
func (l Layout) CompilerParent(name string) string {
	if l.Driver == Systemd {
		return prefix + "-compiler" + name + sliceSuffix
	}
	return ownParent + "/compiler-" + name
}

// Path returns where a parent or a leaf is below the root of a hierarchy.
func (l Layout) Path(name string) string {
	if l.Driver != Systemd {
		return path.Clean("/" + strings.TrimPrefix(name, "/"))
	}
	if !strings.Contains(name, ":") {
		return cgroup.Slice(name)
	}
	return cgroup.Path(name, true)
}
