// Package builds lets the host of a test machine compile what the suites in the machine want
// compiled: the project's binaries, guests, contents of images. In a machine each system call is
// slow, and the host has the same sources at the same path. There the compilers' names lead to a
// stand-in, which asks the host and copies the result out of a folder that both see.
package builds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// RootVariable is the environment variable of a machine's suites with the project's folder.
const RootVariable = "SUNABA_BUILDS_ROOT"

// compilers are the programs that have a stand-in.
var compilers = []string{"go", "clang", "node"}

// variables are the environment variables that matter to them.
var variables = []string{"GOOS", "GOARCH", "GOARM", "GOFLAGS", "CGO_ENABLED"}

// Job is a call of a compiler without its -o.
type Job struct {
	ID   int
	Dir  string
	Env  []string
	Args []string // the program first
}

// Built is the host's answer.
type Built struct {
	ID   int
	File string // name in the folder of what the host built; "" without one
	Said string // by the compiler
	Why  string // there is no file
}

// StandIn is what the compilers' names lead to in a machine.
type StandIn struct {
	Names string                                          // folder in PATH with the compilers' names
	Files string                                          // folder with what the host built
	Ask   func(ctx context.Context, j Job) (Built, error) // gives the host a job and returns its answer
}

// IsCompiler reports whether a program was started by a compiler's name.
func IsCompiler(program string) bool { return slices.Contains(compilers, filepath.Base(program)) }

// Install makes the compilers' names, which lead to a program that calls Run.
func (s StandIn) Install(program string) error {
	if err := os.MkdirAll(s.Names, 0o755); err != nil {
		return err
	}
	for _, name := range compilers {
		if err := os.Symlink(program, filepath.Join(s.Names, name)); err != nil {
			return err
		}
	}
	return nil
}

// Run does what a compiler was called for with args, its name first, and returns its exit code.
// What only the machine has is compiled in the machine.
func (s StandIn) Run(ctx context.Context, args []string, stderr io.Writer) (int, error) {
	name := filepath.Base(args[0])
	dir, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	j, out, ok := jobOf(name, args[1:], dir, os.Getenv(RootVariable))
	if !ok {
		return 1, s.becomeReal(name, args)
	}
	answer, err := s.Ask(ctx, j)
	if err != nil {
		return 1, err
	}
	fmt.Fprint(stderr, answer.Said)
	if answer.Why != "" {
		fmt.Fprintln(stderr, answer.Why)
		return 1, nil
	}
	data, err := os.ReadFile(filepath.Join(s.Files, answer.File))
	if err != nil {
		return 1, err
	}
	return 0, errors.Join(os.MkdirAll(filepath.Dir(out), 0o755), os.WriteFile(out, data, 0o755))
}

// becomeReal becomes the compiler that is next in PATH.
func (s StandIn) becomeReal(name string, args []string) error {
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); dir != s.Names && err == nil && info.Mode()&0o111 != 0 {
			return &os.PathError{Op: "exec", Path: file, Err: syscall.Exec(file, args, os.Environ())}
		}
	}
	return fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// jobOf turns a compiler's arguments into a job and the file that is to be made, if the host can do
// it: it makes one file, of sources in the project's folder.
func jobOf(name string, args []string, dir, root string) (j Job, out string, ok bool) {
	j = Job{Dir: dir, Args: []string{name}}
	if name == "go" && (len(args) == 0 || args[0] != "build" && (args[0] != "test" || !slices.Contains(args, "-c"))) {
		return j, "", false
	}
	for i := 0; i < len(args); i++ {
		if args[i] == "-o" && i+1 < len(args) {
			i++
			out = args[i]
			continue
		}
		if filepath.IsAbs(args[i]) && !within(args[i], root) {
			return j, "", false
		}
		j.Args = append(j.Args, args[i])
	}
	if out == "" || root == "" || !within(dir, root) {
		return j, "", false
	}
	if strings.HasSuffix(out, "/") {
		out = filepath.Join(out, filepath.Base(filepath.Join(dir, args[len(args)-1])))
	}
	for _, variable := range variables {
		if value, set := os.LookupEnv(variable); set {
			j.Env = append(j.Env, variable+"="+value)
		}
	}
	return j, out, true
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }
