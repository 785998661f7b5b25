package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// first are the packages that have most to tell.
const first = "image/draw image encoding/json strconv strings sort regexp math/big bytes fmt compress/flate crypto/sha256 go/parser"

// leftOut are tests that do what no program of Go's can do, by package.
func leftOut() map[string]string {
	return map[string]string{
		// It has the stack of a goroutine that runs moved, by a function of the runtime that only
		// its tests call so. Elsewhere stacks are moved of goroutines that sleep, or that leave all
		// their functions to get a larger one.
		"runtime": "^TestSystemstackFramePointerAdjust$",
	}
}

// further are arguments of a package's test binary beside testArgs.
func further() map[string][]string {
	return map[string][]string{
		"testing": {"-test.benchtime=100x"}, // its benchmarks would wait for a second to pass, and the clock nearly stands
	}
}

// testArgs are those of a test binary. Its own limit of time would make it look at the clock.
func testArgs(without string) []string {
	args := []string{"test", "-test.short", "-test.v", "-test.timeout=0"}
	if without != "" {
		args = append(args, "-test.skip="+without)
	}
	return args
}

// std lists the packages of the standard library that have tests for guests.
func (s *suite) std() ([]*module, error) {
	cmd := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "std")
	cmd.Env = guestEnvironment()
	cmd.Dir = s.goroot
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the standard library: %w", err)
	}
	var all []*module
	seen, without, more := map[string]bool{}, leftOut(), further()
	for _, path := range append(strings.Fields(first), strings.Fields(string(out))...) {
		if seen[path] {
			continue
		}
		seen[path] = true
		all = append(all, &module{
			name: "std/" + path, lasting: true,
			build: func(ctx context.Context, out string) error {
				return s.golang(ctx, s.goroot, "test", "-c", "-o", out, path)
			},
			programs: []program{{args: append(testArgs(without[path]), more[path]...), dir: filepath.Join(s.goroot, "src", path), tests: true}},
		})
	}
	return all, nil
}

// codegen lists the tests of the compiler's own that are one file each.
func (s *suite) codegen() ([]*module, error) {
	dir := filepath.Join(s.goroot, "src/cmd/compile/internal/test/testdata")
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	var all []*module
	for _, file := range files {
		all = append(all, &module{
			name: "codegen/" + strings.TrimSuffix(filepath.Base(file), "_test.go"), lasting: true,
			build: func(ctx context.Context, out string) error {
				return s.golang(ctx, dir, "test", "-c", "-o", out, filepath.Base(file))
			},
			programs: []program{{args: testArgs(""), dir: dir, tests: true}},
		})
	}
	return all, err
}
