package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// faceStarts is the argument of the process that starts guests. Every child of it is reaped in one
// place, as in a shim.
const faceStarts = "starts"

// startGoals are how much longer than wasmtime's a start may take, and memoryGoals how many MiB an
// idle guest.
var (
	startGoals  = map[string]float64{"C": 1.3, "Go": 3.5}
	memoryGoals = map[string]float64{"C": 2, "Go": 3.5}
)

// found is what that process found of one module.
type found struct {
	AtHand, Forked, Wasmtime spans
	Guests, Peers            []float64 // MiB of idle processes
}

// spans are those of starts up to the first byte, in milliseconds: by the clock, and the
// processor's, which others on the machine disturb less.
type spans struct{ Took, Used []float64 }

func (t *spans) add(p *running) {
	t.Took = append(t.Took, float64(p.took.Microseconds())/1000)
	t.Used = append(t.Used, float64(p.used.Microseconds())/1000)
}

// starts compares guests with wasmtime's processes: the time until the first byte that they write,
// and the memory of idle ones. A guest's time is that of its container: with a prewarmed process, as
// pods have one, and with one that is forked for it.
func (b *bench) starts(ctx context.Context) error {
	if _, err := os.Stat(b.wasmtime); err != nil {
		return fmt.Errorf("find the process to compare with: %w", err)
	}
	c, err := oci.BuildC(ctx, "tests/bench/wasm/testdata/hello.c")
	if err != nil {
		return err
	}
	program, err := oci.BuildGo(ctx, "tests/bench/wasm/hello", oci.Wasip1)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "starts: %d of each, in turn; memory of %d idle guests\n", b.rounds, b.beside)
	for _, m := range []struct {
		name   string
		module []byte
	}{{"C", c}, {"Go", program}} {
		f, err := b.startModule(ctx, m.name, m.module, b.beside)
		if err != nil {
			return err
		}
		for _, way := range []struct {
			name  string
			times spans
		}{{"prewarmed", f.AtHand}, {"forked", f.Forked}} {
			if len(way.times.Took) == 0 {
				continue
			}
			ratio := measure.SpreadOf(measure.Ratios(way.times.Took, f.Wasmtime.Took))
			b.table.Add(fmt.Sprintf("start to first byte, %s, process %s, ms, beside wasmtime's", m.name, way.name), measure.SpreadOf(way.times.Took).Text("%.1f"),
				measure.SpreadOf(f.Wasmtime.Took).Text("%.1f"), ratio.Text("%.2f"), fmt.Sprintf("≤ %.1f ×", startGoals[m.name]), ratio.Median <= startGoals[m.name])
			b.table.Add("  processor time of that, ms", measure.SpreadOf(way.times.Used).Text("%.1f"), measure.SpreadOf(f.Wasmtime.Used).Text("%.1f"),
				measure.SpreadOf(measure.Ratios(way.times.Used, f.Wasmtime.Used)).Text("%.2f"), "", false)
		}
		ours, theirs := measure.SpreadOf(f.Guests), measure.SpreadOf(f.Peers)
		b.table.Add(fmt.Sprintf("PSS of one of %d idle, %s, MiB, beside wasmtime's", b.beside, m.name), ours.Text("%.2f"), theirs.Text("%.2f"),
			fmt.Sprintf("%.2f", ours.Median/theirs.Median), fmt.Sprintf("≤ %.1f MiB", memoryGoals[m.name]), ours.Median <= memoryGoals[m.name])
	}
	return nil
}

// inProcess runs startsMain in a process of its own.
func (b *bench) inProcess(ctx context.Context, module string, idle int) (found, error) {
	var f found
	cmd := exec.CommandContext(ctx, "/proc/self/exe", faceStarts, "-shim", filepath.Join(b.bin, "containerd-shim-sunaba-v1"),
		"-wasmtime", b.wasmtime, "-dir", b.dir, "-rounds", fmt.Sprint(b.rounds), "-guests", fmt.Sprint(idle), module)
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(said, &f)
}

// startsMain measures one module and prints what it found.
func startsMain(args []string, stdout, stderr io.Writer) int {
	var s starter
	flags := flag.NewFlagSet(faceStarts, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.shim, "shim", "", "")
	flags.StringVar(&s.wasmtime, "wasmtime", "", "")
	flags.StringVar(&s.dir, "dir", "", "")
	flags.IntVar(&s.rounds, "rounds", 0, "")
	flags.IntVar(&s.guests, "guests", 0, "")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 {
		return 2
	}
	s.module = flags.Arg(0)
	f, err := s.measure(context.Background())
	if err == nil {
		err = json.NewEncoder(stdout).Encode(f)
	}
	if err != nil {
		fmt.Fprintln(stderr, "starts:", err)
		return 1
	}
	return 0
}

// measure starts processes in turn, then has many idle ones at once.
func (s *starter) measure(ctx context.Context) (f found, err error) {
	if err := s.open(); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	kinds := []struct {
		start func(context.Context) (*running, error)
		times *spans
	}{{s.guest, &f.Forked}, {s.peer, &f.Wasmtime}, {s.ready, &f.AtHand}}
	if cgroups.IsCgroup2UnifiedMode() {
		kinds = kinds[:2] // no process is ever prewarmed
	}
	for round := -2; round < s.rounds; round++ {
		for _, k := range kinds {
			p, err := k.start(ctx)
			if err != nil {
				return f, err
			}
			if round >= 0 { // those before fill caches
				k.times.add(p)
			}
			if err := p.end(); err != nil {
				return f, err
			}
		}
	}
	if f.Guests, err = s.idle(ctx, s.guest); err != nil {
		return f, err
	}
	f.Peers, err = s.idle(ctx, s.peer)
	return f, err
}

// idle is the memory of each of many idle processes.
func (s *starter) idle(ctx context.Context, start func(context.Context) (*running, error)) (sizes []float64, err error) {
	var all []*running
	defer func() {
		for _, p := range all {
			err = errors.Join(err, p.end())
		}
	}()
	for range s.guests {
		p, err := start(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if err := measure.Wait(ctx, 500*time.Millisecond); err != nil { // what they do after their first byte is done
		return nil, err
	}
	for _, p := range all {
		size, err := measure.PSS(p.pid)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, float64(size)/(1<<20))
	}
	return sizes, nil
}

// firstByte reads the first byte that comes through a pipe. More may come: it stays open.
func firstByte(from *os.File) error {
	if err := from.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := from.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("await its first byte: %w", err)
	}
	return nil
}

// pipe is a pipe whose end for the child blocks.
func pipe() (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output"), nil
}
