package engine

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/tests/binaries"
)

// TestEngine runs the conformance suite with guests of both toolchains and a component, with the steps that make a
// start light and without, and with a prewarmed process.
func TestEngine(t *testing.T) {
	for _, guest := range []string{"suite", "gosuite", "component"} {
		for _, v := range variants {
			t.Run(guest+"/"+v.name, func(t *testing.T) { conform(t, guest, shared.engineWith(t, v.skip)) })
		}
		t.Run(guest+"/prewarmed", func(t *testing.T) {
			e := &preparing{Engine: shared.engine(t)}
			t.Cleanup(func() {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				if e.used == 0 {
					t.Error("no prewarmed process was used")
				}
			})
			conform(t, guest, e)
		})
	}
}

// TestSuccessor runs the suite of guests whose shim dies.
func TestSuccessor(t *testing.T) {
	bin := t.TempDir()
	if err := binaries.Provide(bin, binaries.Shim); err != nil {
		t.Fatal(err)
	}
	for _, guest := range []string{"suite", "gosuite", "component"} {
		t.Run(guest, func(t *testing.T) { enginetest.RunAdopted(t, harness(guest, nil), filepath.Join(bin, binaries.Shim)) })
	}
}

// preparing is an engine that has a prewarmed process for every container.
type preparing struct {
	*Engine
	used int
}

func (e *preparing) Create(ctx context.Context, b *shim.Bundle, io shim.IO, o shim.Options) (shim.Container, error) {
	const pod = "pod"
	err := e.Prepare(ctx, shim.Preparation{Pod: pod, Namespaces: b.Spec.Linux.Namespaces, Cgroup: b.Spec.Linux.CgroupsPath})
	if err != nil {
		return nil, err
	}
	prewarmed := e.stock.slots[pod].prewarmed // nil for the cgroup of an earlier container
	c, err := e.Engine.Create(ctx, b, io, o)
	if err == nil && prewarmed != nil && c.Init().Pid() == prewarmed.child.Pid {
		e.used++
	}
	return c, err
}

func conform(t *testing.T, guest string, e shim.Engine) { enginetest.Run(t, harness(guest, e)) }

func harness(guest string, e shim.Engine) enginetest.Harness {
	return enginetest.Harness{
		Engine:    e,
		WasmCache: filepath.Join(shared.dir, "cache"),
		Bundle: func(t *testing.T, id string, p enginetest.Program) *shim.Bundle {
			b := newBench(t, guest).bundle
			b.ID = id
			b.Spec.Process = suiteProcess(p)
			b.Spec.Linux.CgroupsPath = enginetest.CgroupParent + "/" + id
			if p.Kind == enginetest.Missing {
				b.Facts.Module.Path = filepath.Join(b.Path, "nothing.wasm")
			}
			return b
		},
		Process:  func(_ *testing.T, p enginetest.Program) *specs.Process { return suiteProcess(p) },
		CanPause: true,
		Beside:   2 * engineReserve,
	}
}

func suiteProcess(p enginetest.Program) *specs.Process {
	args := map[enginetest.Kind][]string{
		enginetest.Exit:    {"exit", strconv.Itoa(p.Code)},
		enginetest.Echo:    {"echo", p.Text},
		enginetest.Sleep:   {"sleep"},
		enginetest.Lines:   {"lines", strconv.Itoa(p.N)},
		enginetest.Env:     {"env", p.Text},
		enginetest.Cat:     {"cat", strconv.Itoa(p.Code)},
		enginetest.Missing: {"missing"},
	}[p.Kind]
	return &specs.Process{Args: append([]string{"/app.wasm"}, args...), Env: p.Env, Cwd: "/"}
}
