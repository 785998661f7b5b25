package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
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

// TestOptimizeGo has the annotation decide which entry a bundle's module has.
func TestOptimizeGo(t *testing.T) {
	e := shared.engineWith(t, 0)
	for word, want := range map[string]compile.Steps{"": compile.StepFold, "false": compile.StepFold, "true": 0} {
		got, err := e.steps(&shim.Bundle{Spec: &specs.Spec{Annotations: map[string]string{shim.AnnotationOptimizeGo: word}}})
		if err != nil || got != want {
			t.Errorf("with %q: steps %d are left out, %v; want %d", word, got, err, want)
		}
	}
	b := newBench(t, "hello")
	b.bundle.Spec.Annotations[shim.AnnotationOptimizeGo] = "1"
	_, err := b.engine.Create(context.Background(), b.bundle, shim.IO{}, shim.Options{})
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `annotation io.sunaba.wasm.optimize-go: "1" is neither true nor false`) {
		t.Errorf("error %v", err)
	}
}
