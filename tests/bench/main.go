// Command bench measures pods on this machine: medians of each CRI call over sequential pods under each
// handler, and the memory of idle ones, with the goals beside them. `make bench-pods` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin", "folder of the two binaries")
	pods := flags.Int("pods", 30, "sequential pods per handler")
	idle := flags.Int("idle", 10, "idle pods at once for the memory figures")
	lists := flags.Int("lists", 0, "pods on the node while lists and stats are measured, instead of all else")
	if err := flags.Parse(args[1:]); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, stdout, *bin, *pods, *idle, *lists); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func bench(ctx context.Context, out io.Writer, bin string, pods, idle, lists int) (err error) {
	dir, err := os.MkdirTemp("", "sunaba-bench-")
	if err != nil {
		return err
	}
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, node.Options{Bin: bin, Dir: dir, Config: fmt.Sprintf("[network]\nconf_dir = %q\n", filepath.Join(dir, "cni"))})
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
	if lists > 0 {
		for _, w := range workloads {
			if err := measure.Lists(ctx, out, n, w, lists, 3, 30); err != nil {
				return err
			}
		}
		return nil
	}
	var results []measure.Result
	for _, w := range workloads {
		fmt.Fprintf(out, "%s: %d pods one after another, then %d idle ones\n", w.Handler, pods, idle)
		y, err := measure.NewYardstick(ctx)
		if err != nil {
			return err
		}
		defer y.Close()
		times, err := measure.Pods(ctx, n, w, pods, y)
		if err != nil {
			return err
		}
		memory, err := measure.IdleMemory(ctx, n, w, idle)
		if err != nil {
			return err
		}
		results = append(results, measure.Result{Workload: w, Times: times, Memory: memory, Yard: y})
	}
	fmt.Fprintf(out, "\nmedians and 95th percentiles of %d pods, memory of %d idle pods; ! is a goal that was missed, ~ one missed by less than\n"+
		"this machine is slower now than where the goals were set, by a bare runc run after each pod\n\n", pods, idle)
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
