package wasm

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
)

// TestEngine runs the conformance suite with guests of both toolchains, with the steps that make a
// start light and without.
func TestEngine(t *testing.T) {
	for _, guest := range []string{"suite", "gosuite"} {
		for _, v := range variants {
			t.Run(guest+"/"+v.name, func(t *testing.T) { conform(t, guest, v.skip) })
		}
	}
}

func conform(t *testing.T, guest string, skip compile.Steps) {
	enginetest.Run(t, enginetest.Harness{
		Engine: shared.engineWith(t, skip),
		Bundle: func(t *testing.T, id string, p enginetest.Program) *shim.Bundle {
			b := newBench(t, guest).bundle
			b.ID, b.SandboxID = id, id
			b.Spec.Process = suiteProcess(p)
			b.Spec.Linux.CgroupsPath = enginetest.CgroupParent + "/" + id
			if p.Kind == enginetest.Missing {
				b.Spec.Annotations[shim.AnnotationWasmModule] = filepath.Join(b.Path, "nothing.wasm")
			}
			return b
		},
		Process:  func(_ *testing.T, p enginetest.Program) *specs.Process { return suiteProcess(p) },
		CanPause: true,
	})
}

func suiteProcess(p enginetest.Program) *specs.Process {
	args := map[enginetest.Kind][]string{
		enginetest.Exit:    {"exit", strconv.Itoa(p.Code)},
		enginetest.Echo:    {"echo", p.Text},
		enginetest.Sleep:   {"sleep"},
		enginetest.Lines:   {"lines", strconv.Itoa(p.N)},
		enginetest.Env:     {"env", p.Text},
		enginetest.Cat:     {"cat"},
		enginetest.Missing: {"missing"},
	}[p.Kind]
	return &specs.Process{Args: append([]string{"/app.wasm"}, args...), Env: p.Env, Cwd: "/"}
}
