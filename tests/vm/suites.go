package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
)

// drivers are cgroup drivers: each suite that runs pods runs with each.
var drivers = []string{"cgroupfs", "systemd"}

// whole are the suites of tests that run pods, by their folder.
var whole = []string{"scenario", "criwasm", "recovery"}

// builder builds suites with the host's Go.
type builder struct {
	ctx   context.Context
	root  string // the project's folder
	out   string // gets the binaries
	files string // what critest's images are packed from

	tested   string        // tests' names; "" for all
	flags    []string      // more of them for the binaries of tests
	slowness time.Duration // of the machine, a factor
}

// emulated is how many times as long suites may take in an emulated machine.
const emulated = 8

// plan is one without suites: what they all need of the host.
func (b *builder) plan() (*plan, error) {
	out, err := b.tool("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE")
	if err != nil {
		return nil, err
	}
	dirs := strings.Fields(out)
	if len(dirs) != 3 {
		return nil, fmt.Errorf("go env answered %q", out)
	}
	p := &plan{Over: []string{dirs[2]}, Env: []string{
		"HOME=/root", rootVariable + "=" + b.root, "PATH=" + standInsDir + ":" + dirs[0] + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"GOMODCACHE=" + dirs[1], "GOCACHE=" + dirs[2], "GOPROXY=off", "GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false", "CGO_ENABLED=0",
		fmt.Sprint(node.SlownessVariable, "=", int(b.slowness)),
	}}
	for i, path := range append(dirs, b.root) {
		p.Shares = append(p.Shares, share{Tag: fmt.Sprint("share", i), Path: path})
	}
	return p, b.build("build", filepath.Join(b.out, agentFile), "./tests/vm")
}

func (b *builder) tool(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.ctx, "nice", append([]string{"-n", "10", name}, args...)...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// build runs a go command ("build", "test") that makes one static binary.
func (b *builder) build(command, to string, pkg ...string) error {
	args := []string{command, "-trimpath", "-ldflags=-s -w", "-o", to}
	if command == "test" {
		args = append(args, "-c")
	}
	_, err := b.tool("go", append(args, pkg...)...)
	return err
}

// suites builds the selected suites, those of packages first.
func (b *builder) suites(selected *regexp.Regexp) ([]suite, error) {
	out, err := b.tool("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	var suites []suite
	for dir := range strings.FieldsSeq(out) {
		name, err := filepath.Rel(b.root, dir)
		if err != nil {
			return nil, err
		}
		// The examples and the laws are about the sources, not about a machine.
		if strings.HasPrefix(name, "tests/") || strings.HasPrefix(name, "examples") || !selected.MatchString(name) {
			continue
		}
		one, err := b.tests(name, dir)
		if err != nil {
			return nil, err
		}
		suites = append(suites, one)
	}
	for _, name := range whole {
		dir := filepath.Join(b.root, "tests", name)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		more, err := b.withEachDriver(selected, name, func() (suite, error) { return b.tests(name, dir) })
		if err != nil {
			return nil, err
		}
		suites = append(suites, more...)
	}
	for _, variant := range []string{"runc", "websocket", "crun"} {
		more, err := b.withEachDriver(selected, "critest-"+variant, func() (suite, error) { return b.critest(variant) })
		if err != nil {
			return nil, err
		}
		suites = append(suites, more...)
	}
	return suites, nil
}

// withEachDriver makes a suite if one of its names is selected, and names it once for each driver.
func (b *builder) withEachDriver(selected *regexp.Regexp, name string, make func() (suite, error)) ([]suite, error) {
	var suites []suite
	for _, driver := range drivers {
		full := name + "-" + driver
		if !selected.MatchString(full) {
			continue
		}
		one, err := make()
		if err != nil {
			return nil, err
		}
		one.Name, one.Driver = full, driver
		one.Env = append(one.Env, node.DriverVariable+"="+driver)
		suites = append(suites, one)
	}
	return suites, nil
}

// tests is the suite of one package's tests.
func (b *builder) tests(name, dir string) (suite, error) {
	file := filepath.Join(b.out, strings.ReplaceAll(name, "/", "-")+".test")
	s := suite{
		Name: name, Dir: dir, Timeout: b.slowness * 35 * time.Minute,
		Command: append([]string{
			// In this form a test below another one is told when it ends, not when that one does.
			filepath.Join(agentDir, filepath.Base(file)), "-test.v=test2json", "-test.timeout=" + (b.slowness * 30 * time.Minute).String(), "-test.run=" + b.tested,
		}, b.flags...),
	}
	if _, err := os.Stat(file); err == nil {
		return s, nil
	}
	return s, b.build("test", file, dir)
}

// critest is the suite of Kubernetes' conformance tests.
func (b *builder) critest(variant string) (suite, error) {
	file := filepath.Join(b.out, "critest")
	cache := filepath.Join(scratch, "critest")
	// Its cache is writable and begins with what was fetched.
	script := fmt.Sprintf("mkdir -p %[1]s && ln -sfn %[2]s %[1]s/debian && exec %[3]s/critest -bin %[3]s/bin -cache %[1]s -variants %[4]s -timeout %[5]s -focus \"$1\"",
		cache, b.files, agentDir, variant, b.slowness*15*time.Minute)
	s := suite{
		Dir: b.root, Timeout: b.slowness * 30 * time.Minute, Command: []string{"sh", "-c", script, "critest", b.tested},
		Keep: []string{filepath.Join(cache, "report", variant, "*")},
	}
	if _, err := os.Stat(file); err == nil {
		return s, nil
	}
	return s, errors.Join(b.binaries(), b.build("build", file, "./tests/critest"))
}

// binaries builds the project's own. The other suites do that themselves.
func (b *builder) binaries() error {
	bin := filepath.Join(b.out, "bin")
	return errors.Join(
		b.build("build", filepath.Join(bin, "sunaba"), "./cmd/sunaba"),
		b.build("build", filepath.Join(bin, "containerd-shim-sunaba-v1"), "-tags=no_grpc", "./cmd/containerd-shim-sunaba-v1"))
}
