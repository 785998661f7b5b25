package ociruntime

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// answerLimit is how long a runtime may take to say what it is.
const answerLimit = 10 * time.Second

// Report is what is known of an OCI runtime on this machine.
type Report struct {
	Binary   string // as it is configured: a name or a path
	Path     string // of the program; "" where it is not found
	Version  string // as it tells it: "runc 1.1.5"
	Features Features
	// Missing says that the program is not there or cannot be executed, Problem why a container
	// cannot be made with it; "" if nothing is known against it.
	Missing bool
	Problem string
}

// Text says of a handler what is wrong with its runtime and what helps, "" if nothing is.
func (r Report) Text(handler string) string {
	switch {
	case r.Problem == "":
		return ""
	case r.Missing:
		return fmt.Sprintf("OCI runtime %q of handler %q cannot be used: %s: install it, or set handlers.%s.binary", r.Binary, handler, r.Problem, handler)
	}
	return fmt.Sprintf("OCI runtime %q of handler %q makes no container here: %s", r.Path, handler, r.Problem)
}

// Probe asks a runtime what it is. No container is made.
func Probe(ctx context.Context, binary string) Report {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	r := Report{Binary: binary}
	path, err := exec.LookPath(binary)
	if err != nil {
		r.Missing, r.Problem = true, reason(err)
		return r
	}
	if r.Path, err = filepath.Abs(path); err != nil {
		r.Path = path
	}
	version, err := ask(ctx, r.Path, "--version")
	switch {
	case ctx.Err() != nil:
		r.Problem = fmt.Sprintf("it does not tell its version within %v", answerLimit)
		return r
	case err != nil && !errors.As(err, new(*exec.ExitError)): // a runtime that runs need not know this flag
		r.Missing, r.Problem = true, reason(err)
		return r
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(version)), "\n")
	r.Version = strings.Replace(first, " version ", " ", 1)
	if text, err := ask(ctx, r.Path, "features"); err == nil {
		if r.Features, err = parseFeatures(text); err == nil {
			return r
		}
	}
	r.Features = parseVersion(string(version))
	return r
}

// ask returns what a program prints. A process that holds its output open after it has ended is not
// waited for, be it its own or a child of this one that runs no program yet.
func ask(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return out, err
}

// reason is an error without the name of the program, which its reader knows.
func reason(err error) string {
	if named, ok := errors.AsType[*exec.Error](err); ok {
		err = named.Err
	}
	return err.Error()
}
