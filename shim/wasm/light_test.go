package wasm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

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

// TestStepsAreTaken looks at what guests say of how they were loaded.
func TestStepsAreTaken(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b := newBench(t, "gosuite", "echo", "text")
			b.engine = shared.engineWith(t, v.skip)
			c := b.create()
			load, want := c.(*container).entry.Load, v.skip&compile.StepShare == 0
			if got := c.(*container).init.created.Shared; got != want || load.CodeSize > 0 != want {
				t.Errorf("code is shared: %v, want %v; load %+v", got, want, load)
			}
			if got, want := load.ImageSize > 0, v.skip&compile.StepImage == 0; got != want {
				t.Errorf("memory has an image: %v, want %v", got, want)
			}
			if got, want := load.Bare, v.skip&compile.StepBare == 0; got != want {
				t.Errorf("module is bare: %v, want %v", got, want)
			}
			start(t, c.Init())
			if exit := ended(t, c.Init()); exit.Code != 0 || b.stdout.all() != "text" {
				t.Errorf("exit %+v; stdout %q; stderr %q", exit, b.stdout.all(), b.stderr.all())
			}
		})
	}
}

// TestFurtherProcessesShareToo looks at an exec, whose root is its entry.
func TestFurtherProcessesShareToo(t *testing.T) {
	b := newBench(t, "gosuite", "sleep")
	b.engine = shared.engineWith(t, 0)
	c := b.create()
	start(t, c.Init())
	further := startFurther(t, c, &specs.Process{Args: []string{"/app.wasm", "sleep"}, Cwd: "/"}, "ready")
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", further.Pid()))
	if err != nil || !strings.Contains(string(maps), "/"+compile.CodeName+"\n") {
		t.Errorf("its code is private: %v\n%s", err, maps)
	}
}

// TestTrapsLookTheSame compares a stack trace with names from the module with one that has them from
// the file beside it.
func TestTrapsLookTheSame(t *testing.T) {
	texts := map[string]string{}
	for _, v := range variants {
		b := newBench(t, "probe", "trap")
		b.engine = shared.engineWith(t, v.skip)
		if exit := b.runToEnd(); exit.Code != 134 || !strings.HasPrefix(exit.Message, "wasm trap: unreachable, in ") {
			t.Errorf("%s: exit %+v", v.name, exit)
		}
		texts[v.name] = b.stderr.all()
		if text := texts[v.name]; text != texts["plain"] || !strings.Contains(text, "._start(") {
			t.Errorf("%s: stderr %q, plain %q", v.name, text, texts["plain"])
		}
	}
}

// TestOtherCodeIsNotShared gives a guest a code file that is well but is not what wazero loads.
func TestOtherCodeIsNotShared(t *testing.T) {
	b := newBench(t, "gosuite", "echo", "text")
	e, err := New(Options{Self: os.Getenv("SUNABA_SHIM"), CacheDir: t.TempDir()}, shared.reaper)
	if err != nil {
		t.Fatal(err)
	}
	b.engine = e
	entry, err := e.ensure(context.Background(), filepath.Join(b.bundle.Rootfs, "app.wasm"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	forge(t, filepath.Join(entry.Dir, compile.CodeName), entry, func(code []byte) []byte {
		code[len(code)/2] ^= 1
		return code
	})
	c := b.create()
	if c.(*container).init.created.Shared {
		t.Error("the code was shared")
	}
	start(t, c.Init())
	if exit := ended(t, c.Init()); exit.Code != 0 || b.stdout.all() != "text" {
		t.Errorf("exit %+v; stdout %q; stderr %q", exit, b.stdout.all(), b.stderr.all())
	}
}

// forge changes a file of an entry so that it verifies.
func forge(t *testing.T, path string, entry compile.Entry, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	listed := func() string {
		return fmt.Sprintf(`"size":%d,"crc32c":%d`, len(data), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	}
	before := listed()
	data = change(data)
	record := filepath.Join(entry.Dir, "entry.json")
	text, err := os.ReadFile(record)
	if err != nil || strings.Count(string(text), before) != 1 {
		t.Fatalf("record %s, %v", text, err)
	}
	err = errors.Join(os.WriteFile(path, data, 0o644), os.WriteFile(record, []byte(strings.Replace(string(text), before, listed(), 1)), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// TestMachineCodeThatWazeroRefuses gives guests entries of wazero's cache that verify, and that are another version's or
// damaged: nothing is run of them, and the entry is made again.
func TestMachineCodeThatWazeroRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		skip   compile.Steps
		change func([]byte) []byte
	}{
		{"another version", 0, func(e []byte) []byte { e[len("WAZEVO")+1] ^= 1; return e }},
		{"another version, plain", compile.AllSteps, func(e []byte) []byte { e[len("WAZEVO")+1] ^= 1; return e }},
		{"another code", 0, func(e []byte) []byte { e[len(e)/2] ^= 1; return e }},
		{"cut", 0, func(e []byte) []byte { return e[:len(e)/2] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, "hello")
			e, err := New(Options{Self: os.Getenv("SUNABA_SHIM"), CacheDir: t.TempDir(), Skip: c.skip}, shared.reaper)
			if err != nil {
				t.Fatal(err)
			}
			b.engine = e
			entry, err := e.ensure(context.Background(), filepath.Join(b.bundle.Rootfs, "app.wasm"), "", c.skip)
			if err != nil {
				t.Fatal(err)
			}
			code, err := filepath.Glob(filepath.Join(entry.Dir, "wazero-*", "*"))
			if err != nil || len(code) != 1 {
				t.Fatalf("machine code: %v, %v", code, err)
			}
			before, err := os.ReadFile(code[0])
			if err != nil {
				t.Fatal(err)
			}
			forge(t, code[0], entry, c.change)
			if exit := b.runToEnd(); exit.Code != 0 || b.stdout.all() != "hello\n" {
				t.Errorf("exit %+v; stdout %q; stderr %q", exit, b.stdout.all(), b.stderr.all())
			}
			if after, err := os.ReadFile(code[0]); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the entry was not made again: %v", err)
			}
		})
	}
}

// lightBench is a bundle of such a guest for an engine that skips steps.
func lightBench(b *testing.B, guest int, skip compile.Steps) *bench {
	g := lightGuests[guest]
	n := newBench(b, g.name, g.args...)
	n.engine = shared.engineWith(b, skip)
	if g.name == "greeter" {
		n.bundle.Spec.Annotations[shim.AnnotationWasmListen] = `[{"name":"http","port":8080}]`
		return n // in a network namespace of its own
	}
	n.joinNetwork()
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
