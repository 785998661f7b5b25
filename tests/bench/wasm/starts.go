package main

import (
	"context"
	"fmt"
	"os"

	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// startGoals are how much longer than wasmtime's a start may take, and memoryGoals how many MiB an
// idle guest.
var (
	startGoals  = map[string]float64{"C": 1.3, "Go": 3.5}
	memoryGoals = map[string]float64{"C": 2, "Go": 3.5}
)

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
		for _, way := range f.Ways() {
			ratio := measure.SpreadOf(measure.Ratios(way.Took, f.Peer.Took))
			b.table.Add(fmt.Sprintf("start to first byte, %s, process %s, ms, beside wasmtime's", m.name, way.Name), measure.SpreadOf(way.Took).Text("%.1f"),
				measure.SpreadOf(f.Peer.Took).Text("%.1f"), ratio.Text("%.2f"), fmt.Sprintf("≤ %.1f ×", startGoals[m.name]), ratio.Median <= startGoals[m.name])
			b.table.Add("  processor time of that, ms", measure.SpreadOf(way.Used).Text("%.1f"), measure.SpreadOf(f.Peer.Used).Text("%.1f"),
				measure.SpreadOf(measure.Ratios(way.Used, f.Peer.Used)).Text("%.2f"), "", false)
		}
		ours, theirs := measure.SpreadOf(f.Idle), measure.SpreadOf(f.IdlePeers)
		b.table.Add(fmt.Sprintf("PSS of one of %d idle, %s, MiB, beside wasmtime's", b.beside, m.name), ours.Text("%.2f"), theirs.Text("%.2f"),
			fmt.Sprintf("%.2f", ours.Median/theirs.Median), fmt.Sprintf("≤ %.1f MiB", memoryGoals[m.name]), ours.Median <= memoryGoals[m.name])
	}
	return nil
}
