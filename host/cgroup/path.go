package cgroup

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// MountPoint is where the hierarchies are mounted: the unified one, or in folders those of version
// 1.
const MountPoint = "/sys/fs/cgroup"

// Unified says whether the machine has the unified hierarchy (version 2) and no other.
func Unified() bool { return Is(MountPoint, unix.CGROUP2_SUPER_MAGIC) }

// Is says whether a filesystem of a kind, by its number of statfs(2), is mounted at a path.
func Is(path string, magic int64) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && int64(s.Type) == magic
}

const (
	sliceSuffix = ".slice"
	scopeSuffix = ".scope"
)

// Path turns an OCI cgroupsPath into a path below a hierarchy's root. With systemd it has the form
// "slice:prefix:name", and the unit is "prefix-name.scope", also with an empty prefix, unless name
// is a slice's: so runc has it (getUnitName of opencontainers/cgroups). It returns "" for a
// relative path, which is below the runtime's own cgroup, and for what is not of that form.
func Path(cgroupsPath string, systemd bool) string {
	if !systemd {
		if !filepath.IsAbs(cgroupsPath) {
			return ""
		}
		return filepath.Clean(cgroupsPath)
	}
	parts := strings.Split(cgroupsPath, ":")
	if len(parts) != 3 {
		return ""
	}
	slice, prefix, name := parts[0], parts[1], parts[2]
	slice = cmp.Or(slice, "system"+sliceSuffix)
	if !IsSlice(slice) {
		return ""
	}
	if !strings.HasSuffix(name, sliceSuffix) {
		name = prefix + "-" + name + scopeSuffix
	}
	return filepath.Join(Slice(slice), name)
}

// IsSlice says whether systemd knows a name as that of a slice (systemd.slice(5)): each dash but
// that of the root slice "-.slice" stands between two names, and a slice is no template.
func IsSlice(unit string) bool {
	name, ok := strings.CutSuffix(unit, sliceSuffix)
	if name == "-" {
		return ok
	}
	foreign := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(`-_.\`, r)
	}
	return ok && !slices.Contains(strings.Split(name, "-"), "") && !strings.ContainsFunc(name, foreign)
}

// Slice turns a slice's name into its path below a hierarchy's root: "a-b.slice" is at
// /a.slice/a-b.slice (systemd.slice(5)).
func Slice(slice string) string {
	name := strings.TrimSuffix(slice, sliceSuffix)
	if name == "-" || name == "" {
		return "/"
	}
	path := "/"
	for i := range len(name) {
		if name[i] == '-' {
			path = filepath.Join(path, name[:i]+sliceSuffix)
		}
	}
	return filepath.Join(path, name+sliceSuffix)
}
