package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/gowasm"
)

// result is what a run of a program came to.
type result struct {
	Ending   ending
	TimedOut bool   `json:",omitempty"`
	Died     string `json:",omitempty"` // what the process around the guest died of
	Milli    int64
	Output   []byte
}

// results are those of a module's programs in one form.
type results struct {
	Invalid  string        `json:",omitempty"` // why the module does not compile
	Count    gowasm.Result // of its functions
	Milli    int64         // that compiling took
	Programs []result
}

// stockCPU is the processor time in seconds that a program has on stock wazero. Rewritten it has
// twice as much: one that just ended in time before must not be late by chance.
const stockCPU = 90

// childWall bounds the time of a child on a machine that has much else to do.
const childWall = time.Hour

// run compiles a module in one form and runs its programs, each in a root of its own.
func (s *suite) run(ctx context.Context, m *module, file string, as form, programs []program) (results, error) {
	var all results
	for len(all.Programs) < len(programs) {
		rest := programs[len(all.Programs):]
		part, err := s.runSome(ctx, m.tree, file, as, rest)
		if err != nil {
			return all, fmt.Errorf("run %s: %w", m.name, err)
		}
		all.Invalid, all.Count = part.Invalid, part.Count
		all.Milli = max(all.Milli, part.Milli)
		all.Programs = append(all.Programs, part.Programs...)
		if all.Invalid != "" {
			break
		}
	}
	return all, nil
}

// runSome runs programs until one does not end: then that is the last one. There is at least one,
// unless the module is invalid.
func (s *suite) runSome(ctx context.Context, tree, file string, as form, programs []program) (results, error) {
	dir, err := os.MkdirTemp("", "gowasm-")
	if err != nil {
		return results{}, err
	}
	defer os.RemoveAll(dir)
	j, err := s.job(dir, tree, file, as, programs)
	if err != nil {
		return results{}, err
	}
	told, late, died, err := s.child(ctx, j)
	if err != nil {
		return results{}, err
	}
	var all results
	for _, r := range told {
		switch {
		case r.Compiled != nil:
			all.Invalid, all.Count, all.Milli = r.Invalid, *r.Compiled, r.Milli
		case r.Ran != nil:
			all.Programs = append(all.Programs, result{Ending: *r.Ran, Milli: r.Milli})
		}
	}
	if all.Invalid == "" && len(all.Programs) < len(programs) {
		last := result{TimedOut: late}
		if !late {
			last.Died = died
		}
		all.Programs = append(all.Programs, last)
	}
	for i := range all.Programs {
		// A program that did not start has written nothing.
		all.Programs[i].Output, err = os.ReadFile(j.Runs[i].Output)
		if err != nil && !os.IsNotExist(err) {
			return results{}, err
		}
	}
	return all, nil
}

// job makes the files that a child needs, below dir.
func (s *suite) job(dir, tree, file string, as form, programs []program) (job, error) {
	j := job{Module: file, Form: as, Trees: []string{s.goroot}, Writes: dir}
	if tree != "" {
		j.Trees = append(j.Trees, tree)
	}
	for i, p := range programs {
		root := filepath.Join(dir, fmt.Sprint("root", i))
		for _, f := range []string{"tmp", "dev", "home"} {
			if err := os.MkdirAll(filepath.Join(root, f), 0o755); err != nil {
				return job{}, err
			}
		}
		if err := os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o644); err != nil {
			return job{}, err
		}
		cpu := s.cpu
		if as != asBuilt {
			cpu *= 2
		}
		j.Runs = append(j.Runs, run{
			Args: p.args, Env: []string{"PWD=" + p.dir, "GOROOT=" + s.goroot, "TMPDIR=/tmp", "HOME=/home", "GOTRACEBACK=single"},
			Root: root, Output: filepath.Join(dir, fmt.Sprint("output", i)), CPU: cpu,
		})
	}
	return j, nil
}

// child runs a job and returns its reports, whether it used up its processor time, and what its
// process ended with.
func (s *suite) child(ctx context.Context, j job) (told []report, late bool, died string, err error) {
	ctx, cancel := context.WithTimeout(ctx, childWall)
	defer cancel()
	order, err := json.Marshal(j)
	if err != nil {
		return nil, false, "", err
	}
	cmd := exec.CommandContext(ctx, s.self)
	cmd.Stdin = bytes.NewReader(order)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), guestVariable + "=1"}
	ended := cmd.Run()
	if err := ctx.Err(); err != nil && ctx.Err() != context.DeadlineExceeded {
		return nil, false, "", err
	}
	for lines := bufio.NewReader(&out); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, false, "", fmt.Errorf("understand child: %w", err)
		}
		told = append(told, r)
	}
	died = strings.TrimSpace(complaint.String())
	var exit *exec.ExitError
	if errors.As(ended, &exit) {
		state, ok := exit.Sys().(syscall.WaitStatus)
		late = ok && state.Signal() == syscall.SIGXCPU
	}
	if ended != nil {
		first, _, _ := strings.Cut(died, "\n")
		died = fmt.Sprintf("%v: %s", ended, first)
	}
	if len(told) == 0 && !late {
		return nil, false, "", fmt.Errorf("child says nothing: %s", died)
	}
	return told, late, died, nil
}
