// Package wazeroversion tells which wazero a binary is linked with, and whether it is the one that
// this project was checked with.
//
// Two parts build on the inside of wazero and not on its interface: the rewriting of Go's functions
// (package gowasm), and the two steps of a compilation that use wazero's cache files and the fields
// that hold machine code (package compile). With any other wazero they refuse, and modules are
// compiled and run in the plain way.
package wazeroversion

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// Path is wazero's module path.
const Path = "github.com/tetratelabs/wazero"

// Checked is the version that was checked, and checkedSum its checksum in go.sum. Before they are
// changed:
//
//   - run the tests of packages compile and gowasm, and the differential suite (make gowasm-diff);
//   - read wazero's engine_cache.go (the layout of a cache file) and engine.go (where machine code
//     is kept between loading and instantiating a module). What code does at run time must be
//     decided by the cache file alone, and data segments must only be copied.
const (
	Checked    = "v1.12.0"
	checkedSum = "h1:DuWcpNu/FzgEXgGBDp8J1Spc+CWOvvtvVyjKlaZopYU="
)

// project is this project's module path.
const project = "github.com/sunaba-project/sunaba"

// Unknown stands for the version in a binary that does not tell.
const Unknown = "unknown"

// Linked returns the whole version: version and checksum, or what takes the module's place.
func Linked() string { return linked(debug.ReadBuildInfo()) }

// In returns the whole version of wazero in the binary that info tells of, "" if it does not tell.
func In(info *debug.BuildInfo) string {
	if m := find(info, info != nil); m != nil {
		return whole(m)
	}
	return ""
}

// Check returns nil if this binary is linked with the checked version.
//
// # Errors
//
// One that names both versions and says what to do.
func Check() error { return check(debug.ReadBuildInfo()) }

func linked(info *debug.BuildInfo, told bool) string {
	if !told {
		info = nil
	}
	return cmp.Or(In(info), Unknown)
}

func check(info *debug.BuildInfo, told bool) error {
	m := find(info, told)
	if m != nil && m.Replace == nil && m.Version == Checked && m.Sum == checkedSum {
		return nil
	}
	if m == nil && told && isTest(info) {
		return nil
	}
	return fmt.Errorf("wazero %s %s was checked, and this binary has %s: %w", Checked, checkedSum, linked(info, told), errBuild)
}

var errBuild = errors.New("build it with the wazero of the project's go.mod, without replace, vendor folder and go.work")

// isTest says whether a binary is a test of this project. Such binaries do not tell what they are
// linked with; they are built by the project's go.mod, which a test of this package looks at.
func isTest(info *debug.BuildInfo) bool {
	return len(info.Deps) == 0 && info.Main.Path == project && strings.HasSuffix(info.Path, ".test")
}

// find returns what a binary says of wazero, nil if it says nothing.
func find(info *debug.BuildInfo, told bool) *debug.Module {
	if !told {
		return nil
	}
	for _, m := range info.Deps {
		if m.Path == Path {
			return m
		}
	}
	return nil
}

// whole is the version of a module with its checksum, which a vendor folder and go.work leave out,
// and what replaces it.
func whole(m *debug.Module) string {
	text := m.Version
	if m.Sum != "" {
		text += " " + m.Sum
	}
	if m.Replace != nil {
		text += " => " + strings.TrimSpace(m.Replace.Path+" "+whole(m.Replace))
	}
	return text
}
