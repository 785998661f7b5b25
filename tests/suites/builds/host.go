package builds

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Host does the jobs of machines. The same job is done once.
type Host struct {
	Context context.Context
	Root    string // the project's folder
	Out     string // folder for what is built; it exists

	mu   sync.Mutex
	done map[string]*result
}

// result is a job's answer, once it has been done.
type result struct {
	sync.Once
	built Built
}

// Do does a job, or waits for the same job that is in progress, and returns its answer.
func (h *Host) Do(j Job) Built {
	h.mu.Lock()
	if h.done == nil {
		h.done = map[string]*result{}
	}
	key := fmt.Sprintf("%q %q %q", j.Dir, j.Env, j.Args)
	r := h.done[key]
	if r == nil {
		r = &result{built: Built{File: fmt.Sprint(len(h.done) + 1)}}
		h.done[key] = r
	}
	h.mu.Unlock()
	r.Do(func() {
		out, err := h.build(j, filepath.Join(h.Out, r.built.File))
		r.built.Said = out
		if err != nil {
			r.built.File, r.built.Why = "", err.Error()
		}
	})
	answer := r.built
	answer.ID = j.ID
	return answer
}

// build makes the job's file and returns what the compiler said.
func (h *Host) build(j Job, to string) (string, error) {
	if len(j.Args) == 0 || !slices.Contains(compilers, j.Args[0]) || !within(j.Dir, h.Root) {
		return "", fmt.Errorf("the host does not run %q in %q", j.Args, j.Dir)
	}
	at := len(j.Args)
	if j.Args[0] == "go" {
		at = 2 // after "build" or "test"
	}
	cmd := exec.CommandContext(h.Context, "nice", append([]string{"-n", "10"}, slices.Insert(slices.Clone(j.Args), at, "-o", to)...)...)
	cmd.Dir = j.Dir
	cmd.Env = append(os.Environ(), j.Env...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return string(said), fmt.Errorf("run %s on the host: %w", strings.Join(j.Args, " "), err)
	}
	return string(said), nil
}
