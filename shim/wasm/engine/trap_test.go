package engine

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// walks are the two ways in which a module may be loaded: with what a start needs and its names in
// a file beside it, and whole.
var walks = []struct {
	name string
	skip compile.Steps
}{{"light", 0}, {"plain", compile.AllSteps}}

// TestTrapsOfC looks at the message and the stack of every kind of trap.
func TestTrapsOfC(t *testing.T) {
	for _, c := range []struct {
		way, message string
		stack        []string // functions from the top
	}{
		{"divide", "wasm trap: integer divide by zero, in divide", []string{".divide(", ".choose(", ".main("}},
		{"memory", "wasm trap: out of bounds memory access, in far_away", []string{".far_away(", ".choose(", ".main("}},
		{"deep", "wasm trap: out of bounds memory access, in deep", []string{".deep(", ".deep("}}, // C's own stack ends first
		{"type", "wasm trap: indirect call type mismatch, in wrong_type", []string{".wrong_type(", ".choose("}},
		{"abort", "wasm trap: unreachable, in choose", []string{".choose(", ".main("}},
	} {
		for _, w := range walks {
			t.Run(c.way+"/"+w.name, func(t *testing.T) {
				b := newBench(t, "trap", c.way)
				b.engine = shared.engineWith(t, w.skip)
				if exit := b.runToEnd(); exit.Code != 134 || exit.Message != c.message {
					t.Errorf("exit %+v, want %q", exit, c.message)
				}
				checkStack(t, b.stderr.all(), c.stack)
			})
		}
	}
}

// checkStack looks for functions one below the other.
func checkStack(t *testing.T, stderr string, functions []string) {
	t.Helper()
	_, rest, found := strings.Cut(stderr, "wasm stack trace:\n")
	for _, f := range functions {
		if found {
			_, rest, found = strings.Cut(rest, f)
		}
	}
	if !found {
		t.Errorf("stack is not %q: %q", functions, stderr)
	}
}

// TestEndsOfGo looks at what Go's runtime says, whose own tables of names are data of the module:
// it ends with 2, not with a trap.
func TestEndsOfGo(t *testing.T) {
	for _, c := range []struct {
		way  string
		says []string
	}{
		{"panic", []string{"panic: so it is", "goroutine 1", "main.choose", "gotrap/main.go:"}},
		{"nil", []string{"invalid memory address or nil pointer dereference", "main.follow", "main.choose", "gotrap/main.go:"}},
		{"index", []string{"index out of range [7] with length 0", "main.beyond", "gotrap/main.go:"}},
		{"deadlock", []string{"all goroutines are asleep - deadlock!", "main.choose"}},
	} {
		for _, w := range walks {
			t.Run(c.way+"/"+w.name, func(t *testing.T) {
				b := newBench(t, "gotrap", c.way)
				b.engine = shared.engineWith(t, w.skip)
				if exit := b.runToEnd(); exit.Code != 2 || exit.Message != "" {
					t.Errorf("exit %+v", exit)
				}
				text := b.stderr.all()
				for _, want := range c.says {
					if !strings.Contains(text, want) {
						t.Errorf("stderr has no %q: %s", want, text)
					}
				}
			})
		}
	}
}

// TestTrapsOfFurtherProcesses looks at an exec, whose names lie in its own entry.
func TestTrapsOfFurtherProcesses(t *testing.T) {
	for _, w := range walks {
		t.Run(w.name, func(t *testing.T) {
			b := newBench(t, "probe", "sleep")
			b.engine = shared.engineWith(t, w.skip)
			copyFile(t, shared.build(t, "trap"), b.bundle.Rootfs+"/trap.wasm")
			c := b.create()
			start(t, c.Init())
			exit, _, stderr := runFurther(t, c, &specs.Process{Args: []string{"/trap.wasm", "divide"}, Cwd: "/"})
			if exit.Code != 134 || exit.Message != "wasm trap: integer divide by zero, in divide" {
				t.Errorf("exit %+v", exit)
			}
			checkStack(t, stderr, []string{".divide(", ".choose(", ".main("})
		})
	}
}
