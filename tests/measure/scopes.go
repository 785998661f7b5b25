package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/node"
)

// SharedPrefix is before the names of the handlers whose pods share a shim.
const SharedPrefix = "shared-"

// OwnHandlers is the default handler table, except that each pod has a shim of its own, whose
// memory can be told from that of other pods.
const OwnHandlers = `
[handlers.runc]
type = "oci"
shim_scope = "pod"
default = true
[handlers.wasm]
type = "wasm"
shim_scope = "pod"
`

// SharedHandlers is the handler table for Scopes.
const SharedHandlers = OwnHandlers + `
[handlers.shared-runc]
type = "oci"
shim_scope = "node"
[handlers.shared-wasm]
type = "wasm"
shim_scope = "node"
`

// Scopes runs pods whose shims are their own and pods that share one: first one after another by
// turns, with their calls timed, then many idle ones of each kind, with the memory of all shims and
// supervisors.
func Scopes(ctx context.Context, out io.Writer, n *node.Node, w Workload, rounds, pods int) error {
	own, shared := w, w
	shared.Handler = SharedPrefix + w.Handler
	anchor := &life{ctx: ctx, node: n, times: Times{}} // on a node with pods, the shim is there
	if err := anchor.up(shared); err != nil {
		return err
	}
	times := map[string]Times{own.Handler: {}, shared.Handler: {}}
	for i := -3; i < rounds; i++ {
		for _, one := range []Workload{own, shared} {
			l := &life{ctx: ctx, node: n, times: times[one.Handler], counted: i >= 0}
			if err := errors.Join(l.up(one), l.down()); err != nil {
				return err
			}
		}
	}
	if err := anchor.down(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s: medians of %d pods of each kind by turns, in milliseconds: a shim for each pod, one for all, and what that is of the first\n", w.Handler, rounds)
	for _, call := range Calls {
		a, b := times[own.Handler].Quantile(call, 0.5), times[shared.Handler].Quantile(call, 0.5)
		fmt.Fprintf(out, "  %-18s %7.1f %7.1f %6.2f\n", call, Milliseconds(a), Milliseconds(b), float64(b)/float64(a))
	}
	for _, one := range []Workload{own, shared} {
		if err := shimMemory(ctx, out, n, one, pods); err != nil {
			return err
		}
	}
	return nil
}

// shimMemory runs idle pods at once and measures what their shims take, and the supervisor of a
// shim that they share.
func shimMemory(ctx context.Context, out io.Writer, n *node.Node, w Workload, pods int) (err error) {
	var lives []*life
	defer func() {
		for _, l := range lives {
			err = errors.Join(err, l.down())
		}
	}()
	for range pods {
		l := &life{ctx: ctx, node: n, times: Times{}}
		if err := l.up(w); err != nil {
			return err
		}
		lives = append(lives, l)
	}
	select {
	case <-time.After(12 * time.Second): // longer than a shim waits before it gives memory back, and a prewarmed process for a guest
	case <-ctx.Done():
		return ctx.Err()
	}
	pids, err := Shims(n)
	if err != nil {
		return err
	}
	var sum int64
	var each []string
	for _, pid := range pids {
		pss, err := PSS(pid)
		if err != nil {
			return err
		}
		sum += pss
		each = append(each, fmt.Sprintf("%.1f", float64(pss)/(1<<20)))
	}
	if len(each) > 4 {
		each = []string{"…"}
	}
	_, err = fmt.Fprintf(out, "  %s: %d pods have %d shims and supervisors with %.1f MiB together (%s), %.3f MiB for each pod\n", w.Handler, pods, len(pids),
		float64(sum)/(1<<20), strings.Join(each, " + "), float64(sum)/(1<<20)/float64(pods))
	return err
}

// Shims are the process ids of all shims and supervisors of a node.
func Shims(n *node.Node) ([]int, error) {
	return worksBelow(filepath.Join(n.State, "sandboxes"), filepath.Join(n.State, "shims"))
}

// worksBelow are the processes whose working directory is below one of the folders: shims and
// supervisors.
func worksBelow(dirs ...string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if err == nil && slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(cwd, dir+"/") }) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Written is how many bytes a node's server and its shims have had written to a disk.
func Written(n *node.Node) (sum int64, err error) {
	pids, err := Shims(n)
	if err != nil {
		return 0, err
	}
	for _, pid := range append(pids, n.DaemonPID()) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(data), "\nwrite_bytes: ")
		line, _, _ := strings.Cut(rest, "\n")
		bytes, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/%d/io: %w", pid, err)
		}
		sum += bytes
	}
	return sum, nil
}
