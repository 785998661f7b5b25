package law

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// skips are the functions that may skip a test, each with its reason. What a test needs and a
// person can install is no reason by itself: tests/setup.sh installs it, and a test without it
// fails.
var skips = map[string]string{
	"systemdManager":               "systemd does not run the machine",
	"TestOn":                       "SELinux is of the kernel",
	"TestSourcesOfADeadFileSystem": "FUSE is of the kernel",
	"adoptExec":                    "an engine need not execute programs in a running container",
	"adoptPaused":                  "an engine need not pause",
	"TestCage":                     "Landlock is of the kernel",
	"TestDocument":                 "the document lists the system calls of one architecture",
	"WithProjects":                 "project quotas are of the kernel",
	"build":                        "AssemblyScript's compiler comes from npm's registry, which need not be in reach",
	"buildRust":                    "tests/setup.sh unpacks Rust's compiler from Debian's archive, which need not be in reach",
	"cGuest":                       "clang with wasi-libc is a package of the distribution",
	"nameServer":                   "a port that is free for UDP need not be for TCP",
	"need":                         "wasmtime and the tools of components come from PyPI, crates.io and npm, which need not be in reach",
	"TestSuite":                    "the suite of the WASI subgroup is not part of the project: make wasi-suite",
	"TestCheckpoint":               "CRIU does not work with every kernel",
	"needCRIU":                     "CRIU does not work with every kernel",
	"TestFeatures":                 "containerd 1.6 does not ask shims for their features",
	"TestForbiddenWords":           "a release's archive is no git checkout",
	"Need":                         "an example of another toolchain needs that toolchain",
	"needUnified":                  "a machine has one version of cgroups",
	"newNotesBench":                "file systems other than ext4, XFS and Btrfs may not show each change of a file",
}

// A test that skips itself is green where nobody looks.
func TestSkipsHaveAReason(t *testing.T) {
	used := map[string]bool{}
	eachFile(t, func(path string, set *token.FileSet, file *ast.File) {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !isSkip(call) {
					return true
				}
				used[fn.Name.Name] = true
				if skips[fn.Name.Name] == "" {
					t.Errorf("%s: %s skips a test, and skips_test.go has no reason for it", set.Position(call.Pos()), fn.Name.Name)
				}
				return true
			})
		}
	})
	for name := range skips {
		if !used[name] {
			t.Errorf("%s skips nothing any more: remove its reason", name)
		}
	}
}

// isSkip says whether a call is t.Skip, t.Skipf or t.SkipNow, by the names that tests give a
// testing.TB.
func isSkip(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name)
}
