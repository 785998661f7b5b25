// Package version tells which version of the program this is, as Semantic Versioning writes it. Of
// any other text a kubelet makes "Unknown" in its node's status.
package version

import (
	"runtime/debug"
	"slices"
	"strings"
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

// semantic says whether a text is a version of Semantic Versioning 2.0.0.
func semantic(v string) bool {
	v, build, built := strings.Cut(v, "+")
	core, pre, early := strings.Cut(v, "-")
	numbers := strings.Split(core, ".")
	if len(numbers) != 3 || built && !identifiers(build, true) || early && !identifiers(pre, false) {
		return false
	}
	return !slices.ContainsFunc(numbers, func(n string) bool { return !numeric(n) || padded(n) })
}

// identifiers says whether a text is identifiers with dots between them. Only build metadata may
// have numbers with leading zeros.
func identifiers(text string, build bool) bool {
	for id := range strings.SplitSeq(text, ".") {
		if id == "" || strings.ContainsFunc(id, func(r rune) bool { return !identifying(r) }) || !build && numeric(id) && padded(id) {
			return false
		}
	}
	return true
}

func identifying(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-'
}

func numeric(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func padded(s string) bool { return len(s) > 1 && s[0] == '0' }
