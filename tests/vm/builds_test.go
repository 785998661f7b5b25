package main

import (
	"slices"
	"testing"
)

func TestJobOf(t *testing.T) {
	for _, variable := range buildVariables {
		t.Setenv(variable, "")
	}
	t.Setenv("GOOS", "wasip1")
	const root = "/src"
	for _, c := range []struct {
		name, program string
		args          []string
		dir           string
		want          []string // nil: the machine does it itself
		out           string
	}{
		{"a package of the project", "go", []string{"build", "-trimpath", "-o", "/tmp/x/shim", "../../cmd/shim"}, "/src/tests/scenario",
			[]string{"go", "build", "-trimpath", "../../cmd/shim"}, "/tmp/x/shim"},
		{"the package it is in, output last", "go", []string{"build", "-ldflags=-s -w", "-o", "/tmp/program"}, "/src/examples/greeter",
			[]string{"go", "build", "-ldflags=-s -w"}, "/tmp/program"},
		{"into a folder", "go", []string{"build", "-o", "/tmp/bin/", "../../cmd/sunaba"}, "/src/tests/criwasm",
			[]string{"go", "build", "../../cmd/sunaba"}, "/tmp/bin/sunaba"},
		{"C", "clang", []string{"--target=wasm32-wasi", "guest.c", "-o", "/tmp/g"}, "/src/examples/c", []string{"clang", "--target=wasm32-wasi", "guest.c"}, "/tmp/g"},
		{"a source that only the machine has", "clang", []string{"/tmp/a.c", "-o", "/tmp/a"}, "/src", nil, ""},
		{"a folder that only the machine has", "go", []string{"build", "-o", "x", "."}, "/tmp/y", nil, ""},
		{"a folder whose name begins the same", "go", []string{"build", "-o", "x", "."}, "/srcs", nil, ""},
		{"no output", "go", []string{"build", "./..."}, "/src", nil, ""},
		{"a test binary", "go", []string{"test", "-c", "-o", "/tmp/t", "./tests/scenario"}, "/src", []string{"go", "test", "-c", "./tests/scenario"}, "/tmp/t"},
		{"tests that run", "go", []string{"test", "-o", "/tmp/t", "./tests/scenario"}, "/src", nil, ""},
		{"no build", "go", []string{"list", "-o", "x"}, "/src", nil, ""},
		{"nothing at all", "go", nil, "/src", nil, ""},
	} {
		j, out, ok := jobOf(c.program, c.args, c.dir, root)
		if ok != (c.want != nil) || ok && (!slices.Equal(j.Args, c.want) || out != c.out || j.Dir != c.dir) {
			t.Errorf("%s: %q to %q, %v; want %q to %q", c.name, j.Args, out, ok, c.want, c.out)
		}
		if ok && !slices.Contains(j.Env, "GOOS=wasip1") {
			t.Errorf("%s: the environment is %q", c.name, j.Env)
		}
	}
	if _, _, ok := jobOf("go", []string{"build", "-o", "x"}, "/src", ""); ok {
		t.Error("a machine without the project's folder asks its host")
	}
}

func TestVirtualizes(t *testing.T) {
	for _, c := range []struct {
		info string
		want bool
	}{
		{"processor\t: 0\nflags\t\t: fpu vmx sse\n\nprocessor\t: 1\nflags\t\t: fpu\n", true},
		{"flags : fpu svm\n", true},
		{"model name : svm\nflags : fpu vmmcall svm_lock\n", false},
		{"", false},
	} {
		if got := virtualizes(c.info); got != c.want {
			t.Errorf("%q: %v", c.info, got)
		}
	}
}
