package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is a program, or several in one, that is compiled once for each form.
type module struct {
	name     string // "std/image/draw"
	lasting  bool   // it is the same as long as Go is
	tree     string // what its programs read beside GOROOT; "" = nothing
	build    func(ctx context.Context, out string) error
	programs []program
	source   string // what it was generated from; "" = it lies elsewhere
}

// program is one run of a module.
type program struct {
	name  string // within its module; "" = it is all of it
	args  []string
	dir   string // the guest's working directory
	tests bool   // it lists tests and their results
}

// title names a program in what people read.
func (m *module) title(p program) string { return strings.TrimSuffix(m.name+"/"+p.name, "/") }

// suite is the machinery of a comparison.
type suite struct {
	self    string // the binary that is a child too
	cache   string // modules, and results of stock wazero
	keep    string // receives what differs
	goroot  string
	forms   []form // those that are compared with asBuilt
	gcflags string // of Go's compiler
	key     string // what results depend on beside the module
	cpu     uint64 // seconds of processor time for each program
}

// resultsVersion is raised when results of stock wazero mean something else.
const resultsVersion = 2

func newSuite(self, cache, keep, gcflags string) (*suite, error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("ask for Go's folder: %w", err)
	}
	engine, err := exec.Command("go", "list", "-m", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		return nil, fmt.Errorf("ask for wazero's version: %w", err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	s := &suite{self: self, keep: keep, goroot: root, cpu: stockCPU, forms: []form{served}, gcflags: gcflags}
	s.key = fmt.Sprintf("%d %s %s %s%s", resultsVersion, version, root, engine, gcflags)
	if s.cache, err = filepath.Abs(filepath.Join(cache, hash([]byte(s.key)))); err != nil {
		return nil, err
	}
	return s, os.MkdirAll(s.cache, 0o755)
}

// hash is a short name for content.
func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8])
}

// ready returns the file of a module, built if it is not there yet.
func (s *suite) ready(ctx context.Context, m *module, dir string) (string, error) {
	if !m.lasting {
		out := filepath.Join(dir, "module.wasm")
		return out, m.build(ctx, out)
	}
	out := filepath.Join(s.cache, strings.ReplaceAll(m.name, "/", "_")+".wasm")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	made := filepath.Join(dir, "module.wasm")
	if err := m.build(ctx, made); err != nil {
		return "", err
	}
	return out, os.Rename(made, out)
}

// golang runs the go command for guests.
func (s *suite) golang(ctx context.Context, dir string, args ...string) error {
	if s.gcflags != "" {
		args = slices.Insert(args, 1, "-gcflags="+s.gcflags)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = guestEnvironment()
	if text, err := cmd.CombinedOutput(); err != nil {
		return &buildError{err, string(text)}
	}
	return nil
}

// buildError is what the go command says against a program.
type buildError struct {
	cause error
	text  string
}

// Error implements error with the first line that is no headline.
func (e *buildError) Error() string {
	for line := range strings.Lines(e.text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return e.cause.Error()
}

// Unwrap gives the cause.
func (e *buildError) Unwrap() error { return e.cause }
