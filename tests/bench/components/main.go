// Command components measures components of WASI 0.2: how long one takes to start beside the module
// that it was made of, how long lowering takes, how long CPython takes to start beside wasmtime,
// and how one of 0.2 and one of 0.3 answer HTTP requests beside `wasmtime serve`. `make
// bench-components` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/tests/bench/starts"
	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/components"
	"github.com/sunaba-project/sunaba/tests/measure"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// bench is what is measured, and with what.
type bench struct {
	out    io.Writer
	bin    string
	rounds int
	only   string
	dir    string
	tools  components.Tools
	table  measure.Comparison
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[1] == starts.Face {
		return starts.Main(args[2:], stdout, stderr)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	b := &bench{out: stdout}
	flags.StringVar(&b.bin, "bin", "bin", "folder of the two binaries")
	flags.IntVar(&b.rounds, "rounds", 30, "of what is done one after another; HTTP is asked in a third as many")
	flags.StringVar(&b.only, "only", "", "parts to run: starts, python, http, service, with commas between them; all when empty")
	return commandline.Run("bench", flags, args[1:], stderr, b.run)
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.tools, err = components.Find("."); err != nil {
		return err
	}
	if b.dir, err = measure.Prepare("components", "guests have namespaces and cgroups", &b.bin); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.install(); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"starts", b.starts}, {"python", b.python}, {"http", b.http}, {"service", b.service}} {
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return err
		}
	}
	return b.table.Print(b.out)
}

// install copies the binaries, as an installation does. Go's linker writes its output through a
// mapping, page by page, and what runs from such pages takes a tenth longer to start.
func (b *bench) install() error {
	to := filepath.Join(b.dir, "bin")
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"sunaba", "containerd-shim-sunaba-v1"} {
		program, err := os.ReadFile(filepath.Join(b.bin, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), program, 0o755); err != nil {
			return err
		}
	}
	b.bin = to
	return nil
}

const sources = "tests/bench/components/testdata/"

// starts compares a C program as a component with the same as a module.
func (b *bench) starts(ctx context.Context) error {
	module, component := filepath.Join(b.dir, "module.wasm"), filepath.Join(b.dir, "component.wasm")
	if err := b.tools.CModule(ctx, sources+"hello.c", module); err != nil {
		return err
	}
	if err := b.tools.Adapt(ctx, module, component); err != nil {
		return err
	}
	took, used, err := b.beside(ctx, b.ours(component), b.ours(module))
	if err != nil {
		return err
	}
	b.add("C hello: start to end, ms, as a component beside a module of preview 1", took, used, 1.2)
	return b.lowering("C hello", component)
}

// python compares CPython here and under wasmtime, which has compiled it ahead of time.
func (b *bench) python(ctx context.Context) error {
	component, compiled := filepath.Join(b.dir, "python.wasm"), filepath.Join(b.dir, "python.cwasm")
	if err := b.tools.FromPython(ctx, components.Command, sources+"hello.py", component); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, b.tools.Wasmtime(), "compile", "-o", compiled, component).CombinedOutput(); err != nil {
		return fmt.Errorf("compile with wasmtime: %w\n%s", err, out)
	}
	peer := []string{b.tools.Wasmtime(), "run", "--allow-precompiled", compiled}
	if err := b.containers(ctx, component, peer); err != nil {
		return err
	}
	took, used, err := b.beside(ctx, b.ours(component), peer)
	if err != nil {
		return err
	}
	b.add("Python hello: sunaba wasm run, start to end, ms, beside wasmtime compiled ahead", took, used, 0)
	return b.lowering("Python hello", component)
}

// containers compares starts of pods' containers with wasmtime's process, up to the first byte:
// from a prewarmed process, and from one that is forked for it.
func (b *bench) containers(ctx context.Context, component string, peer []string) error {
	data, err := os.ReadFile(component)
	if err != nil {
		return err
	}
	f, err := starts.Measure(ctx, starts.Options{
		Shim: filepath.Join(b.bin, "containerd-shim-sunaba-v1"), Dir: b.dir, Module: component, Digest: digest.FromBytes(data).String(), Peer: peer, Rounds: b.rounds,
	})
	if err != nil {
		return err
	}
	for _, way := range f.Ways() {
		b.add("Python hello: a pod's container, process "+way.Name+", start to first byte, ms, beside wasmtime compiled ahead",
			[2][]float64{way.Took, f.Peer.Took}, [2][]float64{way.Used, f.Peer.Used}, 2)
	}
	return nil
}

// ours is the command that runs a file here, from the cache of this bench.
func (b *bench) ours(file string) []string {
	return []string{filepath.Join(b.bin, "sunaba"), "wasm", "run", "--root", b.dir, "--state", filepath.Join(b.dir, "state"), file}
}

// beside times two commands by turns, in milliseconds, after one turn that compiles: from start to
// end, and the processor time that each used.
func (b *bench) beside(ctx context.Context, a, o []string) (took, used [2][]float64, err error) {
	for _, command := range [][]string{a, o} {
		if command[0] == filepath.Join(b.bin, "sunaba") {
			compile := []string{"wasm", "compile", "--root", b.dir, command[len(command)-1]}
			if out, err := exec.CommandContext(ctx, command[0], compile...).CombinedOutput(); err != nil {
				return took, used, fmt.Errorf("%q: %w\n%s", compile, err, out)
			}
		}
	}
	for round := range b.rounds + 1 {
		for i, command := range [][]string{a, o} {
			begun, cmd := time.Now(), exec.CommandContext(ctx, command[0], command[1:]...)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "hello\n" {
				return took, used, fmt.Errorf("%q: %w, it said %q", command, errors.Join(err, errors.New("not hello")), out)
			}
			if round > 0 {
				took[i] = append(took[i], milliseconds(time.Since(begun)))
				used[i] = append(used[i], milliseconds(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
			}
		}
	}
	return took, used, nil
}

// lowering times what makes one module of a component.
func (b *bench) lowering(what, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var took []float64
	for range b.rounds {
		begun := time.Now()
		if _, err := lower.Lower(data); err != nil {
			return err
		}
		took = append(took, milliseconds(time.Since(begun)))
	}
	all, mib := measure.SpreadOf(took), float64(len(data))/(1<<20)
	goal := 50 * max(mib/3, 1) // 3 MB in 50 ms
	b.table.Add(fmt.Sprintf("%s: lowering %.1f MiB, ms", what, mib), all.Text("%.1f"), "", "", fmt.Sprintf("≤ %.0f", goal), all.Median <= goal)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// add adds two lines: of the time that something took, which has a goal unless most is 0, and of
// the processor time.
func (b *bench) add(what string, took, used [2][]float64, most float64) {
	b.against(what, "%.1f", took, most, false)
	ours, theirs := measure.SpreadOf(used[0]), measure.SpreadOf(used[1])
	b.table.Add("processor time of that", ours.Text("%.1f"), theirs.Text("%.1f"), measure.SpreadOf(measure.Ratios(used[0], used[1])).Text("%.2f"), "", true)
}
