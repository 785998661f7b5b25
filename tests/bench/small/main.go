// Command small measures a node of little memory and one processor: the server, its page cache and
// idle guests in C, or servers in Go, in one memory cgroup, while an image is pulled. `make
// bench-small` runs it. It wants cgroup version 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sunaba-project/sunaba/tests/commandline"
	"github.com/sunaba-project/sunaba/tests/measure"
	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// inside is set in the environment of the program in namespaces of its own.
const inside = "SUNABA_BENCH_SMALL"

func main() { os.Exit(run(os.Args, os.Stdout, os.Stderr)) }

// bench is what is measured, and with what.
type bench struct {
	out           io.Writer
	bin           string
	memory        int // MiB, of everything
	pods, servers int
	pull          int // MiB, of the image
	starts        int
	quiet         time.Duration // how long writes are counted while nothing happens
	dir           string
	registry      *oci.Registry
	guest, server string // images
	image         string // that is pulled
	table         measure.Comparison
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	b := &bench{out: stdout}
	flags.StringVar(&b.bin, "bin", "bin", "folder of the two binaries")
	flags.IntVar(&b.memory, "memory", 128, "MiB of memory of the node")
	flags.IntVar(&b.pods, "pods", 20, "idle guests in C")
	flags.IntVar(&b.servers, "servers", 8, "servers in Go")
	flags.IntVar(&b.pull, "pull", 30, "MiB of the image that is pulled")
	flags.IntVar(&b.starts, "starts", 21, "starts of the server")
	flags.DurationVar(&b.quiet, "quiet", time.Minute, "how long writes are counted while nothing happens")
	return commandline.Run("bench", flags, args[1:], stderr, func(ctx context.Context) error {
		if os.Getenv(inside) == "" {
			return node.RunAgain(ctx, args[1:], inside+"=1")
		}
		return b.run(ctx)
	})
}

func (b *bench) run(ctx context.Context) (err error) {
	if err := node.Loopback(); err != nil {
		return err
	}
	if b.dir, err = measure.Prepare("small", "pods have namespaces and cgroups", &b.bin); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.registry, err = oci.Serve("127.0.0.1:0"); err != nil {
		return err
	}
	defer b.registry.Close()
	if err := b.push(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, *small) error
	}{
		{"starts", b.launches},
		{"guests", func(ctx context.Context, s *small) error { return b.crowd(ctx, s, "guests in C", b.guest, b.pods) }},
		{"servers", func(ctx context.Context, s *small) error {
			return b.crowd(ctx, s, "servers in Go", b.server, b.servers)
		}},
	} {
		fmt.Fprintf(b.out, "%s ...\n", part.name)
		if err := b.on(ctx, func(s *small) error { return part.run(ctx, s) }); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return b.table.Print(b.out)
}

// push makes the images.
func (b *bench) push(ctx context.Context) error {
	guest, err := oci.PackedC(ctx, "tests/criwasm/testdata/guest.c")
	if err != nil {
		return err
	}
	program, err := oci.BuildGo(ctx, "tests/bench/wasm/server", oci.Wasip1)
	if err != nil {
		return err
	}
	server, err := oci.Packed(oci.Wasip1, oci.Program("server.wasm", program))
	if err != nil {
		return err
	}
	// What a compressor makes nothing of, in files as programs and libraries are.
	noise := rand.NewChaCha8([32]byte{1})
	var files []oci.File
	for i := range 4 * b.pull {
		data := make([]byte, 256<<10)
		_, _ = noise.Read(data) // it returns no error
		files = append(files, oci.Text(fmt.Sprintf("file-%03d", i), string(data)))
	}
	layer, err := oci.Layer(files...)
	if err != nil {
		return err
	}
	large, err := oci.Image(oci.Host(), v1.Config{}, layer)
	if err != nil {
		return err
	}
	for _, one := range []struct {
		name  string
		image v1.Image
		ref   *string
	}{{"guest", guest, &b.guest}, {"server", server, &b.server}, {"large", large, &b.image}} {
		if *one.ref, err = b.registry.Push(ctx, "bench/"+one.name+":1", one.image); err != nil {
			return err
		}
	}
	return nil
}

// launches starts the server on a node that has run before, again and again.
func (b *bench) launches(ctx context.Context, s *small) error {
	var took, cpu []float64
	for i := range b.starts {
		if err := s.stop(); err != nil {
			return err
		}
		started := time.Now()
		if err := s.start(ctx); err != nil {
			return err
		}
		if i > 0 {
			used, err := measure.CPUTime(s.DaemonPID())
			if err != nil {
				return err
			}
			took = append(took, measure.Milliseconds(time.Since(started)))
			cpu = append(cpu, float64(used)/float64(time.Millisecond))
		}
	}
	spread := measure.SpreadOf(took)
	b.table.Add("start of the server until it is ready, ms", spread.Text("%.0f"), "", "", "≤ 150", spread.Median <= 150)
	b.table.Add("  processor time of it, ms", measure.SpreadOf(cpu).Text("%.0f"), "", "", "", false)
	return b.figures(ctx, s, "the server alone")
}

// crowd runs pods, leaves them in peace, and then pulls an image.
func (b *bench) crowd(ctx context.Context, s *small, what, image string, count int) error {
	what = fmt.Sprintf("%d %s", count, what)
	took, err := s.pull(ctx, image)
	if err != nil {
		return err
	}
	if err := b.pulled(s, fmt.Sprintf("pull of the image for %s", what), took); err != nil {
		return err
	}
	if err := b.first(ctx, s, what, image); err != nil {
		return err
	}
	started := time.Now()
	if err := s.up(ctx, image, count-1); err != nil {
		return err
	}
	b.table.Add(fmt.Sprintf("%s: the others run after, s", what), fmt.Sprintf("%.1f", time.Since(started).Seconds()), "", "", "", false)
	if err := b.figures(ctx, s, what); err != nil {
		return err
	}
	written, err := s.writtenIn(ctx, b.quiet)
	if err != nil {
		return err
	}
	b.table.Add(fmt.Sprintf("%s idle for %v: written, bytes", what, b.quiet), fmt.Sprint(written), "", "", "≤ 0", written == 0)
	if took, err = s.pull(ctx, b.image); err != nil {
		return err
	}
	if err := b.pulled(s, fmt.Sprintf("pull of %d MiB beside %s", b.pull, what), took); err != nil {
		return err
	}
	return s.allRun(ctx)
}

// first starts the first of some pods, for which the image's module is compiled. Where there is too
// little memory for that, it is done with more.
func (b *bench) first(ctx context.Context, s *small, what, image string) error {
	started := time.Now()
	err := s.up(ctx, image, 1)
	b.table.Add(fmt.Sprintf("%s: the first runs after, s", what), fmt.Sprintf("%.1f", time.Since(started).Seconds()), "", "", "it runs", err == nil)
	if err == nil {
		peak, err := s.peak()
		b.table.Add("  the most that anything took while it was compiled, MiB", fmt.Sprintf("%.1f", mib(peak)), "", "", "", false)
		return err
	}
	fmt.Fprintf(b.out, "%s: %v\n", what, err)
	if err := errors.Join(s.RemovePods(ctx), s.forgive(), s.limit(enough)); err != nil {
		return err
	}
	started = time.Now()
	if err := s.up(ctx, image, 1); err != nil {
		return err
	}
	b.table.Add(fmt.Sprintf("  with %d MiB until it runs, s", enough>>20), fmt.Sprintf("%.1f", time.Since(started).Seconds()), "", "", "", false)
	return s.limit(int64(b.memory) << 20)
}

// enough is memory in bytes for the compilation of any module that is measured.
const enough = 1 << 30

// pulled adds how long a pull took, and what it took at most.
func (b *bench) pulled(s *small, what string, took time.Duration) error {
	peak, err := s.peak()
	if err != nil {
		return err
	}
	b.table.Add(what+", s", fmt.Sprintf("%.1f", took.Seconds()), "", "", "", false)
	b.table.Add("  the most that anything took while it ran, MiB", fmt.Sprintf("%.1f", mib(peak)), "", "", "", false)
	return nil
}

// figures adds what the node takes when it has come to rest.
func (b *bench) figures(ctx context.Context, s *small, what string) error {
	if err := measure.Wait(ctx, settle); err != nil {
		return err
	}
	u, err := s.usage()
	if err != nil {
		return err
	}
	b.table.Add(what+": memory, MiB", fmt.Sprintf("%.1f", mib(u.all)), "", "", fmt.Sprintf("≤ %d", b.memory), u.killed == 0)
	b.table.Add("  of it processes' own and the kernel's", fmt.Sprintf("%.1f + %.1f", mib(u.own), mib(u.kernel)), "", "", "", false)
	b.table.Add("  of it files'", fmt.Sprintf("%.1f", mib(u.files)), "", "", "", false)
	daemon, shims, guests, err := s.processes()
	if err != nil {
		return err
	}
	b.table.Add("  PSS of the server, the shims, the guests", fmt.Sprintf("%.1f + %.1f + %.1f", mib(daemon), mib(shims), mib(guests)), "", "", "", false)
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// settle is how long a node may take to come to rest, and to give back what it needs no more.
const settle = 20 * time.Second

// folder is that of a node.
func (b *bench) folder() string { return filepath.Join(b.dir, "node") }
