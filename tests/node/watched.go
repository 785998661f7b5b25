package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/tests/leftovers"
)

// Watched is a node that knows what was there when it became ready: nothing else may be there when
// its pods have been removed.
type Watched struct {
	*Node
	before leftovers.Snapshot

	mu   sync.Mutex
	pods []string // the ids of all that ever ran: their cgroups must be gone too
}

// Watch looks at a node that has no pods yet.
func Watch(n *Node) (*Watched, error) {
	w := &Watched{Node: n}
	return w, w.Reset()
}

// StartWatched starts a node and watches it. What a start that fails has left is taken away.
func StartWatched(ctx context.Context, options Options) (*Watched, error) {
	n, err := Start(ctx, options)
	if err != nil {
		_, sweep := Sweep(options.Dir)
		return nil, errors.Join(err, sweep)
	}
	return Watch(n)
}

// Reset takes what is there now for what may be there at the end.
func (w *Watched) Reset() error {
	var err error
	w.before, err = w.look()
	return err
}

// Ran notes that there has been a pod.
func (w *Watched) Ran(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = append(w.pods, id)
}

// Pods are the ids of all pods that were noted.
func (w *Watched) Pods() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pods)
}

// look sees all that belongs to the node, except images, compiled modules and the agent's note of
// the node's boot, which stay on purpose, and the socket for commands about pods: a daemon makes it
// after it is ready.
func (w *Watched) look() (leftovers.Snapshot, error) {
	scope := w.Scope()
	scope.Network = true
	for _, id := range w.Pods() {
		scope.Cgroups = append(scope.Cgroups, strings.TrimPrefix(PodCgroup(id), "/"))
	}
	keep := []string{filepath.Join(w.Root, "images"), filepath.Join(w.Root, "wasm"), filepath.Join(w.Root, "pods", "boot"), w.Logs, w.LogFile, filepath.Join(w.State, "pods.sock")}
	scope.SkipFile = func(path string) bool { return slices.Contains(keep, path) || FreeRecord(path) }
	snapshot, err := leftovers.Take(scope)
	if err != nil {
		return nil, err
	}
	daemon := fmt.Sprintf("process %d ", w.DaemonPID())
	return slices.DeleteFunc(snapshot, func(line string) bool { return strings.HasPrefix(line, daemon) }), nil
}

// Left returns what is there that was not there at the start, except files whose names are skipped.
// The kernel removes links and processes in the background, so it looks for a while.
func (w *Watched) Left(skip ...func(name string) bool) ([]string, error) {
	var fresh []string
	var err error
	Within(Patience, func() bool {
		var now leftovers.Snapshot
		now, err = w.look()
		fresh = slices.DeleteFunc(now.Since(w.before), func(line string) bool {
			return slices.ContainsFunc(skip, func(skip func(string) bool) bool { return skip(filepath.Base(line)) })
		})
		return err != nil || len(fresh) == 0
	})
	return fresh, err
}

// Check runs `sunaba check` on the node and returns its exit code and what it printed.
func (w *Watched) Check(args ...string) (code int, out string, err error) {
	all := append([]string{"check", "--root", w.Root, "--state", w.State, "--config", w.ConfigFile}, args...)
	cmd := exec.Command(filepath.Join(w.Options.Bin, "sunaba"), all...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return -1, said.String(), err
	}
	return cmd.ProcessState.ExitCode(), said.String(), nil
}

// Sound is nil if the check finds nothing.
func (w *Watched) Sound() error {
	code, out, err := w.Check()
	if err == nil && (code != 0 || !strings.HasPrefix(out, "0 findings")) {
		err = fmt.Errorf("the check ends with %d:\n%s", code, out)
	}
	return err
}

// Finish lets the node check itself, removes the pods, looks for leftovers and removes the node. It
// returns all that was wrong.
func (w *Watched) Finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), Slow(3*time.Minute))
	defer cancel()
	var problems []error
	note := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if w.Alive() {
		if err := w.Sound(); err != nil {
			note("at the end: %w", err)
		}
		if err := w.RemovePods(ctx); err != nil {
			note("remove the pods: %w", err)
		}
		if left, err := w.Left(); err != nil {
			note("look for leftovers: %w", err)
		} else if len(left) > 0 {
			note("left over:\n%s\nthe daemon said:\n%s", strings.Join(left, "\n"), w.DaemonLog())
		}
	}
	if forced, err := w.Close(); err != nil {
		note("close the node: %w", err)
	} else if len(forced) > 0 {
		note("left after the daemon's end:\n%s", strings.Join(forced, "\n"))
	}
	return errors.Join(problems...)
}
