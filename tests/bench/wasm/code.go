package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/tests/bench/starts"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// codeGoal is how much longer than wasmtime's the code of guests may take: the geometric mean of
// all programs.
const codeGoal = 1.5

// code compares the code of guests with that of wasmtime's processes: the processor time that C
// programs take until they write what they have computed, minus that of a program that computes
// nothing. Of each it is the minimum, which others on the machine disturb least.
func (b *bench) code(ctx context.Context) error {
	const folder = "tests/bench/wasm/testdata/code"
	programs, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("find programs: %w", err)
	}
	fmt.Fprintf(b.out, "code: %d turns of each program\n", b.rounds)
	nothing, err := b.startC(ctx, "nothing", "tests/bench/wasm/testdata/hello.c")
	if err != nil {
		return err
	}
	start, peerStart := slices.Min(nothing.Forked.Used), slices.Min(nothing.Peer.Used)
	sum := 0.0
	for _, file := range programs {
		name := strings.TrimSuffix(file.Name(), ".c")
		f, err := b.startC(ctx, name, filepath.Join(folder, file.Name()))
		if err != nil {
			return err
		}
		ours, theirs := slices.Min(f.Forked.Used)-start, slices.Min(f.Peer.Used)-peerStart
		sum += math.Log(ours / theirs)
		b.table.Add("processor time of "+name+", least, ms, beside wasmtime's", fmt.Sprintf("%.1f", ours), fmt.Sprintf("%.1f", theirs), fmt.Sprintf("%.2f", ours/theirs), "", false)
	}
	mean := math.Exp(sum / float64(len(programs)))
	b.table.Add("  geometric mean of that", "", "", fmt.Sprintf("%.2f", mean), fmt.Sprintf("≤ %.1f ×", codeGoal), mean <= codeGoal)
	return nil
}

// startC starts guests and wasmtime's processes of a C program by turns.
func (b *bench) startC(ctx context.Context, name, file string) (starts.Found, error) {
	module, err := oci.BuildC(ctx, file)
	if err != nil {
		return starts.Found{}, err
	}
	return b.startModule(ctx, name, module, 0)
}

// startModule compiles a module for wasmtime and starts guests and wasmtime's processes of it by
// turns, then idle ones at once.
func (b *bench) startModule(ctx context.Context, name string, module []byte, idle int) (starts.Found, error) {
	path := filepath.Join(b.dir, name+".wasm")
	if err := os.WriteFile(path, module, 0o644); err != nil {
		return starts.Found{}, err
	}
	if said, err := exec.CommandContext(ctx, b.wasmtime, "compile", path, path+".compiled").CombinedOutput(); err != nil {
		return starts.Found{}, fmt.Errorf("compile by wasmtime: %w\n%s", err, said)
	}
	f, err := starts.Measure(ctx, starts.Options{
		Shim: filepath.Join(b.bin, "containerd-shim-sunaba-v1"), Dir: b.dir, Module: path, Peer: []string{b.wasmtime, "run", path + ".compiled"},
		Rounds: b.rounds, Guests: idle,
	})
	if err != nil {
		return starts.Found{}, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}
