package engine

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
	"github.com/sunaba-project/sunaba/shim/annotation"
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

// TestTrapsLookTheSame compares a stack trace with names from the module with one that has them
// from the file beside it.
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

// forge changes a file of an entry so that it verifies.
func forge(t *testing.T, path string, entry compile.Entry, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	listed := func() string {
		return fmt.Sprintf(`"size":%d,"crc32c":%d,`, len(data), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
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

// ownCache gives the bench an engine with a cache of its own, and returns the module's entry there.
func (b *bench) ownCache(t *testing.T, skip compile.Steps) compile.Entry {
	t.Helper()
	module, cache := filepath.Join(b.bundle.Rootfs, "app.wasm"), t.TempDir()
	made, err := shared.engineWith(t, skip).ensure(context.Background(), module, "", skip|compile.StepFold)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(cache, filepath.Base(made.Dir)), os.DirFS(made.Dir)); err != nil {
		t.Fatal(err)
	}
	if b.engine, err = New(Options{Self: os.Getenv("SUNABA_SHIM"), CacheDir: cache, Skip: skip}, shared.reaper); err != nil {
		t.Fatal(err)
	}
	entry, err := b.engine.ensure(context.Background(), module, made.Digest, skip|compile.StepFold)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// TestFurtherProcessOfDamagedCode damages the machine code of a container that runs: nothing more is
// run of it.
func TestFurtherProcessOfDamagedCode(t *testing.T) {
	b := newBench(t, "gosuite", "sleep")
	entry := b.ownCache(t, 0)
	c := b.create()
	start(t, c.Init())
	code := filepath.Join(entry.Dir, compile.CodeName)
	copyFile(t, code, code+"-copy")
	if err := os.Rename(code+"-copy", code); err != nil { // the container runs the one that was there
		t.Fatal(err)
	}
	forge(t, code, entry, func(e []byte) []byte { e[len(e)/2] ^= 1; return e })
	out := newOutput(t)
	p, err := c.Exec(context.Background(), "x", &specs.Process{Args: []string{"/app.wasm", "echo", "text"}, Cwd: "/"}, shim.IO{Stdout: out.theirs})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "machine code is damaged") {
		t.Errorf("got error %v", err)
	}
	out.theirs.Close()
	if got := out.all(); got != "" {
		t.Errorf("it said %q", got)
	}
}

// TestCodeThatIsRefused gives guests machine code, in entries of files that verify, that is another
// version's or damaged: nothing is run of it, and the entry is made again.
func TestCodeThatIsRefused(t *testing.T) {
	const engine, ours = "wazero-*/*", compile.CodeName
	for _, c := range []struct {
		name, guest, says string
		args              []string
		skip              compile.Steps
		file              string
		change            func([]byte) []byte
	}{
		{"another version", "hello", "hello\n", nil, 0, engine, func(e []byte) []byte { e[len("WAZEVO")+1] ^= 1; return e }},
		{"another version, plain", "hello", "hello\n", nil, compile.AllSteps, engine, func(e []byte) []byte { e[len("WAZEVO")+1] ^= 1; return e }},
		{"another code", "hello", "hello\n", nil, 0, engine, func(e []byte) []byte { e[len(e)/2] ^= 1; return e }},
		{"cut", "hello", "hello\n", nil, 0, engine, func(e []byte) []byte { return e[:len(e)/2] }},
		{"another version of a stub", "suite", "text", []string{"echo", "text"}, 0, engine, func(e []byte) []byte { e[len("WAZEVO")+1] ^= 1; return e }},
		{"another stub", "suite", "text", []string{"echo", "text"}, 0, engine, func(e []byte) []byte {
			i := bytes.Index(e, make([]byte, 16)) // the stub is that
			e[i+8] ^= 1
			return e
		}},
		{"another file of code", "suite", "text", []string{"echo", "text"}, 0, ours, func(e []byte) []byte { e[len(e)/2] ^= 1; return e }},
		{"other offsets", "suite", "text", []string{"echo", "text"}, 0, compile.OffsetsName, func(e []byte) []byte { e[len(e)-1] ^= 0x40; return e }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.guest, c.args...)
			entry := b.ownCache(t, c.skip)
			file, err := filepath.Glob(filepath.Join(entry.Dir, c.file))
			if err != nil || len(file) != 1 {
				t.Fatalf("file: %v, %v", file, err)
			}
			before, err := os.ReadFile(file[0])
			if err != nil {
				t.Fatal(err)
			}
			forge(t, file[0], entry, c.change)
			if exit := b.runToEnd(); exit.Code != 0 || b.stdout.all() != c.says {
				t.Errorf("exit %+v; stdout %q; stderr %q", exit, b.stdout.all(), b.stderr.all())
			}
			if after, err := os.ReadFile(file[0]); err != nil || !bytes.Equal(after, before) {
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
		n.bundle.Facts.Listeners = []annotation.Listener{{Name: "http", Port: 8080}}
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
