package wasm

import (
	"testing"
)

func TestGuestRuns(t *testing.T) {
	b := newBench(t, "hello", "a", "b")
	b.bundle.Spec.Process.Env = []string{"CODE=7"}
	exit := b.runToEnd()
	if out := b.stdout.all(); out != "hello a b\n" || exit.Code != 7 || exit.Message != "" {
		t.Errorf("got %q, %+v; stderr %q", out, exit, b.stderr.all())
	}
}
