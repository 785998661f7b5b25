package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/suites"
	"github.com/sunaba-project/sunaba/tests/suites/builds"
)

// drivers are cgroup drivers: each suite that runs pods runs with each.
var drivers = []string{"cgroupfs", "systemd"}

// whole are the suites of tests that run pods, by their folder.
var whole = []string{"tests/scenario", "tests/scripts", "tests/criwasm", "tests/recovery"}

// builder builds suites and what the machine asks its host to build.
type builder struct{ suites.Builder }

// emulated is how many times as long suites may take in an emulated machine.
const emulated = 8

// plan is one without suites: what they all need of the host.
func (b *builder) plan() (*plan, error) {
	out, err := b.Tool("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE")
	if err != nil {
		return nil, err
	}
	dirs := strings.Fields(out)
	if len(dirs) != 3 {
		return nil, fmt.Errorf("go env answered %q", out)
	}
	p := &plan{Over: []string{dirs[2]}, Env: []string{
		"HOME=/root", builds.RootVariable + "=" + b.Root, "PATH=" + standInsDir + ":" + dirs[0] + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"GOMODCACHE=" + dirs[1], "GOCACHE=" + dirs[2], "GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false -trimpath", "CGO_ENABLED=0",
		fmt.Sprint(node.SlownessVariable, "=", int(b.Slowness)),
	}}
	for i, path := range append(dirs, b.Root) {
		p.Shares = append(p.Shares, share{Tag: fmt.Sprint("share", i), Path: path})
	}
	return p, b.Build("build", filepath.Join(b.Out, agentFile), "./tests/vm")
}

// suites builds the selected suites, those of packages first.
func (b *builder) suites(selected *regexp.Regexp) ([]suites.Suite, error) {
	names, err := b.Packages()
	if err != nil {
		return nil, err
	}
	var chosen []suites.Suite
	for _, name := range names {
		if !selected.MatchString(name) {
			continue
		}
		one, err := b.Tests(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, one)
	}
	for _, name := range whole {
		more, err := withEachDriver(selected, filepath.Base(name), func() (suites.Suite, error) { return b.Tests(name) })
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, more...)
	}
	for _, variant := range []string{"runc", "websocket", "crun"} {
		more, err := withEachDriver(selected, "critest-"+variant, func() (suites.Suite, error) { return b.Critest(variant) })
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, more...)
	}
	return chosen, nil
}

// withEachDriver makes a suite if one of its names is selected, and names it once for each driver.
func withEachDriver(selected *regexp.Regexp, name string, make func() (suites.Suite, error)) ([]suites.Suite, error) {
	var chosen []suites.Suite
	for _, driver := range drivers {
		if !selected.MatchString(name + "-" + driver) {
			continue
		}
		one, err := make()
		if err != nil {
			return nil, err
		}
		one.Name = name
		chosen = append(chosen, one.For(driver))
	}
	return chosen, nil
}
