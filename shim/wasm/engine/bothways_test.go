package engine

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// ending is all that comes of a guest's run.
type ending struct {
	refused        string // it could not be created
	code           uint32
	message        string
	stdout, stderr string
	files          string // below /data, with their contents
	load           compile.Load
}

// variant leaves out steps.
type variant struct {
	name string
	skip compile.Steps
}

// every has each step left out with every guest. Without it, that is so with "gosuite" and with
// guests in other languages than Go: the others of Go's take seconds for each.
var every = flag.Bool("every", false, "leave out each step with every guest")

// eachStep are no step, all steps, and each left out, beside Go's functions as they are, which is
// what people have, and rewritten. A module is compiled for each of them; one that is rewritten
// takes three times as long.
func eachStep() []variant {
	const plain = compile.StepFold
	return []variant{
		{"plain", compile.AllSteps},
		{"light", plain}, {"no image", plain | compile.StepImage}, {"no frame", plain | compile.StepBare}, {"no sharing", plain | compile.StepShare}, {"rewritten", 0},
	}
}

// eachStepRewritten is eachStep with Go's functions rewritten in each.
func eachStepRewritten() []variant {
	return []variant{
		{"plain", compile.AllSteps},
		{"light", 0}, {"no image", compile.StepImage}, {"no frame", compile.StepBare}, {"no sharing", compile.StepShare}, {"not rewritten", compile.StepFold},
	}
}

// some are the variants of these names, or all of them with -every.
func some(variants []variant, names ...string) []variant {
	if *every {
		return variants
	}
	return slices.DeleteFunc(variants, func(v variant) bool { return !slices.Contains(names, v.name) })
}

// bothWays runs a guest as the variants say. Each run has to end as the first does, except for how
// the guest was loaded; check says whether it is right. prepare makes its bundle, and says what the
// guest reads.
func bothWays(t *testing.T, variants []variant, prepare func(skip compile.Steps) (b *bench, stdin string), check func(*testing.T, compile.Steps, ending)) {
	t.Helper()
	var first ending
	for i, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			b, stdin := prepare(v.skip)
			b.bundle.Facts.OptimizeGo = true // unless StepFold is skipped
			b.t, b.engine = t, shared.engineWith(t, v.skip)
			got := b.ending(stdin)
			check(t, v.skip, got)
			got.load = compile.Load{}
			if i == 0 {
				first = got
			} else if got != first {
				t.Errorf("%s: %+v\n%s: %+v", v.name, got, variants[0].name, first)
			}
		})
	}
}

// ending runs the guest to its end, in this process's network unless somebody talks to it
// meanwhile.
func (b *bench) ending(stdin string) ending {
	b.t.Helper()
	if b.meanwhile == nil {
		b.joinNetwork()
	}
	b.pipes(true)
	c, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	b.release()
	if err != nil {
		return ending{refused: strings.ReplaceAll(err.Error(), b.bundle.ID, "ID")}
	}
	b.t.Cleanup(func() { b.delete(c) })
	start(b.t, c.Init())
	if _, err := b.stdin.WriteString(stdin); err != nil {
		b.t.Logf("write input: %v", err) // it may have ended already
	}
	b.stdin.Close()
	if b.meanwhile != nil {
		b.meanwhile(c)
	}
	exit := ended(b.t, c.Init())
	stdout := b.stdout.all()
	if b.meanwhile != nil {
		stdout = sorted(stdout)
	}
	return ending{
		code: exit.Code, message: exit.Message, stdout: stdout, stderr: b.stderr.all(),
		files: contents(b.t, filepath.Join(b.bundle.Rootfs, "data")), load: c.(*container).entry.Load,
	}
}

// contents lists a folder with all that lies below.
func contents(t testing.TB, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var data []byte
		if d.Type().IsRegular() {
			data, err = os.ReadFile(path)
		}
		fmt.Fprintf(&list, "%s %v %q\n", strings.TrimPrefix(path, dir), d.Type(), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// TestGuestsBothWays runs the guests of every toolchain.
func TestGuestsBothWays(t *testing.T) {
	const numbers = "3\n1\n2\n"
	for _, c := range []struct {
		name  string // for world.build
		args  []string
		env   string
		stdin string
		code  uint32
		want  string // in what it says
	}{
		// C
		{name: "hello", args: []string{"a", "b"}, env: "CODE=3", code: 3, want: "hello a b\n"},
		{name: "probe", args: []string{"read:/data/in", "write:/data/new", "list:/data", "read:/none", "env:CODE"}, env: "CODE=x", want: "write:/data/new=ok\nlist:/data=3\n"},
		{name: "probe", args: []string{"trap"}, code: 134, want: "unreachable"},
		{name: "suite", args: []string{"lines", "2000"}, want: "line 1999\n"},
		{name: "suite", args: []string{"cat"}, stdin: "in and out", want: "in and out"},
		{name: "lacking"},
		{name: "guest", args: []string{"cat", "/data/in"}, want: "one two"},
		{name: "guest", args: []string{"fill", "3"}, want: "guest: 3 MiB\n"},
		{name: "tally", args: []string{"-o", "/data/out", "/data", "/none"}, code: 1, want: "/none: No such file"},
		{name: "worker", args: []string{"nonsense"}, code: 2, want: "usage"},
		// Go
		{name: "gosuite", args: []string{"exit", "7"}, code: 7},
		{name: "gosuite", args: []string{"cat"}, stdin: strings.Repeat("0123456789", 20000), want: "0123456789"},
		{name: "batch", args: []string{"-file", "/data/in", "-stdin", "-lines", "3", "-stderr", "-exit", "9"}, stdin: "x", code: 9, want: "168 primes below 1000"},
		{name: "page", args: []string{"-once", "-config", "/data/config", "-out", "/data/page"}, want: "page: written from ..1\n"},
		{name: "program", stdin: "12345", want: "\n10\ninput: 5\n"},
		// AssemblyScript
		{name: "filter", stdin: "at 10.0.0.1\nby a@b.cd", want: "at [address]\nby [mail]"},
		{name: "filter", args: []string{"-o", "/data/out", "/data/in", "/none"}, code: 1, want: "NOENT"},
		// Rust
		{name: "quantiles", stdin: numbers, want: "count 3\nmean 2.000\np50 2\n"},
		{name: "quantiles", args: []string{"-o", "/data/out", "/data/in"}, code: 1, want: `"one two" is no number`},
	} {
		t.Run(c.name+" "+strings.Join(c.args, " "), func(t *testing.T) {
			steps := eachStep()
			if slices.Contains([]string{"batch", "page", "program"}, c.name) {
				steps = some(steps, "plain", "rewritten")
			}
			shared.build(t, c.name) // or else skips the test without its compiler
			bothWays(t, steps, func(compile.Steps) (*bench, string) {
				b := newBench(t, c.name, c.args...)
				b.bundle.Spec.Process.Env = []string{c.env}
				fillData(t, b.bundle.Rootfs)
				return b, c.stdin
			}, func(t *testing.T, _ compile.Steps, got ending) {
				if c.name == "lacking" {
					if !strings.Contains(got.refused, "launch_missiles") {
						t.Errorf("error %q", got.refused)
					}
					return
				}
				if got.refused != "" || got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.want) {
					t.Errorf("%+v\nwant %d and %q", got, c.code, c.want)
				}
			})
		})
	}
}

// TestWideGuestBothWays runs much of Go's runtime and library in a guest that is compiled as a
// server is, and compares what it says with what the same program says as a Linux one.
func TestWideGuestBothWays(t *testing.T) {
	program, said := filepath.Join(shared.dir, "wide"), filepath.Join(t.TempDir(), "said")
	shared.run(t, []string{"GOFLAGS=-buildvcs=false -trimpath"}, "go", "build", "-o", program, "./testdata/wide")
	shared.run(t, nil, "sh", "-c", `"$0" >"$1"`, program, said)
	want, err := os.ReadFile(said)
	if err != nil || strings.Count(string(want), "\n") < 16 {
		t.Fatalf("the Linux program says %q, %v", want, err)
	}
	bothWays(t, some(eachStepRewritten(), "light", "not rewritten"), func(compile.Steps) (*bench, string) {
		b := newBench(t, "wide")
		fillData(t, b.bundle.Rootfs)
		return b, ""
	}, func(t *testing.T, _ compile.Steps, got ending) {
		if got.code != 0 || got.refused != "" || got.stdout != string(want) {
			t.Errorf("%+v\nthe Linux program says\n%s", got, want)
		}
	})
}

// fillData makes a root that the guest can write, and in it a folder with files and with a
// ConfigMap.
func fillData(t *testing.T, rootfs string) {
	t.Helper()
	data := filepath.Join(rootfs, "data")
	version := filepath.Join(data, "config", "..1")
	for _, dir := range []string{data, filepath.Join(data, "config"), version} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{filepath.Join(data, "in"): "one two\nthree\n", filepath.Join(version, "template"): "<${title}>", filepath.Join(version, "title"): "T"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("..1", filepath.Join(data, "config", "..data")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{rootfs, data} {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}
