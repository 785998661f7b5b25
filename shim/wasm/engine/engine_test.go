package engine

import (
	"testing"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

func TestGuestRuns(t *testing.T) {
	b := newBench(t, "hello", "a", "b")
	b.bundle.Spec.Process.Env = []string{"CODE=7"}
	exit := b.runToEnd()
	if out := b.stdout.all(); out != "hello a b\n" || exit.Code != 7 || exit.Message != "" {
		t.Errorf("got %q, %+v; stderr %q", out, exit, b.stderr.all())
	}
}

// TestOptimizeGo has the caller's word decide which entry a bundle's module has.
func TestOptimizeGo(t *testing.T) {
	e := shared.engineWith(t, 0)
	for optimize, want := range map[bool]compile.Steps{false: compile.StepFold, true: 0} {
		if got := e.steps(optimize); got != want {
			t.Errorf("with %t: steps %d are left out, want %d", optimize, got, want)
		}
	}
}
