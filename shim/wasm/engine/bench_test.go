package engine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim"
)

// BenchmarkGuest measures the way of a warm C guest: Create, Start until its first byte, the end by
// SIGKILL and Delete. The machine is seldom quiet: medians and minima tell more than means.
func BenchmarkGuest(b *testing.B) {
	times := map[string][]time.Duration{}
	for b.Loop() {
		n := newBench(b, "sleeper")
		n.joinNetwork()
		n.pipes(false)
		begin := time.Now()
		c, err := n.engine.Create(context.Background(), n.bundle, n.io, shim.Options{})
		if err != nil {
			b.Fatal(err)
		}
		n.release()
		created := time.Now()
		start(b, c.Init())
		n.stdout.await(b, "up")
		up := time.Now()
		if err := c.Init().Signal(context.Background(), 9, true); err != nil {
			b.Fatal(err)
		}
		<-c.Init().Exited()
		if err := c.Delete(context.Background()); err != nil {
			b.Fatal(err)
		}
		for name, d := range map[string]time.Duration{
			"create": created.Sub(begin), "start": up.Sub(created), "up": up.Sub(begin), "down": time.Since(up),
		} {
			times[name] = append(times[name], d)
		}
	}
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(float64(all[0].Microseconds())/1000, name+"-min-ms")
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-median-ms")
	}
}

// BenchmarkPrewarmed compares starts of a C guest from a prewarmed process with those from a forked
// one, by turns: Create and Start until its first byte.
func BenchmarkPrewarmed(b *testing.B) {
	times := map[way][]time.Duration{}
	for b.Loop() {
		for _, w := range []way{forked, warmed} {
			n := newBench(b, "sleeper")
			n.joinNetwork()
			n.pipes(false)
			if w == warmed {
				if err := n.engine.Prepare(context.Background(), n.preparation()); err != nil {
					b.Fatal(err)
				}
				time.Sleep(200 * time.Millisecond) // until it waits for its configuration
			}
			c, took := n.timed(b, "up")
			times[w] = append(times[w], took)
			if err := c.Delete(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	median := func(w way) float64 {
		slices.Sort(times[w])
		return float64(times[w][len(times[w])/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(forked), "forked-median-ms")
	b.ReportMetric(median(warmed), "prewarmed-median-ms")
	b.ReportMetric(median(warmed)/median(forked), "prewarmed/forked")
}

// BenchmarkIdle measures the memory of idle C guests, 20 at once.
func BenchmarkIdle(b *testing.B) {
	const guests = 20
	for b.Loop() {
		var pss, private float64
		var last string
		benches := make([]*bench, guests)
		containers := make([]shim.Container, guests)
		for i := range benches {
			benches[i] = newBench(b, "sleeper")
			benches[i].joinNetwork()
			containers[i] = benches[i].create()
			start(b, containers[i].Init())
			benches[i].stdout.await(b, "up")
		}
		time.Sleep(300 * time.Millisecond)
		for _, c := range containers {
			p, q, text := rollup(b, c.Init().Pid())
			pss, private, last = pss+p, private+q, text
		}
		b.ReportMetric(pss/guests/1024, "PSS-MiB")
		b.ReportMetric(private/guests/1024, "private-MiB")
		if os.Getenv("SUNABA_SHOW_SMAPS") != "" {
			fmt.Println(last)
			data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", containers[guests-1].Init().Pid()))
			fmt.Println(string(data))
		}
	}
}

// rollup sums a process's memory, in KiB.
func rollup(b *testing.B, pid int) (pss, private float64, text string) {
	b.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		b.Fatal(err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "Pss:":
			pss = n
		case "Private_Clean:", "Private_Dirty:":
			private += n
		}
	}
	return pss, private, string(data)
}
