package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

const (
	serverDir = "tests/bench/wasm/server"
	httpGoal  = 0.40
	idleGoal  = 0.1 // per cent of a core
	sumGoal   = 0.5 // of 200 guests
)

// http compares a server as a guest with the same one built for Linux: both in pods of one node, asked through the pods'
// network in turn.
func (b *bench) http(ctx context.Context, n *node.Node, registry *oci.Registry) error {
	kinds := []struct {
		handler  string
		platform v1.Platform
	}{{"wasm", oci.Wasip1}, {"runc", oci.Host()}}
	var rates, costs [2][]float64
	var pods [2]*pod
	var asking [2]*clients
	for i, k := range kinds {
		program, err := oci.BuildGo(ctx, serverDir, k.platform)
		if err != nil {
			return err
		}
		image, err := push(ctx, registry, n, k.handler, k.platform, program)
		if err != nil {
			return err
		}
		if pods[i], err = runPod(ctx, n, k.handler, image, "http-"+k.handler); err != nil {
			return err
		}
		if err := pods[i].awaitUp(ctx); err != nil {
			return err
		}
		if asking[i], err = dial(ctx, pods[i].address, b.conns); err != nil {
			return err
		}
		defer asking[i].close()
	}
	fmt.Fprintf(b.out, "requests: %d turns of %v for each server, %d connections\n", b.pairs, b.turn, b.conns)
	for turn := -2; turn < b.pairs && ctx.Err() == nil; turn++ {
		for i := range kinds {
			before, err := cpuTime(pods[i].process)
			if err != nil {
				return err
			}
			rate, err := asking[i].run(b.turn)
			if err != nil {
				return fmt.Errorf("ask %s: %w", kinds[i].handler, err)
			}
			after, err := cpuTime(pods[i].process)
			if err != nil {
				return err
			}
			if turn >= 0 { // those before warm up
				rates[i] = append(rates[i], rate)
				costs[i] = append(costs[i], float64((after-before).Nanoseconds())/1e3/(rate*b.turn.Seconds()))
			}
		}
	}
	ratio := spreadOf(ratios(rates[0], rates[1]))
	b.table.add("net/http requests/s, beside the same server under runc", spreadOf(rates[0]).text("%.0f"), spreadOf(rates[1]).text("%.0f"),
		ratio.text("%.2f"), fmt.Sprintf("≥ %.2f", httpGoal), ratio.median >= httpGoal)
	b.table.add("its processor time per request, µs", spreadOf(costs[0]).text("%.0f"), spreadOf(costs[1]).text("%.0f"),
		spreadOf(ratios(costs[1], costs[0])).text("%.2f"), "", false)
	return ctx.Err()
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
		p, err := runPod(ctx, n, "wasm", image, fmt.Sprint("idle-", i))
		if err != nil {
			return err
		}
		if err := p.awaitUp(ctx); err != nil {
			return err
		}
		guests, shims = append(guests, p.process), append(shims, p.shim)
	}
	fmt.Fprintf(b.out, "idle: %d HTTP guests, watched for %v\n", b.idle, b.watch)
	if err := wait(ctx, 12*time.Second); err != nil { // the processes that were at hand for a next container are gone
		return err
	}
	var used [2][]float64
	groups := [2][]int{guests, shims}
	for g, pids := range groups {
		if used[g], err = times(ctx, pids); err != nil {
			return err
		}
	}
	if err := wait(ctx, b.watch); err != nil {
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
	one := spreadOf(used[0])
	b.table.add("idle net/http guest, % of a core", one.text("%.4f"), "", "", fmt.Sprintf("≤ %.1f", idleGoal), one.median <= idleGoal)
	b.table.add(fmt.Sprintf("%d of them in sum, %% of a core", b.idle), fmt.Sprintf("%.3f", sums[0]), "", "",
		fmt.Sprintf("≤ %.1f", sumGoal), sums[0] <= sumGoal)
	b.table.add("their shims in sum, % of a core", fmt.Sprintf("%.3f", sums[1]), "", "", "", false)
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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

// cpuTime is what a process's threads have used of the processors, to the nanosecond. That of threads that have ended
// is not in it: neither Go's programs nor guests end theirs.
func cpuTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("read the times of process %d: it is gone (%v)", pid, err)
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
