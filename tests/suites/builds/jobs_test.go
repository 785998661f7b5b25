package builds

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestJobOf(t *testing.T) {
	for _, variable := range variables {
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

// TestHostDoesAJobOnce has two machines ask for the same program and a third for another one.
func TestHostDoesAJobOnce(t *testing.T) {
	root, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.22\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := Host{Context: t.Context(), Root: root, Out: out}
	job := Job{ID: 1, Dir: root, Env: []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath"}, Args: []string{"go", "build", "."}}
	first := h.Do(job)
	if first.ID != 1 || first.Why != "" {
		t.Fatalf("build a program: %+v", first)
	}
	made, err := os.Stat(filepath.Join(out, first.File))
	if err != nil {
		t.Fatal(err)
	}
	job.ID = 2
	second := h.Do(job)
	again, err := os.Stat(filepath.Join(out, second.File))
	if second.ID != 2 || second.File != first.File || err != nil || !again.ModTime().Equal(made.ModTime()) {
		t.Errorf("the same job again: %+v, %v; want the file of %+v", second, err, first)
	}
	job.Env = append(job.Env, "GOOS=wasip1", "GOARCH=wasm") // whose runtime other tests build too
	if other := h.Do(job); other.Why != "" || other.File == first.File {
		t.Errorf("another job: %+v", other)
	}
	job.Args = []string{"go", "build", "./nothing"}
	if failed := h.Do(job); failed.Why == "" || failed.File != "" || failed.Said == "" {
		t.Errorf("a job that fails: %+v", failed)
	}
	for _, refused := range []Job{{Dir: root, Args: []string{"sh", "-c", "true"}}, {Dir: "/", Args: []string{"go", "build", "."}}, {Dir: root}} {
		if answer := h.Do(refused); answer.Why == "" {
			t.Errorf("%+v: %+v", refused, answer)
		}
	}
}
