// Command agent measures what the agent of `sunaba serve`, which runs the pods of manifests, costs
// above the bare CRI calls on the same server: memory, probes, starts, restarts, synced writes and
// the size of the program, each with its goal. `make bench-agent` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/killer"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
)

// inside is set in the environment of the program in namespaces of its own.
const inside = "SUNABA_BENCH_AGENT"

func main() {
	killer.Serve()
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// bench is what is measured, and with what.
type bench struct {
	out     io.Writer
	bin     string
	kubelet string        // program, "" for none
	pods    int           // at once
	rounds  int           // of what is done one after another
	watch   time.Duration // how long processor time is counted
	quiet   time.Duration // how long writes are counted while nothing happens
	quick   bool          // only what the goals name first
	dir     string
	table   measure.Comparison
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	b := &bench{out: stdout}
	flags.StringVar(&b.bin, "bin", "bin", "folder of the two binaries")
	flags.StringVar(&b.kubelet, "kubelet", "", "a kubelet to compare with, which make tests/tools-kubelet/bin/kubelet builds; none when empty")
	flags.IntVar(&b.pods, "pods", 100, "pods at once")
	flags.IntVar(&b.rounds, "rounds", 30, "of what is done one after another")
	flags.DurationVar(&b.watch, "watch", time.Minute, "how long processor time is counted")
	flags.DurationVar(&b.quiet, "quiet", time.Minute, "how long synced writes are counted while nothing happens")
	flags.BoolFunc("quick", "the main goals in ten minutes: 5 rounds, 20 s of processor time, 30 s of quiet, guests only, no TCP probes", func(string) error {
		b.quick, b.rounds, b.watch, b.quiet = true, 5, 20*time.Second, 30*time.Second
		return nil
	})
	only := flags.String("only", "", "parts to run, with commas between them; all when empty: "+strings.Join(names(b.parts()), ", "))
	return commandline.Run("bench", flags, args[1:], stderr, func(ctx context.Context) error { return b.run(ctx, args[1:], *only) })
}

// part is one subject.
type part struct {
	name string
	run  func(context.Context) error
}

func (b *bench) parts() []part {
	list := []part{{"size", b.size}, {"memory", b.memory}}
	for _, p := range probed {
		list = append(list, part{p.part, b.probes(p)})
	}
	list = append(list, []part{
		{"starts", b.starts}, {"crowd", b.crowd}, {"boot", b.boot}, {"edits", b.edits}, {"restart", b.restart}, {"writes", b.writes},
	}...)
	if b.kubelet != "" {
		list = append(list, part{"kubelet", b.besideKubelet})
	}
	return list
}

// quick are the parts of -quick.
var quick = []string{"size", "memory", "http", "exec-guest", "starts", "boot", "writes"}

// handlers are those whose pods are measured.
func (b *bench) handlers() []string {
	if b.quick {
		return []string{"wasm"}
	}
	return []string{"wasm", "runc"}
}

func names(parts []part) []string {
	var list []string
	for _, p := range parts {
		list = append(list, p.name)
	}
	return list
}

func (b *bench) run(ctx context.Context, args []string, only string) (err error) {
	if os.Getenv(inside) == "" {
		return node.RunAgain(ctx, args, inside+"=1")
	}
	parts := b.parts()
	var wanted []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		switch {
		case only == "" && b.quick:
			wanted = slices.DeleteFunc(parts, func(p part) bool { return !slices.Contains(quick, p.name) })
		case only == "":
			wanted = parts
		case i < 0:
			return fmt.Errorf("-only: there is no part %q: there are %s", name, strings.Join(names(parts), ", "))
		default:
			wanted = append(wanted, parts[i])
		}
	}
	if err := node.Loopback(); err != nil {
		return err
	}
	if b.dir, err = measure.Prepare("agent", "pods have namespaces and cgroups", &b.bin); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	for _, p := range wanted {
		fmt.Fprintf(b.out, "%s ...\n", p.name)
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return b.table.Print(b.out)
}
