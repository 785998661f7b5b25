// Command wasm measures guests of the wasm handler on this machine: starts, memory and the speed of
// code beside wasmtime's, what idle HTTP guests cost, and requests per second beside the same
// server built for Linux and as a guest of stock wazero, each with its goal. `make bench-wasm` runs
// it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/bench/starts"
	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// bench is what is measured, and with what.
type bench struct {
	out           io.Writer
	bin, wasmtime string
	rounds        int           // starts of each kind
	beside        int           // idle guests at once for the memory figures
	idle          int           // idle HTTP guests at once
	watch         time.Duration // how long idle guests are watched
	pairs         int           // turns of each server
	turn          time.Duration
	conns         int
	dir           string
	table         measure.Comparison
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[1] == starts.Face {
		return starts.Main(args[2:], stdout, stderr)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	b := bench{out: stdout}
	flags.StringVar(&b.bin, "bin", "bin", "folder of the two binaries")
	flags.StringVar(&b.wasmtime, "wasmtime", "tests/tools-wasmtime/bin/wasmtime-host", "the process that guests are compared with")
	flags.IntVar(&b.rounds, "rounds", 40, "starts of each kind, and turns of each program")
	flags.IntVar(&b.beside, "guests", 40, "idle guests at once for the memory figures")
	flags.IntVar(&b.idle, "idle", 200, "idle HTTP guests at once")
	flags.DurationVar(&b.watch, "watch", 20*time.Second, "how long idle guests are watched")
	flags.IntVar(&b.pairs, "pairs", 15, "turns of each HTTP server")
	flags.DurationVar(&b.turn, "turn", time.Second, "length of a turn")
	flags.IntVar(&b.conns, "conns", 16, "keep-alive connections")
	only := flags.String("only", "", "parts to run: starts, code, http, idle, with commas between them; all when empty")
	return commandline.Run("bench", flags, args[1:], stderr, func(ctx context.Context) error { return b.run(ctx, *only) })
}

func (b *bench) run(ctx context.Context, only string) (err error) {
	if b.dir, err = measure.Prepare("wasm", "guests have namespaces and cgroups", &b.bin, &b.wasmtime); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	parts := []struct {
		name string
		run  func(context.Context) error
	}{{"starts", b.starts}, {"code", b.code}, {"http", b.onNode(b.http)}, {"idle", b.onNode(b.quiet)}}
	for _, part := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return b.table.Print(b.out)
}

// onNode runs a part with a node of its own.
func (b *bench) onNode(part func(context.Context, *node.Node, *oci.Registry) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		dir := filepath.Join(b.dir, "node")
		n, err := node.Start(ctx, node.Options{Bin: b.bin, Dir: dir, Config: fmt.Sprintf("[network]\nconf_dir = %q\n%s", filepath.Join(dir, "cni"), measure.OwnHandlers)})
		if err != nil {
			return err
		}
		defer func() {
			removed := n.RemovePods(context.WithoutCancel(ctx))
			_, closed := n.Close()
			for _, e := range []error{removed, closed} {
				if err == nil {
					err = e
				}
			}
		}()
		registry, err := oci.Serve("127.0.0.1:0")
		if err != nil {
			return err
		}
		defer registry.Close()
		return part(ctx, n, registry)
	}
}
