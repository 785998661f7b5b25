package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

const (
	httpGoal = 0.40
	idleGoal = 0.1 // per cent of a core
	sumGoal  = 0.5 // of 200 guests
)

// http compares a server as a guest, as it is and with its functions rewritten, with the same one
// built for Linux, and with it as a guest of stock wazero: all in pods of one node, asked through
// the pods' network in turn, by each kind of client.
func (b *bench) http(ctx context.Context, n *node.Node, registry *oci.Registry) error {
	servers, err := b.servers(ctx, n, registry)
	for _, s := range servers {
		defer s.close()
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "requests: %d turns of %v for each server and client, %d connections\n", b.pairs, b.turn, b.conns)
	for turn := -2; turn < b.pairs; turn++ { // those before the first warm up
		for client := range askers {
			for _, s := range servers {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := s.turn(client, b.turn, turn >= 0); err != nil {
					return fmt.Errorf("ask %s by %s: %w", s.name, askers[client].name, err)
				}
			}
		}
	}
	guest, native, stock, rewritten := servers[0], servers[1], servers[2], servers[3]
	goal := fmt.Sprintf("≥ %.2f", httpGoal)
	for client, a := range askers {
		b.compare("net/http, asked by "+a.name, guest, native, client, goal)
		b.compare("net/http rewritten, asked by "+a.name, rewritten, native, client, goal)
		b.compare("stock wazero, asked by "+a.name, stock, native, client, "")
	}
	return nil
}

// compare adds the lines of a server beside the native one.
func (b *bench) compare(what string, s, native *server, client int, goal string) {
	rates, costs := measure.SpreadOf(s.rates[client]), measure.SpreadOf(s.costs[client])
	ratio := measure.SpreadOf(measure.Ratios(s.rates[client], native.rates[client]))
	b.table.Add(what+": requests/s, beside the same server under runc", rates.Text("%.0f"), measure.SpreadOf(native.rates[client]).Text("%.0f"),
		ratio.Text("%.2f"), goal, ratio.Median >= httpGoal)
	b.table.Add("its processor time per request, µs", costs.Text("%.0f"), measure.SpreadOf(native.costs[client]).Text("%.0f"),
		measure.SpreadOf(measure.Ratios(native.costs[client], s.costs[client])).Text("%.2f"), "", false)
}

// quiet watches idle HTTP guests: one, then all of them.
func (b *bench) quiet(ctx context.Context, n *node.Node, registry *oci.Registry) error {
	program, err := oci.BuildGo(ctx, serverDir, oci.Wasip1)
	if err != nil {
		return err
	}
	image, err := push(ctx, registry, n, "idle", oci.Wasip1, program)
	if err != nil {
		return err
	}
	var guests, shims []int
	for i := range b.idle {
		p, err := runPod(ctx, n, "wasm", image, fmt.Sprint("idle-", i), nil)
		if err != nil {
			return err
		}
		if err := p.awaitUp(ctx); err != nil {
			return err
		}
		guests, shims = append(guests, p.process), append(shims, p.shim)
	}
	fmt.Fprintf(b.out, "idle: %d HTTP guests, watched for %v\n", b.idle, b.watch)
	if err := measure.Wait(ctx, 12*time.Second); err != nil { // the prewarmed processes have ended
		return err
	}
	var used [2][]float64
	groups := [2][]int{guests, shims}
	for g, pids := range groups {
		if used[g], err = times(ctx, pids); err != nil {
			return err
		}
	}
	if err := measure.Wait(ctx, b.watch); err != nil {
		return err
	}
	var sums [2]float64
	for g, pids := range groups {
		after, err := times(ctx, pids)
		if err != nil {
			return err
		}
		for i := range after {
			used[g][i] = (after[i] - used[g][i]) / b.watch.Seconds() * 100
			sums[g] += used[g][i]
		}
	}
	one := measure.SpreadOf(used[0])
	b.table.Add("idle net/http guest, % of a core", one.Text("%.4f"), "", "", fmt.Sprintf("≤ %.1f", idleGoal), one.Median <= idleGoal)
	b.table.Add(fmt.Sprintf("%d of them in sum, %% of a core", b.idle), fmt.Sprintf("%.3f", sums[0]), "", "",
		fmt.Sprintf("≤ %.1f", sumGoal), sums[0] <= sumGoal)
	b.table.Add("their shims in sum, % of a core", fmt.Sprintf("%.3f", sums[1]), "", "", "", false)
	return nil
}

// times is the processor time of processes, in seconds.
func times(ctx context.Context, pids []int) ([]float64, error) {
	var all []float64
	for _, pid := range pids {
		used, err := cpuTime(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, used.Seconds())
	}
	return all, ctx.Err()
}

// cpuTime is what a process's threads have used of the processors, to the nanosecond. That of
// threads that have ended is not in it: neither Go's programs nor guests end theirs.
func cpuTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("read the times of process %d: it has ended (%v)", pid, err)
	}
	var sum time.Duration
	for _, path := range threads {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(data), " ")
		ran, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		sum += time.Duration(ran)
	}
	return sum, nil
}
