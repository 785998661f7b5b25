package main

import (
	"slices"
	"strings"
)

// roots are the folders whose packages are tested.
var roots = []string{"criserver/spec", "images", "runtimeclass", "shim/wasm"}

// shortRoots are the packages that -short tests.
var shortRoots = []string{"criserver/spec", "images", "runtimeclass", "shim/wasm/wasip1"}

// chosen says whether a package is one of those that are tested.
func (s *settings) chosen(name string) bool {
	if s.short {
		return slices.Contains(shortRoots, name)
	}
	return slices.ContainsFunc(roots, func(root string) bool { return name == root || strings.HasPrefix(name, root+"/") })
}

// left is what is not tested: of an architecture, or of all ("").
var left = []struct {
	arch, pkg string
	test      string // "" for the whole package
	short     bool   // only -short leaves it out
	reason    string
}{
	{"", "images", "TestKill", false, "an emulated child is killed before it has pulled anything"},
	{"", "images", "TestPowerLoss", false, "a user namespace mounts no ext4"},
	{"", "images", "TestFullDisk/ext4", false, "a user namespace mounts no ext4"},
	{"", "images", "TestPushFromAFullDisk", false, "a user namespace mounts no ext4"},
	{"", "images", "TestIndexesAreBounded", true, "it hashes and reads JSON, a minute long"},
	{"", "images", "TestImagesOfManyLayers", true, "it packs 500 layers, a minute long"},
	{"", "images/unpack", "TestLayers", false, "a user namespace sets no trusted attributes, which make a folder opaque"},
	{"", "images/unpack", "TestSpecialEntries", false, "a user namespace makes no devices"},
	{"", "images/unpack", "TestUnpackedAsByContainerd", false, "containerd leaves out devices in a user namespace"},

	{"", "shim/wasm/cage", "TestCage", false, "qemu has no seccomp"},
	{"", "shim/wasm/compile", "", false, "qemu has no seccomp, which a compiling process locks itself in by"},
	{"", "shim/wasm/engine", "", false, "qemu has no seccomp, which a guest's process locks itself in by"},
	{"", "shim/wasm/guest", "TestCodeOfAMountWithoutExecution", false, "qemu only reads what it maps as code"},
	{"", "shim/wasm/link", "TestFilesThatAreNotAsAnnouncedAreAnError", false, "qemu does not pass on that a control message was cut off"},
	{"arm", "shim/wasm/serve", "", false, "one process for many servers, whose memories are more than 32 bits hold"},
	{"", "shim/wasm/wasip1", "TestHTTP", true, "wazero compiles or interprets 9 MiB of Go, minutes long"},
	{"", "shim/wasm/component/lower", "", false, "it only computes, many minutes long"},
	{"", "shim/wasm/gowasm", "", false, "it only computes, many minutes long"},
	{"", "shim/wasm/wasihttp", "", false, "many minutes long"},
}

// leftOut says whether a whole package is left out.
func leftOut(arch, pkg string, short bool) bool {
	return slices.Contains(names(arch, pkg, short), "")
}

// skipped is the expression for the names of the tests of a package that are left out.
func skipped(arch, pkg string, short bool) string {
	var expressions []string
	for _, name := range names(arch, pkg, short) {
		expressions = append(expressions, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	return strings.Join(expressions, "|")
}

// names are those of the tests of a package that are left out, "" for all.
func names(arch, pkg string, short bool) (all []string) {
	for _, l := range left {
		if l.pkg == pkg && (l.arch == "" || l.arch == arch) && (short || !l.short) {
			all = append(all, l.test)
		}
	}
	return all
}
