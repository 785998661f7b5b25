// Command bench measures pods on this machine: medians of each CRI call over sequential pods under
// each handler, and the memory of idle ones, with the goals beside them. `make bench-pods` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	bin := flags.String("bin", "bin", "folder of the two binaries")
	pods := flags.Int("pods", 30, "sequential pods per handler")
	idle := flags.Int("idle", 10, "idle pods at once for the memory figures")
	lists := flags.Int("lists", 0, "pods on the node while lists and stats are measured, instead of all else")
	each := flags.Int("each", 3, "containers of each pod of -lists")
	only := flags.String("only", "", "the handler to measure, of runc and wasm; both when empty")
	scopes := flags.Int("scopes", 0, "pods at once whose shims are compared: one for each pod, and one for all; instead of all else")
	crowd := flags.Int("crowd", 0, "pods that start at once, ten times under each handler; instead of all else")
	return commandline.Run("bench", flags, args[1:], stderr, func(ctx context.Context) error {
		return bench(ctx, stdout, *bin, *only, counts{*pods, *idle, *lists, *each, *scopes, *crowd})
	})
}

// counts say how many pods of what are measured.
type counts struct{ pods, idle, lists, each, scopes, crowd int }

func bench(ctx context.Context, out io.Writer, bin, only string, c counts) (err error) {
	dir, err := os.MkdirTemp("", "sunaba-bench-")
	if err != nil {
		return err
	}
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	handlers := measure.OwnHandlers
	if c.scopes > 0 {
		handlers = measure.SharedHandlers
	}
	config := fmt.Sprintf("[network]\nconf_dir = %q\n%s", filepath.Join(dir, "cni"), handlers)
	n, err := node.Start(ctx, node.Options{Bin: bin, Dir: dir, Config: config})
	if err != nil {
		return err
	}
	defer func() {
		if _, closed := n.Close(); err == nil {
			err = closed
		}
	}()
	registry, err := oci.Serve("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer registry.Close()
	workloads, err := measure.Workloads(ctx, registry, n, "examples/c/guest.c")
	if err != nil {
		return err
	}
	if only != "" {
		workloads = slices.DeleteFunc(workloads, func(w measure.Workload) bool { return w.Handler != only })
	}
	if len(workloads) == 0 {
		return fmt.Errorf("-only %q: not runc or wasm", only)
	}
	if c.crowd > 0 {
		return measure.Crowd(ctx, out, n, workloads, c.crowd, 10)
	}
	if c.lists > 0 || c.scopes > 0 {
		for _, w := range workloads {
			if c.lists > 0 {
				err = measure.Lists(ctx, out, n, w, c.lists, c.each, 30)
			} else {
				err = measure.Scopes(ctx, out, n, w, c.pods, c.scopes)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var results []measure.Result
	for _, w := range workloads {
		fmt.Fprintf(out, "%s: %d pods one after another, then %d idle ones\n", w.Handler, c.pods, c.idle)
		y, err := measure.NewYardstick(ctx)
		if err != nil {
			return err
		}
		defer y.Close()
		times, err := measure.Pods(ctx, n, w, c.pods, y)
		if err != nil {
			return err
		}
		memory, err := measure.IdleMemory(ctx, n, w, c.idle)
		if err != nil {
			return err
		}
		results = append(results, measure.Result{Workload: w, Times: times, Memory: memory, Yard: y})
	}
	fmt.Fprintf(out, "\nmedians and 95th percentiles of %d pods, memory of %d idle pods; ! is a goal that was missed, ~ one missed by less than\n"+
		"this machine is slower now than where the goals were set, by a bare runc run after each pod\n\n", c.pods, c.idle)
	if _, err = measure.Print(out, results); err != nil {
		return err
	}
	for _, r := range results {
		if err := r.Yard.Print(out); err != nil {
			return err
		}
	}
	return nil
}
