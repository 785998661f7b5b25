package wasm

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// lightGuests are guests of each kind, with what they say when they are up.
var lightGuests = []struct {
	name, says string
	args       []string
}{
	{"sleeper", "up", nil},
	{"gosuite", "ready", []string{"sleep"}},
	{"greeter", "listening", nil},
}

// variants are the ways of loading that are compared, one after the other in every round.
var variants = []struct {
	name string
	skip compile.Steps
}{
	{"plain", compile.AllSteps},
	{"image", compile.AllSteps &^ compile.StepImage},
	{"bare", compile.StepShare},
	{"light", 0},
}

// lightBench is a bundle of such a guest for an engine that skips steps.
func lightBench(b *testing.B, guest int, skip compile.Steps) *bench {
	g := lightGuests[guest]
	n := newBench(b, g.name, g.args...)
	n.engine = shared.engineWith(b, skip)
	if g.name == "greeter" {
		n.bundle.Spec.Annotations[shim.AnnotationWasmListen] = `[{"name":"http","port":8080}]`
	}
	return n
}

// BenchmarkLightStart compares the steps: Create and Start until a guest's first byte.
func BenchmarkLightStart(b *testing.B) {
	for i, g := range lightGuests {
		b.Run(g.name, func(b *testing.B) {
			times := make([][]time.Duration, len(variants))
			for b.Loop() {
				for j, v := range variants {
					n := lightBench(b, i, v.skip)
					n.pipes(false)
					begin := time.Now()
					c, err := n.engine.Create(context.Background(), n.bundle, n.io, shim.Options{})
					if err != nil {
						b.Fatal(err)
					}
					n.release()
					start(b, c.Init())
					n.stdout.await(b, g.says)
					times[j] = append(times[j], time.Since(begin))
					if err := c.Delete(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			}
			for j, v := range variants {
				slices.Sort(times[j])
				b.ReportMetric(float64(times[j][len(times[j])/2].Microseconds())/1000, v.name+"-ms")
				b.ReportMetric(float64(times[j][0].Microseconds())/1000, v.name+"-min-ms")
			}
		})
	}
}

// BenchmarkLightIdle compares the memory of idle guests, 20 at once of each kind and variant.
func BenchmarkLightIdle(b *testing.B) {
	const guests = 20
	for i, g := range lightGuests {
		for _, v := range variants {
			b.Run(g.name+"/"+v.name, func(b *testing.B) {
				for b.Loop() {
					var containers []shim.Container
					for range guests {
						n := lightBench(b, i, v.skip)
						c := n.create()
						start(b, c.Init())
						n.stdout.await(b, g.says)
						containers = append(containers, c)
					}
					time.Sleep(500 * time.Millisecond)
					var pss, private float64
					for _, c := range containers {
						p, q, _ := rollup(b, c.Init().Pid())
						pss, private = pss+p, private+q
					}
					b.ReportMetric(pss/guests/1024, "PSS-MiB")
					b.ReportMetric(private/guests/1024, "private-MiB")
				}
			})
		}
	}
}
