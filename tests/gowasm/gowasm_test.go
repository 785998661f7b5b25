package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// collectVariable in the environment of a child lets it collect its garbage all the time.
const collectVariable = "GOWASM_COLLECT"

func TestMain(m *testing.M) {
	if os.Getenv(guestVariable) != "" {
		if os.Getenv(collectVariable) != "" {
			go func() {
				for {
					runtime.GC()
				}
			}()
		}
		os.Exit(guestMain())
	}
	os.Exit(m.Run())
}

func testSuite(t *testing.T) *suite {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSuite(self, t.TempDir(), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSlice compares some of what make gowasm-diff compares: tests that a mistake once broke, some
// of the compiler's own, and a generated program.
func TestSlice(t *testing.T) {
	s := testSuite(t)
	s.forms = append(s.forms, folded)
	o := options{run: `^(std/image/draw|codegen/loadstore|generated/1)$`, seed: 1, generated: 1, jobs: 2}
	modules, err := s.modules(o)
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.compareModules(t.Context(), modules, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if v.is != equal {
			t.Error(v.line())
		}
		least := v.functions * 9 / 10
		if v.as == folded {
			least = v.functions * 8 / 10 // some have no addresses that fold
		}
		if v.functions < 1000 || v.moved < least {
			t.Errorf("%s: %d functions of %d are rewritten", v.title, v.moved, v.functions)
		}
	}
	if len(all) != 6 {
		t.Errorf("%d programs were compared", len(all))
	}
}

// program1 looks at all that differs from run to run elsewhere, and then does what its variant
// says.
const program1 = `package main

import (
	"math/rand"
	"os"
	"time"
)

var kept [4]int

func main() {
	for k := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4} {
		println(k)
	}
	println(rand.Int(), time.Now().UnixNano())
	time.Sleep(time.Hour)
	if err := os.WriteFile("/tmp/x", nil, 0o644); err != nil {
		panic(err)
	}
	info, err := os.Stat("/tmp/x")
	println(err == nil, info.ModTime().UnixNano(), &kept)
	VARIANT
}
`

// variants are programs that are nearly the same. Each is a module.
func variants(t *testing.T, s *suite, statements ...string) []string {
	t.Helper()
	var files []string
	for _, statement := range statements {
		dir := t.TempDir()
		if err := writeFile(filepath.Join(dir, "main.go"), []byte(strings.ReplaceAll(program1, "VARIANT", statement))); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(dir, "module.wasm"))
		if err := s.golang(t.Context(), dir, "build", "-o", files[len(files)-1], "main.go"); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestRunsAreTheSame unless a program does something else.
func TestRunsAreTheSame(t *testing.T) {
	s := testSuite(t)
	files := variants(t, s, "kept[1] = 1", "kept[1] = 2", "println(1)", "os.Exit(1)", "for {}")
	m := &module{name: "variant"}
	ran := func(file string, as form) result {
		r, err := s.run(context.Background(), m, file, as, []program{{args: []string{"test"}, dir: "/"}})
		if err != nil || r.Invalid != "" || len(r.Programs) != 1 {
			t.Fatalf("%+v: %v", r, err)
		}
		return r.Programs[0]
	}
	first := ran(files[0], asBuilt)
	if first.Ending.Code != 0 || first.Ending.Calls == 0 || first.Ending.Memory == 0 || len(first.Output) == 0 {
		t.Fatalf("%+v", first)
	}
	for _, v := range []struct {
		file string
		as   form
		want string
	}{
		{files[0], asBuilt, ""}, {files[0], folded, ""}, {files[0], served, ""}, {files[1], served, "memory"}, {files[2], folded, "output"}, {files[3], served, "end"},
	} {
		got := unequal(first, ran(v.file, v.as))
		if v.want == "" && len(got) > 0 || v.want != "" && !slices.Contains(got, v.want) {
			t.Errorf("%s differs in %q, want %q", v.file, got, v.want)
		}
	}
	s.cpu = 2 // the others take as long as a busy machine wants
	if late := ran(files[4], asBuilt); !late.TimedOut || len(late.Output) == 0 {
		t.Errorf("an endless program: %+v", late)
	}
}

// TestLateWhileCollecting: no code in Go runs while the collector waits for a guest that calls
// nothing.
func TestLateWhileCollecting(t *testing.T) {
	s := testSuite(t)
	s.cpu = 1
	dir := t.TempDir()
	script := filepath.Join(dir, "collect")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec %s\n", collectVariable, s.self), 0o755); err != nil {
		t.Fatal(err)
	}
	s.self = script
	// (func (export "_start") (loop (br 0)))
	endless := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x0a\x01\x06_start\x00\x00\x0a\x09\x01\x07\x00\x03\x40\x0c\x00\x0b\x0b")
	file := filepath.Join(dir, "module.wasm")
	if err := os.WriteFile(file, endless, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := s.run(t.Context(), &module{name: "endless"}, file, asBuilt, []program{{args: []string{"test"}, dir: "/"}})
	if err != nil || len(r.Programs) != 1 || !r.Programs[0].TimedOut {
		t.Errorf("%+v: %v", r, err)
	}
}

// TestWeigh tells a difference from a program that does something else each time.
func TestWeigh(t *testing.T) {
	r := func(output string, calls uint64) result {
		return result{Output: []byte(output), Ending: ending{Calls: calls}}
	}
	const passed, failed = "--- PASS: TestA (0.00s)\n--- PASS: TestB/c (0.00s)\n", "--- PASS: TestA (0.00s)\n--- FAIL: TestB/c (0.00s)\n"
	for _, v := range []struct {
		stocks, changes []result
		want            string
	}{
		{[]result{r("x", 1), r("x", 1)}, []result{r("x", 2), r("x", 2)}, differs},
		{[]result{r("x", 1), r("x", 1)}, []result{r("x", 2), r("x", 1)}, differs},
		{[]result{r("x", 1), r("x", 2)}, []result{r("x", 3), r("x", 4)}, unsteady},
		{[]result{r("x", 1), r("x", 2)}, []result{r("y", 3), r("x", 4)}, differs},
		{[]result{r(passed, 1), r(passed+"x", 2)}, []result{r(passed+"y", 3), r(passed, 4)}, unsteady},
		{[]result{r(passed, 1), r(passed+"x", 2)}, []result{r(failed+"y", 3), r(failed, 4)}, differs},
		{[]result{r(passed, 1), r(failed, 2)}, []result{r(failed+"y", 3), r(failed, 4)}, unsteady},
	} {
		if is, why := weigh(v.stocks, v.changes, true); is != v.want {
			t.Errorf("%+v and %+v: %s (%s), want %s", v.stocks, v.changes, is, why, v.want)
		}
	}
}

// TestAspects compares host calls, except before the end of the engine's stack.
func TestAspects(t *testing.T) {
	for trap, want := range map[string]bool{
		"module[] function[_start] failed: stack overflow":             true,
		"module[] function[_start] failed: wasm error: unreachable":    false,
		"module[] function[_start] failed: stack overflow in the test": false,
	} {
		a, b := result{Ending: ending{Trap: trap, Calls: 1}}, result{Ending: ending{Trap: trap, Calls: 2}}
		if got := unequal(a, b); (len(got) == 0) != want {
			t.Errorf("%q: %q differ", trap, got)
		}
	}
}

// TestGoTests makes one module of programs, without those that cannot be built.
func TestGoTests(t *testing.T) {
	if _, ok := newGoTest("x", []byte("// errorcheck\npackage main\nfunc main() {}\n")); ok {
		t.Error("a program that is not to be run is taken")
	}
	var tests []goTest
	for name, body := range map[string]string{"a/one": "println(1)", "two": "two()", "three": `panic("three")`} {
		test, ok := newGoTest(name, []byte("// run\n\npackage main\n\nfunc main() { "+body+" }\n"))
		if !ok {
			t.Fatalf("%s is not taken", name)
		}
		tests = append(tests, test)
	}
	slices.SortFunc(tests, func(a, b goTest) int { return strings.Compare(a.name, b.name) })
	s := testSuite(t)
	all, err := s.compare(t.Context(), s.batch("test/0", tests), false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range all {
		got = append(got, v.title+" "+v.is)
	}
	if want := []string{"test/0/a/one equal", "test/0/three equal", "test/0/two not built"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
