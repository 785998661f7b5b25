// Command images measures image pulls on this machine, beside containerd's: cold
// pulls, pulls of what is present, and the daemon's memory at its highest, for an
// image of a few large layers, one of many small ones and one of a single layer
// of 1 GiB. `make bench-images` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/measure"
)

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	b := bench{out: stdout}
	flags.StringVar(&b.bin, "bin", "bin", "folder of sunaba's binaries")
	flags.StringVar(&b.containerd, "containerd", "tests/tools-containerd/bin", "folder of containerd's")
	flags.IntVar(&b.rounds, "rounds", 5, "cold pulls of each image by each server")
	only := flags.String("only", "", "the one image to pull: layers, small or large")
	return commandline.Run("bench", flags, args[1:], stderr, func(ctx context.Context) error { return b.run(ctx, *only) })
}

type bench struct {
	out             io.Writer
	bin, containerd string
	rounds          int
	dir             string
	registry        *registry
}

// workload is an image and what is expected of it, as shares of containerd's
// figures. 0 is no expectation.
type workload struct {
	name, text          string
	layers              []layerSize
	rounds              int
	cold, again, memory float64
	mostMiB             float64 // of the daemon's memory, whatever containerd's
}

var workloads = []workload{
	{name: "layers", text: "8 layers, 100 MB", layers: repeat(8, layerSize{files: 400, bytes: 100 << 10, noise: 0.32}), cold: 0.8, again: 0.5, memory: 1},
	{name: "small", text: "300 layers of 3 files", layers: repeat(300, layerSize{files: 3, bytes: 2 << 10, noise: 0.5}), cold: 0.8, again: 0.5, memory: 1},
	{name: "large", text: "1 layer, 1 GiB", layers: []layerSize{{files: 16, bytes: 64 << 20, noise: 1}}, rounds: 1, mostMiB: 150},
}

func repeat(n int, s layerSize) []layerSize { return slices.Repeat([]layerSize{s}, n) }

// figures are what one server did.
type figures struct {
	cold, cpu, again []time.Duration // cpu is what a cold pull takes of the processors
	peak             []int64         // bytes
}

func (b *bench) run(ctx context.Context, only string) (err error) {
	if b.dir, err = measure.Prepare("images", "both servers mount overlayfs", &b.bin, &b.containerd); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.registry, err = serve(filepath.Join(b.dir, "registry")); err != nil {
		return err
	}
	defer b.registry.close()
	for _, w := range workloads {
		if only != "" && only != w.name {
			continue
		}
		if err := b.measure(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// measure pulls a workload's image with both servers in turn, so that what else
// continues meets both.
func (b *bench) measure(ctx context.Context, w workload) error {
	ref, size, err := b.registry.push(w.name, w.layers)
	if err != nil {
		return err
	}
	rounds := b.rounds
	if w.rounds > 0 {
		rounds = w.rounds
	}
	fmt.Fprintf(b.out, "%s (%.0f MB as transferred), %d rounds\n", w.text, float64(size)/1e6, rounds)
	servers := []server{&sunaba{bin: b.bin}, &containerd{bin: b.containerd}}
	got := make([]figures, len(servers))
	for n := range rounds {
		for i := range servers {
			s := servers[(i+n)%len(servers)]
			if err := b.round(ctx, s, ref, &got[(i+n)%len(servers)]); err != nil {
				return fmt.Errorf("%s: %w", s.name(), err)
			}
		}
	}
	b.print(w, got[0], got[1])
	return nil
}

// round gives a server an empty folder, lets it pull once, then again and again.
func (b *bench) round(ctx context.Context, s server, ref string, f *figures) (err error) {
	dir, err := os.MkdirTemp(b.dir, s.name()+"-")
	if err != nil {
		return err
	}
	syscall.Sync() // what the other has left to be written is not this one's
	// The folder stays until all is measured: ext4 is slow to make files for a while after many
	// have been removed.
	if err := s.start(ctx, dir); err != nil {
		return err
	}
	defer func() {
		if serr := s.stop(); err == nil {
			err = serr
		}
	}()
	client := s.client()
	pull := func() (time.Duration, error) {
		began := time.Now()
		_, err := client.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}})
		return time.Since(began), err
	}
	before, err := measure.CPUTime(s.pid())
	if err != nil {
		return err
	}
	cold, err := pull()
	if err != nil {
		return err
	}
	after, err := measure.CPUTime(s.pid())
	if err != nil {
		return err
	}
	f.cold, f.cpu = append(f.cold, cold), append(f.cpu, after-before)
	for range 5 {
		again, err := pull()
		if err != nil {
			return err
		}
		f.again = append(f.again, again)
	}
	peak, err := measure.PeakMemory(s.pid())
	f.peak = append(f.peak, peak)
	return err
}

// print shows medians, and which expectations were missed. On a machine that does other things too,
// the fastest pulls say more.
func (b *bench) print(w workload, own, other figures) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	line := func(what string, own, other, share, most float64) {
		verdict := ""
		switch {
		case share > 0 && own > share*other, most > 0 && own > most:
			verdict = "  ! missed"
		}
		goal := ""
		if share > 0 {
			goal = fmt.Sprintf("at most %.1f", share)
		}
		if most > 0 {
			goal = fmt.Sprintf("at most %.0f MiB", most)
		}
		if goal != "" {
			goal = "  (" + goal + ")"
		}
		fmt.Fprintf(b.out, "  %-22s %10.1f %10.1f  %5.2f%s%s\n", what, own, other, own/other, goal, verdict)
	}
	fmt.Fprintf(b.out, "  %-22s %10s %10s  %5s\n", "medians", "sunaba", "containerd", "ratio")
	line("cold pull, ms", ms(measure.Median(own.cold)), ms(measure.Median(other.cold)), w.cold, 0)
	line("its fastest, ms", ms(slices.Min(own.cold)), ms(slices.Min(other.cold)), 0, 0)
	line("processor time, ms", ms(measure.Median(own.cpu)), ms(measure.Median(other.cpu)), 0, 0)
	line("pull again, ms", ms(measure.Median(own.again)), ms(measure.Median(other.again)), w.again, 0)
	line("highest memory, MiB", mib(measure.Median(own.peak)), mib(measure.Median(other.peak)), w.memory, w.mostMiB)
	fmt.Fprintln(b.out)
}
