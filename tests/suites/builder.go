package suites

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/binaries"
	"github.com/sunaba-project/sunaba/tests/node"
)

// Builder builds suites with the host's Go.
type Builder struct {
	Context context.Context
	Root    string   // the project's folder
	Out     string   // folder that gets the binaries
	Inside  string   // the same, as the machine sees it
	Scratch string   // folder of the machine that is writable
	Files   string   // what critest's images are packed from, as tests/critest/fetch.sh got it
	Env     []string // on top of the environment of programs of the host

	Tested   string        // expression for the tests' names; "" for all
	Flags    []string      // more of them for the binaries of tests
	Slowness time.Duration // of the machine, a factor
}

// Tool runs a program of the host's at low priority and returns what it says.
func (b *Builder) Tool(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.Context, "nice", append([]string{"-n", "10", name}, args...)...)
	cmd.Dir = b.Root
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), b.Env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// Build runs a go command ("build", "test") that makes one static binary.
func (b *Builder) Build(command, to, pkg string) error {
	args := []string{command, "-trimpath", "-tags=" + binaries.Tags, "-ldflags=" + binaries.LinkFlags(), "-o", to}
	if command == "test" {
		args = append(args, "-c")
	}
	_, err := b.Tool("go", append(args, pkg)...)
	return err
}

// Packages are the folders with tests that are about a machine and run no daemon of their own: all
// except examples and tests.
func (b *Builder) Packages() ([]string, error) {
	out, err := b.Tool("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./...")
	if err != nil {
		return nil, err
	}
	var names []string
	for dir := range strings.FieldsSeq(out) {
		name, err := filepath.Rel(b.Root, dir)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(name, "tests/") && !strings.HasPrefix(name, "examples") {
			names = append(names, name)
		}
	}
	return names, nil
}

// For is a suite's name and environment for one of the cgroup drivers.
func (s Suite) For(driver string) Suite {
	s.Name, s.Driver = s.Name+"-"+driver, driver
	s.Env = append(s.Env[:len(s.Env):len(s.Env)], node.DriverVariable+"="+driver)
	return s
}

// Tests is the suite of the tests of one package, by its folder. It builds their binary once.
func (b *Builder) Tests(name string) (Suite, error) {
	file := strings.ReplaceAll(name, "/", "-") + ".test"
	s := Suite{
		Name: name, Dir: filepath.Join(b.Root, name), Timeout: b.Slowness * 35 * time.Minute,
		Command: append([]string{
			// In this form a test below another one is told when it ends, not when that one does.
			filepath.Join(b.Inside, file), "-test.v=test2json", "-test.timeout=" + (b.Slowness * 30 * time.Minute).String(), "-test.run=" + b.Tested,
		}, b.Flags...),
	}
	return s, b.once(file, func(to string) error { return b.Build("test", to, "./"+name) })
}

// Critest is the suite of Kubernetes' conformance tests for one variant of tests/critest.
func (b *Builder) Critest(variant string) (Suite, error) {
	cache := filepath.Join(b.Scratch, "critest")
	// Its cache is writable and starts with what was fetched.
	script := fmt.Sprintf("mkdir -p %[1]s && ln -sfn %[2]s %[1]s/debian && exec %[3]s/critest -bin %[3]s/bin -cache %[1]s -variants %[4]s -timeout %[5]s -focus \"$1\"",
		cache, b.Files, b.Inside, variant, b.Slowness*15*time.Minute)
	s := Suite{
		Name: "critest-" + variant, Dir: b.Root, Timeout: b.Slowness * 30 * time.Minute, Command: []string{"sh", "-c", script, "critest", b.Tested},
		Keep: []string{filepath.Join(cache, "report", variant, "*")},
	}
	return s, b.once("critest", func(to string) error { return errors.Join(b.binaries(), b.Build("build", to, "./tests/critest")) })
}

// once makes a file of Out that is not there yet.
func (b *Builder) once(name string, build func(to string) error) error {
	to := filepath.Join(b.Out, name)
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	return build(to)
}

// binaries builds the project's own. Suites of tests do that themselves.
func (b *Builder) binaries() error {
	bin := filepath.Join(b.Out, "bin")
	return errors.Join(
		b.Build("build", filepath.Join(bin, binaries.Sunaba), "./cmd/sunaba"),
		b.Build("build", filepath.Join(bin, binaries.Shim), "./cmd/containerd-shim-sunaba-v1"))
}
