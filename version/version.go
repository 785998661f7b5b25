// Package version tells which version of the program this is, as Semantic Versioning writes it. Of
// any other text a kubelet makes "Unknown" in its node's status.
package version

import (
	"runtime/debug"
	"strings"

	"golang.org/x/mod/semver"
)

// next is the version that is being worked on.
const next = "0.1.0-dev"

// stamp is set by the linker: a release's tag, or else the commit.
var stamp string

// String is the program's version: that of its tag, or the next one's with the commit as build
// metadata.
func String() string {
	if stamp == "" {
		if info, ok := debug.ReadBuildInfo(); ok {
			return of(info.Main.Version) // by `go install`, or as Go has read it from a checkout
		}
	}
	return of(stamp)
}

// of makes a version of a stamp. A stamp that is not a version becomes build metadata, as far as
// that may have its characters.
func of(stamp string) string {
	if v := strings.TrimPrefix(stamp, "v"); semantic(v) {
		return v
	}
	build := strings.Trim(strings.Map(func(r rune) rune {
		if identifying(r) {
			return r
		}
		return '.'
	}, stamp), ".")
	for strings.Contains(build, "..") {
		build = strings.ReplaceAll(build, "..", ".")
	}
	if build == "" || build == "devel" { // a build without a stamp and without a checkout
		return next
	}
	return next + "+" + build
}

// semantic says whether a text is a whole version of Semantic Versioning 2.0.0.
func semantic(v string) bool {
	v = "v" + v
	return semver.IsValid(v) && semver.Canonical(v)+semver.Build(v) == v
}

func identifying(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-'
}
