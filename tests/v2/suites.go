package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/suites"
	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

// job is a suite with the machine that it needs.
type job struct {
	suite   suites.Suite
	systemd bool // is the machine's first process, and the cgroup driver
}

// part is a part of the tests of one folder that runs in one machine.
type part struct {
	name    string // of the suite
	folder  string
	tests   []string // names; none for all
	flags   []string
	systemd bool
	short   bool // it runs with -short too
	within  bool // without -short it runs as a part of others
	named   bool // it runs only where -run has its name: it needs programs that take long to build
}

// limits are the scenarios that see most of a difference between versions of cgroups and between
// their drivers.
var limits = []string{
	"TestStats", "TestMemoryLimit", "TestPodMetrics", "TestPodResources", "TestPodResourcesOfAGivenParent", "TestCgroupParent", "TestUnifiedKeys",
	"TestPressureAndSwap", "TestOutOfMemoryIsTold", "TestAppArmor", "TestOverheadIsTrue",
}

// podTests are the scripts that do the same for pods from manifests.
var podTests = []string{"TestPodCgroups", "TestDiskPressure"}

// cgroupPackages are those whose tests are about cgroups and what lives in them.
var cgroupPackages = []string{"host/cgroup", "criserver/cgroup", "criserver/sandbox", "criserver/container", "criserver/stats", "shim/runc"}

// quotaPackages are those with tests of project quotas, which this machine's kernel may not have.
var quotaPackages = []string{"host/quota", "pods/volumes"}

// slowPackages are those whose tests take longest without systemd. They start before what is short,
// or one machine would wait for the other at the end.
var slowPackages = []string{"shim/wasm/engine", "shim/runc", "images"}

// computed are the tests of shim/wasm/engine of what guests compute and of what code is refused.
// The kernel has no part in it, and they take most of the package's time: they run with `make test`
// alone.
const computed = "BothWays$|^TestCodeThatIsRefused$|^TestOddModules$"

// scenarios is in how many parts the scenarios run, so that both machines have something to do.
const scenarios = 4

// parts are all that runs tests of packages, except the packages' own. What takes longest is first.
func parts(root string) ([]part, error) {
	names, err := testNames(filepath.Join(root, "tests/scenario"))
	if err != nil {
		return nil, err
	}
	all := []part{}
	for i := range scenarios {
		p := part{name: fmt.Sprintf("scenario-%d", i+1), folder: "tests/scenario"}
		for n := i; n < len(names); n += scenarios {
			p.tests = append(p.tests, names[n])
		}
		all = append(all, p)
	}
	all = append(all, part{name: "scripts", folder: "tests/scripts"})
	// One point for each request and handler: 20 kills of the daemon, 14 of shims.
	for _, p := range []part{{tests: []string{"TestKillDaemon"}, short: true}, {tests: []string{"TestKillShim"}}} {
		p.name, p.folder, p.flags = "recovery-"+p.tests[0], "tests/recovery", []string{"-most", "1"}
		all = append(all, p)
	}
	for _, systemd := range []bool{false, true} {
		for _, scope := range []string{"pod", "node"} {
			p := part{name: "criwasm-" + scope, folder: "tests/criwasm", tests: []string{"TestWasm/" + scope}, systemd: systemd}
			p.short = systemd == (scope == "pod") // each scope and each driver once
			all = append(all, p)
		}
	}
	all = append(all,
		// All points at which the daemon is killed while it runs pods from manifests. One processor has
		// enough of two.
		part{name: "recovery-pods", folder: "tests/recovery/pods", flags: []string{"-most", "0", "-workers", "2"}},
		part{name: "recovery-rest", folder: "tests/recovery", tests: []string{"TestPowerCut", "TestReboot", "TestDamageAndOrphans", "TestHalfRemovedContainers"}},
		part{name: "limits", folder: "tests/scenario", tests: limits, short: true, within: true},
		part{name: "limits", folder: "tests/scenario", tests: limits, systemd: true, short: true})
	all = append(all,
		// Without systemd these run as a part of the scripts.
		part{name: "pods", folder: "tests/scripts", tests: podTests, within: true},
		part{name: "pods", folder: "tests/scripts", tests: podTests[:1], systemd: true, short: true},
		// A full disk takes long here, and the same runs in `make test`.
		part{name: "pods-pressure", folder: "tests/scripts", tests: podTests[1:], systemd: true})
	// Machines of their own, which these switch off and on, and use up.
	all = append(all, part{name: "machine-off", folder: "tests/machine", tests: []string{"TestOff"}, systemd: true, short: true},
		part{name: "machine-install", folder: "tests/machine", tests: []string{"TestInstall"}, systemd: true, short: true},
		part{name: "machine-clock", folder: "tests/machine", tests: []string{"TestClock"}},
		part{name: "machine-memory", folder: "tests/machine", tests: []string{"TestMemoryPressure", "TestReservedMemory"}})
	pages, err := filepath.Glob(filepath.Join(root, "docs/start/*.md"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		all = append(all, part{name: "page-" + name, folder: "tests/machine", tests: []string{"TestPages/" + name}, systemd: true, short: true})
	}
	all = append(all, part{name: "page-kubeadm", folder: "tests/machine", tests: []string{"TestKubeadm"}, systemd: true, named: true})
	for _, folder := range cgroupPackages {
		all = append(all, part{name: folder, folder: folder, systemd: true})
	}
	return all, nil
}

// specs are critest's, in parts. With systemd, whose root file system has what they call, those run
// that cgroups and AppArmor have to do with.
var specs = []struct {
	name, focus string
	systemd     bool // and with -short
}{
	{"container", `\] Container`, false},
	{"context", `\] Security Context`, false},
	{"rest", `\] [^ACS]|\] (Se[^c]|S[^e])`, false},
	{"cgroups", `AppArmor|OOM|[Ss]tats|[Mm]etrics|cgroup|resources`, true},
}

// jobs are the selected suites, built.
func (s *settings) jobs(b *suites.Builder) ([]job, error) {
	if s.command != "" {
		return []job{{suites.Suite{Name: "command", Dir: s.root, Command: []string{"sh", "-c", s.command}, Timeout: commandTimeout}, s.systemd}}, nil
	}
	all, err := parts(s.root)
	if err != nil {
		return nil, err
	}
	var jobs []job
	for _, p := range all {
		driver := driverOf(p.systemd)
		if s.short && !p.short || !s.short && p.within || !s.selected.MatchString(p.name+"-"+driver) {
			continue
		}
		if p.named && !strings.Contains(s.selected.String(), p.name) {
			continue
		}
		one, err := b.Tests(p.folder)
		if err != nil {
			return nil, err
		}
		one.Name, one.Command = p.name, append(one.Command, p.flags...)
		if len(p.tests) > 0 && s.tests == "" {
			one.Command = append(one.Command, "-test.run="+pattern(p.tests))
		}
		jobs = append(jobs, job{one.For(driver), p.systemd})
	}
	for _, spec := range specs {
		driver := driverOf(spec.systemd)
		if s.short && !spec.systemd || !s.selected.MatchString("critest-"+spec.name+"-"+driver) {
			continue
		}
		if err := s.tell(b.Context, filepath.Join(s.root, "tests/critest/fetch.sh"), b.Files); err != nil {
			return nil, err
		}
		part := *b
		if part.Tested == "" {
			part.Tested = spec.focus
		}
		one, err := part.Critest("runc")
		if err != nil {
			return nil, err
		}
		one.Name = "critest-" + spec.name
		jobs = append(jobs, job{one.For(driver), spec.systemd})
	}
	names, err := b.Packages()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !onKernel(name) || !s.selected.MatchString(name) {
			continue
		}
		if s.short && (!slices.Contains(slices.Concat(cgroupPackages, quotaPackages), name) || name == "shim/runc") {
			continue // the others' tests see little of cgroups; runc's take long, and the scenarios of limits run runc too
		}
		one, err := b.Tests(name)
		if err != nil {
			return nil, err
		}
		switch name {
		case "shim/wasm/engine":
			one.Command = append(one.Command, "-test.skip="+computed)
		case "pods/volumes":
			one.Command = append(one.Command, "-test.skip=^TestSharedMemory$") // it needs a /tmp that is no tmpfs
		}
		jobs = append(jobs, job{suite: one})
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return rank(a) - rank(b) })
	return jobs, nil
}

// rank is 1 for what is short.
func rank(j job) int {
	if j.systemd || strings.HasPrefix(j.suite.Name, "scenario-") || slices.Contains(slowPackages, j.suite.Name) {
		return 0
	}
	return 1
}

// onKernel reports whether the tests of a package depend on the kernel that they run on: the
// packages that compile, parse and decode run with `make test` alone.
func onKernel(name string) bool {
	if strings.HasPrefix(name, "shim/wasm/") {
		return name == "shim/wasm/cage" || name == "shim/wasm/engine"
	}
	return slices.Contains(quotaPackages, name) || slices.Contains([]string{"host", "shim", "criserver", "images"}, strings.SplitN(name, "/", 2)[0])
}

// driverOf is the cgroup driver of a machine.
func driverOf(systemd bool) string {
	if systemd {
		return "systemd"
	}
	return "cgroupfs"
}

// pattern is an expression for exactly these tests; one name may be of a test below another one.
func pattern(names []string) string {
	if len(names) == 1 {
		return "^" + strings.ReplaceAll(names[0], "/", "$/^") + "$"
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// testNames are the names of the tests of a folder, sorted.
func testNames(folder string) ([]string, error) {
	packages, err := parser.ParseDir(token.NewFileSet(), folder, func(info fs.FileInfo) bool { return strings.HasSuffix(info.Name(), "_test.go") }, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range packages {
		for _, file := range p.Files {
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
					names = append(names, f.Name.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// surroundings are the environment of every suite and the folders of the host that it sees, the
// project's first.
func surroundings(b *suites.Builder) (env, see []string, err error) {
	out, err := b.Tool("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE")
	if err != nil {
		return nil, nil, err
	}
	folders := strings.Fields(out)
	if len(folders) != 3 {
		return nil, nil, fmt.Errorf("go env answered %q", out)
	}
	env = []string{
		"HOME=/root", suites.ShareVariable + "=" + shareDir, builds.RootVariable + "=" + b.Root, "PATH=" + namesDir + ":" + folders[0] + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"GOMODCACHE=" + folders[1], "GOCACHE=" + folders[2], "GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false -trimpath", "CGO_ENABLED=0",
		// A system call costs fifty times what it costs on the host.
		node.SlownessVariable + "=3",
	}
	return env, append([]string{b.Root, b.Out}, folders...), nil
}
